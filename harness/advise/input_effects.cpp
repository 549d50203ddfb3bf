#include "harness/advise/input_effects.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <span>
#include <string_view>

#include "harness/catalog/model_table.hpp"
#include "harness/records/record.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Two cells that are compared repeatedly: once first, then by several threads at once.
class TwoCells {
 public:
  TwoCells(const CellConfig& of, const CellConfig& over)
      : of_(FirstTrial(of)), over_(FirstTrial(over)) {}

  // The log of the ratio of their step times, with the profiles that `profiles` gives for a cell.
  double LogRatio(const auto& profiles) {
    return std::log(ModelUsualStep(over_, profiles(over_.cell), &over_layout_).seconds /
                    ModelUsualStep(of_, profiles(of_.cell), &of_layout_).seconds);
  }

 private:
  TrialConfig of_, over_;
  KnownLayout of_layout_, over_layout_;
};

// Smaller effects are rounding.
constexpr double kNoEffect = 1e-9;
constexpr double kManyTimes = 3;
constexpr double kLeastFactor = 1e-3;  // the least factor that a cell's `inputs` may have

// Fills in the file's statements about the input.
void Describe(const DeclaredCluster& cluster, const CellConfig& cell, InputEffect& effect) {
  if (const DeclaredInput* input = cluster.Find(effect.input)) {
    effect.value = input->value;
    effect.low = input->low;
    effect.high = input->high;
    effect.kind = input->kind;
    effect.source = input->source;
  }
  // The ends of these inputs are factors.
  const auto factor = [&](const auto& entry) {
    effect.value = 1;
    effect.low = 1 / entry.spread;
    effect.high = entry.spread;
    effect.kind = entry.kind;
    effect.source = entry.source;
  };
  for (const ComputeTime& time : cluster.compute) {
    if (effect.input == "compute/" + time.workload) factor(time);
  }
  for (const Coder& coder : cluster.coders) {
    if (effect.input == NameOfInput(coder)) factor(coder);
  }
  for (const ReferenceStep& step : cluster.references) {
    if (effect.input != NameOfInput(step)) continue;
    effect.value = step.measured;
    effect.low = step.measured / step.spread;
    effect.high = step.measured * step.spread;
    effect.kind = "measured";
    effect.source = step.bar ? step.bar->name() : step.source;
  }
  effect.measure = MeasureWith(effect.input, cell);
}

constexpr double kWorthALine = 0.01;

// Inputs that a reader of a cluster sees as one question.
struct Group {
  const char* what;
  std::set<std::string> inputs;
  std::function<void(DeclaredCluster&, const DeclaredCluster&)> take;
};

const std::vector<Group>& Groups() {
  static const std::vector<Group> kGroups = {
      {"compute",
       {"compute_tflops", "compute_ratio"},
       [](DeclaredCluster& into, const DeclaredCluster& from) {
         into.compute = from.compute;
         into.card = from.card;
       }},
      {"selections and codings",
       {"selection_us", "selection_ns_an_element", "coding_in_step", "side_slowdown"},
       [](DeclaredCluster& into, const DeclaredCluster& from) {
         into.coders = from.coders;
         into.selection_costs = from.selection_costs;
       }},
      {"collectives", {}, [](DeclaredCluster& into, const DeclaredCluster& from) {
         into.all_reduce = from.all_reduce;
         into.all_gather = from.all_gather;
         into.nccl = from.nccl;
         into.curves = from.curves;
       }}};
  return kGroups;
}

void TakeInput(DeclaredCluster& into, const DeclaredCluster& from, const std::string& input,
               std::string_view family) {
  const double value = from.Value(input, family);
  if (DeclaredInput* there = into.Find(input, family)) {
    there->value = value;
    return;
  }
  const auto spec =
      std::ranges::find_if(InputSpecs(), [&](const InputSpec& each) { return input == each.name; });
  DeclaredInput taken;
  taken.name = input;
  taken.group = spec->group;
  taken.value = taken.low = taken.high = value;
  into.inputs.push_back(std::move(taken));
}

}  // namespace

