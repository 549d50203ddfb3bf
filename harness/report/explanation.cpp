#include "harness/report/explanation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/record.hpp"
#include "harness/report/tables/columns.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
RecordKeys KeysOf<UnitTensors>() {
  using U = UnitTensors;
  static constexpr auto kKeys =
      KeyTable<U>(Key<&U::names>({.name = "names"}), Key<&U::elements>({.name = "elements"}),
                  Key<&U::partitions>({.name = "partitions", .optional = true}),
                  Key<&U::path>({.name = "path", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<StepWait>() {
  using W = StepWait;
  static constexpr auto kKeys =
      KeyTable<W>(Key<&W::what>({.name = "for"}), Key<&W::unit>({.name = "unit"}),
                  Key<&W::seconds>({.name = "seconds"}),
                  Key<&W::until_last_rank_seconds>({.name = "until_last_rank_seconds"}),
                  Key<&W::tensors>({.name = "tensors"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<BesideBackward>() {
  using B = BesideBackward;
  static constexpr auto kKeys =
      KeyTable<B>(Key<&B::exchanges>({.name = "exchanges"}), Key<&B::lanes>({.name = "lanes"}),
                  Key<&B::other_lanes_sparsify>({.name = "other_lanes_sparsify"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedSteps>() {
  using T = TracedSteps;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::steps>({.name = "steps"}), Key<&T::ranks>({.name = "ranks"}),
                  Key<&T::sampling>({.name = "sampling"}), Key<&T::waits>({.name = "waits"}),
                  Key<&T::beside_backward>({.name = "beside_backward"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<BlockSteps>() {
  using B = BlockSteps;
  static constexpr auto kKeys = KeyTable<B>(
      Key<&B::parts>({.name = "parts"}), Key<&B::quartiles>({.name = "quartiles"}),
      Key<&B::steps>({.name = "steps"}), Key<&B::middle>({.name = "middle"}),
      Key<&B::plan>({.name = "plan", .empty_is_null = true}), Key<&B::traces>({.name = "traces"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<StepDifference>() {
  using D = StepDifference;
  static constexpr auto kKeys =
      KeyTable<D>(Key<&D::value>({.name = "value"}), Key<&D::low>({.name = "low"}),
                  Key<&D::high>({.name = "high"}), Key<&D::n>({.name = "n"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<PartOfStep>() {
  using P = PartOfStep;
  static constexpr auto kKeys =
      KeyTable<P>(Key<&P::name>({.name = "name"}), Key<&P::of>({.name = "of"}),
                  Key<&P::over>({.name = "over"}), Key<&P::difference>({.name = "difference"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedMeans>() {
  using T = TracedMeans;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::blocks>({.name = "blocks"}), Key<&T::steps>({.name = "steps"}),
                  Key<&T::ranks>({.name = "ranks"}), Key<&T::sampling>({.name = "sampling"}),
                  Key<&T::plans>({.name = "plans"}), Key<&T::waits>({.name = "waits"}),
                  Key<&T::exposed_seconds>({.name = "exposed_seconds"}),
                  Key<&T::until_last_rank_seconds>({.name = "until_last_rank_seconds"}),
                  Key<&T::beside_backward>({.name = "beside_backward"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<ExplainedSide>() {
  using S = ExplainedSide;
  static constexpr auto kKeys = KeyTable<S>(
      Key<&S::name>({.name = "name"}), Key<&S::part>({.name = "part"}),
      Key<&S::cell>({.name = "cell"}), Key<&S::mode>({.name = "mode"}),
      Key<&S::workers>({.name = "workers"}), Key<&S::config_hash>({.name = "config_hash"}),
      Key<&S::hardware>({.name = "hardware"}), Key<&S::trials>({.name = "trials"}),
      Key<&S::blocks_left_out>({.name = "blocks_left_out"}), Key<&S::steps>({.name = "steps"}),
      Key<&S::middle_steps>({.name = "middle_steps"}), Key<&S::quartiles>({.name = "quartiles"}),
      Key<&S::facts>({.name = "facts"}), Key<&S::traces>({.name = "traces"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Explanation>() {
  using E = Explanation;
  static constexpr auto kKeys = KeyTable<E>(
      Key<&E::experiment>({.name = "experiment"}), Key<&E::of>({.name = "of"}),
      Key<&E::over>({.name = "over"}), Key<&E::paired>({.name = "paired"}),
      Key<&E::differ_in>({.name = "differ_in"}), Key<&E::unlike_in>({.name = "unlike_in"}),
      Key<&E::step>({.name = "step"}), Key<&E::align_wait>({.name = "align_wait"}),
      Key<&E::remainder>({.name = "remainder"}), Key<&E::parts>({.name = "parts"}));
  return kKeys;
}

namespace {

constexpr const char* kParts[] = {"forward",    "backward", "sparsify", "exposed_communication",
                                  "decompress", "update",   "outer",    "other"};
constexpr const char* kFacts[] = {"exchanges", "messages_sent", "payload_bytes", "sent_bytes",
                                  "achieved_density"};

StepsByBlock ReadSteps(const json& blocks, const std::string& whole) {
  StepsByBlock read;
  for (const auto& [block, steps] : blocks.items())
    read[std::stoi(block)] = RecordOf<BlockSteps>(steps, whole + " of block " + block);
  return read;
}

std::vector<int> BlocksIn(const StepsByBlock& steps) {
  std::vector<int> blocks;
  for (const auto& [block, unused] : steps) blocks.push_back(block);
  return blocks;
}

std::map<int, double> PartByBlock(const StepsByBlock& steps, const std::string& part,
                                  const std::vector<int>& blocks) {
  std::map<int, double> values;
  for (const int block : blocks) {
    const auto& parts = steps.at(block).parts;
    const auto found = parts.find(part);
    values[block] = found == parts.end() ? 0 : found->second;
  }
  return values;
}

double MeanOf(const std::map<int, double>& values) {
  double sum = 0;
  for (const auto& [block, value] : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TracedMeans MeansOf(const StepsByBlock& steps, const std::vector<int>& blocks) {
  TracedMeans means;
  std::set<std::string> plans;
  std::set<std::uint64_t> traced;
  std::set<int> ranks;
  std::map<std::pair<std::string, std::string>, StepWait> waits;
  BesideBackward beside;
  for (const int block : blocks) {
    plans.insert(steps.at(block).plan);
    const auto& traces = steps.at(block).traces;
    if (!traces) continue;
    ++means.blocks;
    traced.insert(traces->steps.begin(), traces->steps.end());
    ranks.insert(traces->ranks.begin(), traces->ranks.end());
    means.sampling = traces->sampling;
    for (const StepWait& wait : traces->waits) {
      StepWait& sum = waits[{wait.what, wait.unit}];
      if (sum.what.empty()) sum = {wait.what, wait.unit, 0, 0, wait.tensors};
      sum.seconds += wait.seconds;
      sum.until_last_rank_seconds += wait.until_last_rank_seconds;
    }
    beside.exchanges += traces->beside_backward.exchanges;
    beside.lanes += traces->beside_backward.lanes;
    beside.other_lanes_sparsify += traces->beside_backward.other_lanes_sparsify;
  }
  means.plans = plans.size();
  means.steps.assign(traced.begin(), traced.end());
  means.ranks.assign(ranks.begin(), ranks.end());
  if (means.blocks == 0) return means;
  const auto n = static_cast<double>(means.blocks);
  for (auto& [key, wait] : waits) {
    wait.seconds /= n;
    wait.until_last_rank_seconds /= n;
    means.exposed_seconds += wait.seconds;
    means.until_last_rank_seconds += wait.until_last_rank_seconds;
    means.waits.push_back(wait);
  }
  // Equal waits keep the order of their names.
  std::ranges::stable_sort(
      means.waits, [](const StepWait& a, const StepWait& b) { return a.seconds > b.seconds; });
  means.beside_backward = {beside.exchanges / n, beside.lanes / n, beside.other_lanes_sparsify / n};
  return means;
}

// A value that tells cells apart, such as the method. Of a model table only the name counts.
json Of(const Cell& cell, const std::string& key) {
  if (key == "label") return cell.label;
  const json value = KeyValue(cell.json, {key, ""});
  return key == "workload" ? json(WorkloadLabel(value.get<std::string>())) : value;
}

std::vector<std::string> DifferingKeys(const Cell& of, const Cell& over) {
  std::vector<std::string> keys = {"method"};
  keys.insert(keys.end(), PanelKeys().begin(), PanelKeys().end());
  std::erase_if(keys, [&](const std::string& key) { return Of(of, key) == Of(over, key); });
  return keys;
}

// Names a cell by its method, and by its mode or other keys that tell the two cells apart.
std::string NameAmong(const Cell& cell, const std::vector<std::string>& differing) {
  const auto differs = [&](const char* key) {
    return std::ranges::find(differing, key) != differing.end();
  };
  std::vector<std::string> said;
  if (differs("mode")) {
    said = {"mode"};
  } else if (!differs("method")) {
    said.assign(differing.begin(),
                differing.begin() + std::min<std::ptrdiff_t>(2, std::ssize(differing)));
  }
  std::string words;
  for (const std::string& key : said)
    words += (words.empty() ? "" : ", ") + KeyWords(key, Of(cell, key));
  return cell.config.method + (words.empty() ? "" : " (" + words + ")");
}

std::string PartOf(const std::vector<PartResult>& results, const CellResult& cell) {
  for (const PartResult& result : results) {
    if (!result.cells.empty() && &result.cells.front() <= &cell && &cell <= &result.cells.back())
      return result.part->id;
  }
  return "";
}

ExplainedSide SideOf(const std::vector<PartResult>& results, const CellResult& result,
                     const std::vector<std::string>& differing, const StepsByBlock& steps,
                     const std::vector<int>& blocks) {
  const Cell& cell = *result.cell;
  ExplainedSide side{.name = NameAmong(cell, differing),
                     .part = PartOf(results, result),
                     .cell = CellName(cell.config),
                     .mode = NameOf(cell.config.mode),
                     .workers = cell.config.workers,
                     .config_hash = cell.config_hash,
                     .quartiles = {0, 0},
                     .traces = MeansOf(steps, blocks)};
  std::set<std::string> hardware;
  std::set<std::size_t> counted, middle;
  for (const auto& [block, trial] : DrawnTrials(result)) {
    hardware.insert(HardwareLine(*trial));
    if (std::ranges::find(blocks, block) == blocks.end()) {
      side.blocks_left_out.push_back(block);
      continue;
    }
    const BlockSteps& of = steps.at(block);
    side.trials[std::to_string(block)] = trial->trial_id;
    counted.insert(of.steps);
    middle.insert(of.middle);
    for (std::size_t i = 0; i < side.quartiles.size(); ++i)
      side.quartiles[i] += of.quartiles.at(i) / static_cast<double>(blocks.size());
  }
  side.hardware = fmt::format("{}", fmt::join(hardware, "; "));
  side.steps.assign(counted.begin(), counted.end());
  side.middle_steps.assign(middle.begin(), middle.end());
  for (const char* fact : kFacts) {
    auto values = result.Values(fact);
    std::erase_if(values, [&](const auto& each) {
      return std::ranges::find(blocks, each.first) == blocks.end();
    });
    side.facts[fact] = values.empty() ? std::nullopt : std::optional(MeanOf(values));
  }
  return side;
}

}  // namespace

ExplainedSteps ReadExplainedSteps(const std::filesystem::path& file) {
  const json found = ReadJsonFile(file);
  return {ReadSteps(found.at("of"), file.string() + ": of"),
          ReadSteps(found.at("over"), file.string() + ": over")};
}

ComparedSteps CompareSteps(const ExplainedSteps& steps, bool same_mode) {
  ComparedSteps compared{.of_blocks = BlocksIn(steps.of), .over_blocks = BlocksIn(steps.over)};
  std::vector<int> common;
  std::set_intersection(compared.of_blocks.begin(), compared.of_blocks.end(),
                        compared.over_blocks.begin(), compared.over_blocks.end(),
                        std::back_inserter(common));
  compared.paired = same_mode && !common.empty();
  if (compared.paired) compared.of_blocks = compared.over_blocks = common;
  std::set<std::string> names;  // only local steps have an outer one
  for (const auto* side : {&steps.of, &steps.over}) {
    for (const auto& [name, unused] : side->begin()->second.parts) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto ours = PartByBlock(steps.of, name, compared.of_blocks);
    const auto other = PartByBlock(steps.over, name, compared.over_blocks);
    PartOfStep part{.name = name, .of = MeanOf(ours), .over = MeanOf(other)};
    part.difference.value = part.of - part.over;
    if (compared.paired) {
      const Interval interval = *PairedDifference(ours, other);
      part.difference = {.value = interval.value, .n = interval.n};
      if (interval.has_bounds()) {
        part.difference.low = interval.low;
        part.difference.high = interval.high;
      }
    }
    compared.parts[name] = std::move(part);
  }
  return compared;
}

Explanation Explain(const std::string& experiment, const std::vector<PartResult>& results,
                    const ExplainedCells& cells, const ExplainedSteps& steps) {
  const Cell &of = *cells.of->cell, &over = *cells.over->cell;
  const ComparedSteps compared = CompareSteps(steps, of.config.mode == over.config.mode);
  const auto differing = DifferingKeys(of, over);
  Explanation found{
      .experiment = experiment,
      .of = SideOf(results, *cells.of, differing, steps.of, compared.of_blocks),
      .over = SideOf(results, *cells.over, differing, steps.over, compared.over_blocks),
      .paired = compared.paired,
      .step = compared.parts.at("step"),
      .align_wait = compared.parts.at("align_wait"),
      .remainder = compared.parts.at("remainder")};
  for (const std::string& key : differing) {
    const auto methods = MethodKeys();
    if (std::ranges::find(methods, key) != methods.end())
      found.differ_in.push_back(key);
    else
      found.unlike_in[key] = json::array({Of(of, key), Of(over, key)});
  }
  for (const char* name : kParts) {
    const auto part = compared.parts.find(name);
    if (part != compared.parts.end()) found.parts.push_back(part->second);
  }
  return found;
}

json ToJson(const Explanation& found) {
  json written = WriteRecord(found);
  written["preliminary_below"] = kPreliminaryBelowBlocks;
  const auto noise = found.within_noise();
  written["within_noise"] = noise ? json(*noise) : json();
  written["conclusion"] = ConclusionOf(found);
  return written;
}

}  // namespace sparfuse::harness