template <>
RecordKeys KeysOf<InputEffect>() {
  using E = InputEffect;
  static constexpr auto kKeys = KeyTable<E>(
      Key<&E::input>({.name = "input"}), Key<&E::value>({.name = "value"}),
      Key<&E::low>({.name = "low"}), Key<&E::high>({.name = "high"}),
      Key<&E::ratio_low>({.name = "ratio_low", .meaning = "with the input at its low end"}),
      Key<&E::ratio_high>({.name = "ratio_high"}),
      Key<&E::variance>(
          {.name = "variance", .meaning = "variance of log(ratio), the input drawn alone"}),
      Key<&E::share>({.name = "share", .meaning = "share of the sum of variances"}),
      Key<&E::turns>({.name = "turns", .meaning = "the order changes at an end of the range"}),
      Key<&E::kind>({.name = "kind"}), Key<&E::source>({.name = "source"}),
      Key<&E::measure>({.name = "measure", .meaning = "the command that measures it"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<InputEffects>() {
  using E = InputEffects;
  static constexpr auto kKeys =
      KeyTable<E>(Key<&E::ratio>({.name = "ratio", .meaning = "ratio of steps, over's by of's"}),
                  Key<&E::variance_alone>({.name = "variance_alone"}),
                  Key<&E::variance_together>({.name = "variance_together"}),
                  Key<&E::effects>({.name = "inputs"}));
  return kKeys;
}

std::vector<std::string> RowOf(const InputEffect& effect) {
  return {effect.input,
          fmt::format("{:.4g} [{:.4g}, {:.4g}]", effect.value, effect.low, effect.high),
          fmt::format("{:.0f} %", 100 * effect.share),
          fmt::format("{:.3f}x, {:.3f}x{}", effect.ratio_low, effect.ratio_high,
                      effect.turns ? ": turns the order" : ""),
          effect.measure};
}

double VarianceBetweenEnds(double low, double high) {
  const double mean = (low + high) / 4;
  return (low * low + high * high) / 6 - mean * mean;
}

InputEffects EffectsOfInputs(const ModelledCluster& cluster, const CellConfig& of,
                             const CellConfig& over, ThreadPool& pool) {
  InputEffects found;
  TwoCells compared(of, over);
  const double declared =
      compared.LogRatio([&](const CellConfig& cell) { return cluster.Profiles(cell, 0); });
  found.ratio = std::exp(declared);
  // Models the ratio with each input at its low and its high end, then with draws of all inputs.
  const std::vector<std::string>& inputs = cluster.open_inputs();
  const std::size_t ends = 2 * inputs.size();
  std::vector<double> ratios(ends + static_cast<std::size_t>(kDraws));
  pool.ParallelFor(ratios.size(), [&](std::size_t i, int) {
    ratios[i] = compared.LogRatio([&](const CellConfig& cell) {
      return i < ends ? cluster.ProfilesAtEnd(cell, inputs[i / 2],
                                              i % 2 == 0 ? RangeEnd::kLow : RangeEnd::kHigh)
                      : cluster.Profiles(cell, 1 + static_cast<int>(i - ends));
    });
  });
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double low = ratios[2 * i], high = ratios[2 * i + 1];
    InputEffect effect;
    effect.input = inputs[i];
    effect.variance = VarianceBetweenEnds(low - declared, high - declared);
    if (effect.variance < kNoEffect * kNoEffect) continue;
    effect.ratio_low = std::exp(low);
    effect.ratio_high = std::exp(high);
    effect.turns = low * declared < 0 || high * declared < 0;
    Describe(*cluster.declared(), of, effect);
    found.variance_alone += effect.variance;
    found.effects.push_back(std::move(effect));
  }
  for (InputEffect& effect : found.effects) effect.share = effect.variance / found.variance_alone;
  std::ranges::stable_sort(found.effects, std::ranges::greater(), &InputEffect::variance);

  double sum = 0, squares = 0;
  for (const double ratio : std::span(ratios).subspan(ends)) {
    sum += ratio;
    squares += ratio * ratio;
  }
  found.variance_together = std::max(0.0, (squares - sum * sum / kDraws) / (kDraws - 1));
  return found;
}

std::string MeasureWith(const std::string& input, const CellConfig& cell) {
  const auto begins = [&](std::string_view head) { return input.starts_with(head); };
  const std::string step = "a step of " + WorkloadLabel(cell.workload);
  // A table has nothing to train.
  const bool table = workloads::IsTable(cell.workload);
  const std::string profile =
      fmt::format("sparfuse profile {} --device cuda", table ? "WORKLOAD" : cell.workload);
  const std::string as_card = " --name CARD, and card = \"CARD\" in the cluster's file";
  if (input == "inter_node_us" || input == "intra_node_us") {
    return fmt::format(
        "nccl-tests: sendrecv_perf -b 8 -e 64M -f 2 -g 1 with two ranks on {}, and "
        "sparfuse cluster import",
        begins("intra") ? "one node" : "two nodes");
  }
  if (input == "message_us") {
    return "nccl-tests: all_reduce_perf -b 8 -e 64K -f 2 -g 1 on two ranks of two nodes, the time "
           "of the smallest sizes over the algorithm's steps";
  }
  if (begins("inter_node") || input == "network_cards" || input == "host_path_gbps") {
    return "nccl-tests: all_reduce_perf -b 64M -e 1G -f 2 on all nodes, and sparfuse "
           "cluster import; of the cards alone: ib_write_bw";
  }
  if (input == "shaper_efficiency")
    return "iperf3 between two nodes under the shaper, over the rate that it is set to";
  if (input == "hook_host_us_a_tensor") {
    return step +
           " on two nodes, traced by torch.profiler (sparfuse trace: the host's time on a "
           "hook of a tensor)";
  }
  if (begins("intra_node")) {
    return "nccl-tests: all_reduce_perf -b 64M -e 1G -f 2 on one node, and sparfuse cluster import";
  }
  if (begins("compute/") || begins("compute_tflops") || begins("compute_ratio")) {
    if (table) {
      return "python -m sparfuse.describe ... --measure 20, on one card, and a [[compute]] of it";
    }
    return profile + " --ranks 1" + as_card;
  }
  if (begins("coder/") || begins("selection_")) {
    std::string what;
    if (begins("coder/")) {
      what = input.substr(6, input.find('/', 6) - 6);
    } else if (cell.sparsifier != "none") {
      what = cell.sparsifier;
    }
    const bool quantizer = !what.empty() && cell.sparsifier == "none";
    return profile + " --ranks 1" +
           (what.empty() ? "" : (quantizer ? " --quantizers " : " --sparsifiers ") + what) +
           (table ? ", of one with tensors as large, and a [[coder]] of it" : as_card);
  }
  if (begins("memory_") || begins("kernel_")) {
    return profile + " --ranks 1: the time of packing that it prints, by the size of the gradient";
  }
  if (begins("host_")) {
    return "CUDA samples: bandwidthTest --memory=pinned; of the host: STREAM";
  }
  if (begins("exchange_host") || input == "update_host_us_a_tensor") {
    return fmt::format(
        "{} on two nodes with nsys profile --trace=cuda,nvtx: the host's time from a "
        "gradient to its exchange; and a [[reference]] of the whole step",
        step);
  }
  if (begins("exchange_growth"))
    return step + " on twice as many nodes, measured, as a [[reference]]";
  if (input == "coding_in_step" || input == "side_slowdown" || input == "compute_slowdown" ||
      input.ends_with("overlap")) {
    return fmt::format(
        "{} with and without exchanges on two nodes (nsys profile); as a [[reference]] "
        "of the step and of its exposed communication",
        step);
  }
  if (begins("reference/"))
    return "the step of this [[reference]] again, more often: its `spread` is the rest";
  return step + ", measured, as a [[reference]]";
}

bool ExposedShare::mostly_not_links() const {
  constexpr double kWorthAWord = 1e-4;  // seconds
  return !group.empty() && seconds > kWorthAWord && seconds > kManyTimes * links_alone_seconds;
}

ExposedShare ExposedOf(const ModelledCluster& cluster, const CellConfig& cell) {
  const auto exposed_without = [&](std::initializer_list<const char*> groups) {
    CellConfig other = cell;
    for (const char* group : groups) other.inputs[group] = kLeastFactor;
    return ModelUsualStep(FirstTrial(other), cluster.Profiles(other, 0)).exposed_seconds;
  };
  ExposedShare found{exposed_without({}),
                     exposed_without({"host_overhead", "host_staging", "latency"}), ""};
  double least = found.seconds;
  for (const char* group : {"host_overhead", "host_staging", "latency"}) {
    const double left = exposed_without({group});
    if (left >= least) continue;
    least = left;
    found.group = group;
  }
  return found;
}

std::string ExposedText(const std::string& name, const ExposedShare& exposed) {
  std::vector<std::string> inputs;
  for (const InputSpec& spec : InputSpecs()) {
    if (exposed.group == spec.group) inputs.emplace_back(spec.name);
  }
  return fmt::format(
      "{:.3g} ms of {}'s communication is exposed; the links alone would leave {:.3g} ms. Most of "
      "the rest comes from {}; {} it. Measure it before you buy bandwidth",
      1e3 * exposed.seconds, name, 1e3 * exposed.links_alone_seconds, fmt::join(inputs, ", "),
      exposed.group == "host_staging" ? "exchanging fewer elements reduces"
                                      : "fewer, larger exchanges reduce");
}

std::vector<ExchangedInput> ExchangedInputs(const DeclaredCluster& of, const DeclaredCluster& over,
                                            const CellConfig& of_cell, int over_ranks_per_node) {
  const std::string_view family = workloads::FindWorkload(of_cell.workload).family();
  const auto seconds = [](const DeclaredCluster& cluster, const CellConfig& cell) {
    return ModelUsualStep(FirstTrial(cell), DeclaredProfile(cluster, cell)).seconds;
  };
  const double own = seconds(of, of_cell);
  std::vector<ExchangedInput> found;
  const auto note_seconds = [&](double exchanged, ExchangedInput input) {
    input.factor = own / exchanged;
    if (std::abs(std::log(input.factor)) > kWorthALine) found.push_back(std::move(input));
  };
  const auto note = [&](const DeclaredCluster& exchanged, ExchangedInput input) {
    note_seconds(seconds(exchanged, of_cell), std::move(input));
  };
  if (of_cell.ranks_per_node != over_ranks_per_node) {
    CellConfig cell = of_cell;
    cell.ranks_per_node = over_ranks_per_node;
    note_seconds(seconds(of, cell), {"ranks_per_node", std::to_string(of_cell.ranks_per_node),
                                     std::to_string(over_ranks_per_node), 1});
  }
  std::set<std::string> grouped;
  for (const Group& group : Groups()) {
    DeclaredCluster exchanged = of;
    group.take(exchanged, over);
    for (const std::string& input : group.inputs) TakeInput(exchanged, over, input, family);
    grouped.insert(group.inputs.begin(), group.inputs.end());
    note(exchanged, {group.what, "", "", 1});
  }
  for (const InputSpec& spec : InputSpecs()) {
    const double ours = of.Value(spec.name, family), theirs = over.Value(spec.name, family);
    if (ours == theirs || grouped.contains(spec.name)) continue;
    DeclaredCluster exchanged = of;
    TakeInput(exchanged, over, spec.name, family);
    note(exchanged, {spec.name, fmt::format("{:.4g}", ours), fmt::format("{:.4g}", theirs), 1});
  }
  std::ranges::stable_sort(found, std::ranges::greater(), [](const ExchangedInput& each) {
    return std::abs(std::log(each.factor));
  });
  return found;
}

}  // namespace sparfuse::harness
