#include "harness/clusters/declared_cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/base/random_stream.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/clusters/profile_file.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

ProfileCurve ScaledCurve(ProfileCurve curve, double factor) {
  for (ProfilePoint& point : curve) point.seconds *= factor;
  return curve;
}

// The first point's time scales with kernels, and the time above it with memory.
ProfileCurve StreamedCurve(ProfileCurve curve, const CardFactors& factors) {
  if (curve.empty()) return curve;
  const double first = curve.front().seconds;
  for (ProfilePoint& point : curve) {
    point.seconds =
        point.seconds * (1 / factors.memory) + first * (factors.kernel - 1 / factors.memory);
  }
  return curve;
}

std::optional<double> Times(const std::optional<double>& seconds, double factor) {
  return seconds ? std::optional(*seconds * factor) : std::nullopt;
}

constexpr Range kPositive{1e-9, 1e9};
constexpr Range kTimes{0, 1e9};
constexpr Range kShares{1e-4, 1};
constexpr Range kSlowdowns{1, 100};
constexpr Range kInStep{1e-4, 100};
constexpr Range kCards{1, 64};
constexpr Range kRanks{1, 65'536};
constexpr Range kBytesAnEntry{1, 64};
constexpr Range kGrowths{0, 2};
constexpr Range kFractions{0, 1};
constexpr std::nullopt_t kNeeded = std::nullopt;  // no default: the file must have it

bool StandsFor(const std::vector<std::string>& families, std::string_view family) {
  return std::ranges::find(families, family) != families.end();
}

// Half of all draws are below the value, half above, uniform in its logarithm on either side.
double Draw(double value, double low, double high, const std::string& name, int draw) {
  if (draw == 0 || value <= 0) return value;
  const double u = static_cast<double>(
                       RandomStream(FnvOf(name), static_cast<std::uint64_t>(draw), 0).At(0) >> 11) *
                   0x1p-53;
  const double end = u < 0.5 ? low : high;
  const double way = u < 0.5 ? 1 - 2 * u : 2 * u - 1;
  constexpr double kLeast = 1e-12;
  return value * std::pow(std::max(end, kLeast * value) / value, way);
}

// Chooses an input's value from its name, its declared value, and its low and high end.
using Choice = std::function<double(const std::string&, double, double, double)>;

std::string NameOfInput(const ComputeTime& time) { return "compute/" + time.workload; }
bool IsCalibrated(const DeclaredCluster& cluster) {
  return std::ranges::any_of(cluster.inputs, &DeclaredInput::calibrated);
}

DeclaredCluster ChosenFrom(const DeclaredCluster& declared, const Choice& choose) {
  DeclaredCluster chosen = declared;
  for (DeclaredInput& input : chosen.inputs)
    input.value = choose(input.name, input.value, input.low, input.high);
  for (ComputeTime& time : chosen.compute) {
    const double factor = choose(NameOfInput(time), 1, 1 / time.spread, time.spread);
    time.forward_seconds *= factor;
    time.backward_seconds *= factor;
  }
  for (Coder& coder : chosen.coders) {
    const double factor = choose(NameOfInput(coder), 1, 1 / coder.spread, coder.spread);
    for (double* each :
         {&coder.encode_seconds, &coder.encode_seconds_per_element, &coder.host_encode_seconds,
          &coder.host_encode_seconds_per_element, &coder.decode_seconds,
          &coder.decode_seconds_per_rank, &coder.decode_seconds_per_element,
          &coder.decode_seconds_per_element_and_rank, &coder.decode_seconds_per_entry}) {
      *each *= factor;
    }
    for (ProfileCurve* curve : {&coder.encode_curve, &coder.host_encode_curve}) {
      for (ProfilePoint& point : *curve) point.seconds *= factor;
    }
  }
  if (IsCalibrated(chosen)) {
    for (ReferenceStep& step : chosen.references)
      step.measured *= choose(NameOfInput(step), 1, 1 / step.spread, step.spread);
  }
  return chosen;
}

// The slopes of a cluster that LoadDeclaredCluster returned.
const CalibrationSlopes& SlopesOfLoaded(const DeclaredCluster& declared) {
  static std::map<const DeclaredCluster*, CalibrationSlopes> known;
  const auto found = known.find(&declared);
  return found != known.end() ? found->second
                              : known.emplace(&declared, SlopesOf(declared)).first->second;
}

// Repeats the calibration of a cluster chosen from `declared`. It runs on the cluster's own steps.
// If the calibration comes from another cluster, its values change by the same factors as there,
// from `before` to `after`.
void CalibrateAgain(DeclaredCluster& chosen, const DeclaredCluster& declared,
                    const DeclaredCluster* before, const DeclaredCluster* after) {
  if (before == nullptr) {
    if (IsCalibrated(chosen)) RecalibrateOnSteps(chosen, SlopesOfLoaded(declared));
    return;
  }
  for (DeclaredInput& input : chosen.inputs) {
    if (input.kind != "calibrated") continue;
    const std::string family = input.families.empty() ? "" : input.families.front();
    input.value *= after->Value(input.name, family) / before->Value(input.name, family);
  }
}

}  // namespace

const ProfileOutcome* MeasuredCard::Of(const CellConfig& config) const {
  for (const ProfileOutcome& outcome : outcomes) {
    if (IsOfSubject(outcome, config)) return &outcome;
  }
  return nullptr;
}

std::string MeasuredCard::MeasureCommand(const CellConfig& config) const {
  CellConfig alone = config;
  alone.link = std::nullopt;
  return harness::MeasureCommand(MeasuredLike(outcomes, alone), name) + " --ranks 1";
}

MeasuredCard ReadCard(const ProfileFolders& profiles, const std::string& name) {
  if (!profiles.Has(name + ".json")) {
    SPARFUSE_THROW(kConfig, fmt::format("no measured profile {}.json in {}; `sparfuse profile "
                                        "WORKLOAD --ranks 1 --name {}` on such a card makes it",
                                        name, profiles.Text(), name));
  }
  const auto file = profiles.File(name + ".json");
  MeasuredCard card;
  card.name = name;
  for (ProfileOutcome& outcome : ReadProfiles(file)) {
    if (outcome.config.workers == 1) card.outcomes.push_back(std::move(outcome));
  }
  if (card.outcomes.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} has no outcome of one rank alone; `sparfuse profile "
                                        "WORKLOAD --ranks 1 --name {}` measures it",
                                        file.string(), name));
  }
  card.kind = KindOfAll(card.outcomes);
  json system = card.outcomes.front().system;
  if (system.is_null()) system = json::object();
  if (system.contains("nodes")) system = json(system["nodes"].front());
  const json cards = system.value("gpus", json::array());
  card.hardware = cards.empty() ? system.value("cpu_model", "unknown hardware")
                                : cards.front().get<std::string>();
  return card;
}

BackwardTimes BackwardOfCard(const ProfileOutcome& outcome, const CardFactors& factors) {
  if (!outcome.profile.backward) SPARFUSE_THROW(kData, "the profile has no backward");
  BackwardTimes backward = *outcome.profile.backward;
  for (double* seconds :
       {&backward.begin_seconds, &backward.forward_seconds, &backward.tail_seconds})
    *seconds *= factors.compute;
  for (ProfiledTensor& tensor : backward.tensors) tensor.seconds *= factors.compute;
  backward.update_seconds *= 1 / factors.memory;
  return backward;
}

void PutKernelsOfCard(const ProfileOutcome& outcome, const CardFactors& factors, Profile& profile) {
  const Profile& measured = outcome.profile;
  profile.pack = StreamedCurve(measured.pack, factors);
  profile.scale = StreamedCurve(measured.scale, factors);
  profile.clear = StreamedCurve(measured.clear, factors);
  profile.seconds_per_entry = Times(measured.seconds_per_entry, 1 / factors.memory);
  profile.seconds_per_reduced_element =
      Times(measured.seconds_per_reduced_element, 1 / factors.memory);
  for (const auto& [work, seconds] : measured.collective_work)
    profile.collective_work[work] = seconds * (1 / factors.memory);
  profile.dispatch_seconds = measured.dispatch_seconds;
  const auto forget_decoding = [&](const std::string& coder) {
    if (profile.decode) profile.decode->erase(coder);
  };
  for (const auto& [sparsifier, curves] : measured.selection.value_or(Selections())) {
    auto& selection = (*profile.selection)[sparsifier] = curves;
    for (SelectionCurve& curve : selection)
      curve.seconds = ScaledCurve(std::move(curve.seconds), factors.sparsify);
    forget_decoding(sparsifier);
  }
  if (!measured.encode) return;
  for (const auto& [quantizer, curve] : *measured.encode) {
    (*profile.encode)[quantizer] = ScaledCurve(curve, factors.sparsify);
    forget_decoding(quantizer);
  }
}

std::vector<CalibrationBar> BarsOf(const ReferenceStep& step) {
  std::vector<CalibrationBar> bars;
  if (step.bar) bars.push_back(*step.bar);
  if (step.over && step.over->bar) bars.push_back(*step.over->bar);
  return bars;
}

const DeclaredInput* DeclaredCluster::Find(std::string_view input, std::string_view family) const {
  const auto found = std::ranges::find_if(inputs, [&](const DeclaredInput& each) {
    return each.name == input &&
           (each.families.empty() || family.empty() || StandsFor(each.families, family));
  });
  return found == inputs.end() ? nullptr : &*found;
}

DeclaredInput* DeclaredCluster::Find(std::string_view input, std::string_view family) {
  return const_cast<DeclaredInput*>(std::as_const(*this).Find(input, family));
}

double DeclaredCluster::Value(std::string_view input, std::string_view family) const {
  if (const DeclaredInput* there = Find(input, family)) return there->value;
  for (const InputSpec& spec : InputSpecs()) {
    if (spec.name == input && spec.otherwise) return *spec.otherwise;
  }
  SPARFUSE_THROW(kInternal, "cluster " + name + " has no input " + std::string(input));
}

double DeclaredCluster::BroadcastBytes(const CellConfig& config) const {
  if (buffers == BuffersBy::kLocal || config.workers == 1) return 0;
  return static_cast<double>(
      config.broadcast_bytes.value_or(workloads::BroadcastBytesOf(config.workload)));
}

const ComputeTime* DeclaredCluster::ComputeOf(const std::string& workload) const {
  for (const ComputeTime& time : compute) {
    if (time.workload == workload) return &time;
  }
  const std::string_view family = workloads::FindWorkload(workload).family();
  for (const ComputeTime& time : compute) {
    const bool scales = workloads::LayersOf(time.workload).macs() > 0;
    if (scales && StandsFor(time.families, family)) return &time;
  }
  return nullptr;
}

void DeclaredCluster::CheckWorkload(const std::string& workload) const {
  const std::string_view family = workloads::FindWorkload(workload).family();
  if (ComputeOf(workload) != nullptr || Value("compute_tflops", family) > 0 ||
      MeasuredTimesOf(workload) != nullptr) {
    return;
  }
  std::set<std::string> known;
  for (const ComputeTime& time : compute) known.insert(time.families.begin(), time.families.end());
  SPARFUSE_THROW(
      kConfig,
      fmt::format("cluster \"{}\": no input gives the computing time of workload {} of family {}; "
                  "the times in its file are for {}: expected a [[compute]] for it, or an input "
                  "compute_tflops{}",
                  name, workload, family,
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                  workloads::IsTable(workload)
                      ? "; or the key \"family\" of its file, naming one of them, or its own "
                        "forward_us and backward_us"
                      : ""));
}

void DeclaredCluster::CheckSparsifier(const std::string& sparsifier) const {
  if (sparsifier == "none" || selection_costs.contains(sparsifier) ||
      std::ranges::any_of(
          coders, [&](const Coder& each) { return each.encodes && each.name == sparsifier; })) {
    return;
  }
  SPARFUSE_THROW(kConfig,
                 fmt::format("sparsifier = \"{}\" on cluster {}: the time of its selection "
                             "is unknown; expected it in [selection_costs], or as encode_* "
                             "of a [[coder]]",
                             sparsifier, name));
}

const ProfileOutcome* DeclaredCluster::MeasuredOf(const CellConfig& config) const {
  if (!card) return nullptr;
  if (const ProfileOutcome* found = card->Of(config)) return found;
  if (ComputeOf(config.workload) != nullptr || MeasuredTimesOf(config.workload) != nullptr)
    return nullptr;
  SPARFUSE_THROW(kConfig,
                 fmt::format("cluster \"{}\": its card {} was not measured with {}, and "
                             "the file has no [[compute]] of it; `{}` on such a card "
                             "measures it",
                             name, card->name, SubjectName(config), card->MeasureCommand(config)));
}

void DeclaredCluster::CheckWorkload(const CellConfig& config) const {
  if (MeasuredOf(config) == nullptr) CheckWorkload(config.workload);
}

void DeclaredCluster::CheckSparsifier(const CellConfig& config) const {
  const ProfileOutcome* measured = MeasuredOf(config);
  if (measured != nullptr && measured->profile.selection &&
      measured->profile.selection->contains(config.sparsifier))
    return;
  try {
    CheckSparsifier(config.sparsifier);
  } catch (const Error& error) {
    if (measured == nullptr) throw;
    SPARFUSE_THROW(kConfig, fmt::format("{}, nor was its card {} measured with it: `{} --fresh` "
                                        "on such a card measures it",
                                        error.what(), card->name, card->MeasureCommand(config)));
  }
}

const workloads::MeasuredTimes* MeasuredTimesOf(const std::string& workload) {
  const auto& table = workloads::FindWorkload(workload).table;
  const bool all = table && table->times && table->times->forward_us &&
                   !table->times->backward_us.empty() && table->times->batch > 0;
  return all ? &*table->times : nullptr;
}

bool IsDeclared(const ProfileFolders& profiles, const std::string& cluster) {
  return profiles.Has(ClusterName::Of(cluster).file + ".toml");
}

std::span<const InputSpec> InputSpecs() {
  static const std::array<InputSpec, 34> kSpecs = {{
      {"inter_node_gbps", "bandwidth", kPositive, kNeeded, "rate of one network card, each way"},
      {"network_cards", "bandwidth", kCards, 1, "cards of a node, which its ranks share"},
      {"inter_node_efficiency", "bandwidth", kShares, 1,
       "share of inter_node_gbps that protocol and staging leave", true},
      {"shaper_efficiency", "bandwidth", kShares, 1,
       "share of a `link`'s rate that arrives if a shaper makes it slower than the card; not "
       "stated: "
       "as inter_node_efficiency"},
      {"host_path_gbps", "bandwidth", kPositive, 1e9,
       "rate of a node's path to its network cards, a bound in addition to their own rate"},
      {"inter_node_us", "latency", kTimes, kNeeded, "start-up of a hop between nodes"},
      {"intra_node_gbps", "bandwidth", kPositive, kNeeded,
       "rate between two devices of a node, each way"},
      {"intra_node_efficiency", "bandwidth", kShares, 1, "share of intra_node_gbps that is left",
       true},
      {"intra_node_us", "latency", kTimes, kNeeded, "start-up of a hop within a node"},
      {"message_us", "latency", kTimes, 0,
       "cost of each message beyond the first that a rank sends at once", true},
      {"memory_gbytes_per_s", "memory", kPositive, kNeeded, "rate of the device's memory"},
      {"kernel_us", "kernel", kTimes, kNeeded,
       "least time of a kernel on the device, however small"},
      {"compute_tflops", "compute", kPositive, 0,
       "rate of forward and backward, two operations a multiply-accumulate, without [[compute]] or "
       "[[reference]]"},
      {"compute_ratio", "compute", kPositive, 1,
       "seconds of forward and backward here for one on the reference_cluster"},
      {"host_link_gbytes_per_s", "host", kPositive, kNeeded, "rate from the device to its host"},
      {"host_memory_gbytes_per_s", "host", kPositive, kNeeded, "rate of the host's memory"},
      {"host_selection_ns_an_element", "sparsify", kTimes, 0,
       "selection or encoding by the host's processors, unless a [[coder]] states it; at least the "
       "time to read its memory"},
      {"exchange_host_us", "host_overhead", kTimes, kNeeded,
       "preparation of an exchange by the host, one after another, in parallel with the network or "
       "in line (`host`)",
       true},
      {"exchange_host_us_a_rank", "host_overhead", kTimes, 0, "the same for each rank", true},
      {"exchange_host_ns_an_element", "host_staging", kTimes, 0,
       "the host's moving of an exchange's elements, in line with the network", true},
      {"sum_host_ns_an_entry", "host_staging", kTimes, 0,
       "the host's work on an entry that a rank gives to a collective that is published to sum on "
       "the host",
       true},
      {"exchange_growth", "host_overhead", kGrowths, 0,
       "power of ranks with which the host's time for an exchange grows", true},
      {"exchange_growth_from", "host_overhead", kRanks, 8,
       "ranks at which the exchange_host_* inputs hold", true},
      {"entry_bytes", "bandwidth", kBytesAnEntry, 8,
       "bytes that travel for an element with its index, if payloads are gathered uncoded", true},
      {"hook_host_us_a_tensor", "host_overhead", kTimes, 0,
       "the host's hook on a gradient, which lengthens backward of several ranks; 0 if it hides "
       "behind the device",
       true},
      {"update_host_us_a_tensor", "host_overhead", kTimes, 0,
       "the optimizer's host time, which one card hides and a distributed step exposes", true},
      {"selection_us", "sparsify", kTimes, 0, "least time of a selection of cost 1, however small"},
      {"selection_ns_an_element", "sparsify", kTimes, 0,
       "time of an element in a selection of cost 1"},
      {"coding_in_step", "sparsify", kInStep, 1,
       "time of selections and encodings within a step over their time alone"},
      {"side_slowdown", "side", kSlowdowns, 1, "slowdown of a selection beside backward"},
      {"overlap", "overlap", kFractions, 1,
       "share of an exchange that runs while its ranks compute; 0: none of it before backward ends",
       true},
      {"payload_overlap", "overlap", kFractions, 1,
       "the same for an exchange that carries payloads; not stated: as overlap", true},
      {"fused_overlap", "overlap", kFractions, 1,
       "the same for a payload selected from several tensors at once; not stated: as "
       "payload_overlap",
       true},
      {"compute_slowdown", "side", kSlowdowns, 1,
       "slowdown of the device's computation while an exchange is under way", true},
  }};
  return kSpecs;
}

std::span<const InputKind> InputKinds() {
  static constexpr std::array<InputKind, 6> kKinds = {{{"measured", 1.05},
                                                       {kTraceKind, 1.05},
                                                       {"imported", 1.05},
                                                       {"published text", 1.1},
                                                       {"data sheet", 1.25},
                                                       {"declared", 2}}};
  return kKinds;
}

const std::vector<std::string>& InputGroups() {
  static const std::vector<std::string> kGroups = [] {
    std::vector<std::string> groups;
    for (const InputSpec& spec : InputSpecs()) {
      if (std::ranges::find(groups, spec.group) == groups.end()) groups.emplace_back(spec.group);
    }
    return groups;
  }();
  return kGroups;
}

std::string NameOfInput(const Coder& coder) {
  const char* direction = coder.encodes ? "" : coder.encodes_on_host ? "/host_encode" : "/decode";
  return fmt::format("coder/{}{}", coder.name, direction);
}

std::string NameOfInput(const ReferenceStep& step) {
  return fmt::format("reference/{}/{}/{}/{}", step.workload, step.method, step.workers,
                     step.over ? "ratio" : kStepPartNames[static_cast<std::size_t>(step.part)]);
}

const DeclaredCluster& DrawnCluster(const ProfileFolders& profiles, const std::string& cluster,
                                    int draw) {
  // Results are kept: calibration simulates, and an experiment calls this for each cell.
  using Key = std::tuple<std::filesystem::path, std::vector<std::string>, int>;
  static std::map<Key, DeclaredCluster> loaded;
  const ClusterName name = ClusterName::Of(cluster);
  const std::filesystem::path file = std::filesystem::absolute(profiles.File(name.file + ".toml"));
  const Key key{file, name.left_out, draw};
  const auto found = loaded.find(key);
  if (found != loaded.end()) return found->second;
  DeclaredCluster read;
  if (draw == 0) {
    read = ParseDeclaredCluster(TomlFile::Read(file), profiles, name.left_out);
  } else {
    const DeclaredCluster& declared = DrawnCluster(profiles, cluster, 0);
    read = ChosenFrom(declared, [&](const std::string& input, double value, double low,
                                    double high) { return Draw(value, low, high, input, draw); });
    if (read.card) {
      read.card->outcomes =
          PerturbedOutcomes(declared.card->outcomes, static_cast<std::uint64_t>(draw));
    }
    const std::string& other = declared.calibrated_on;
    CalibrateAgain(read, declared, other.empty() ? nullptr : &DrawnCluster(profiles, other, 0),
                   other.empty() ? nullptr : &DrawnCluster(profiles, other, draw));
  }
  return loaded.emplace(key, std::move(read)).first->second;
}

std::vector<std::string> OpenInputs(const ProfileFolders& profiles, const std::string& cluster) {
  std::vector<std::string> names;
  for (const std::string& each : {cluster, LoadDeclaredCluster(profiles, cluster).calibrated_on}) {
    if (each.empty()) continue;
    ChosenFrom(LoadDeclaredCluster(profiles, each),
               [&](const std::string& name, double value, double low, double high) {
                 const bool known = std::ranges::find(names, name) != names.end();
                 if (low < high && value > 0 && !known) names.push_back(name);
                 return value;
               });
  }
  return names;
}

DeclaredCluster ClusterAtEnd(const ProfileFolders& profiles, const std::string& cluster,
                             const std::string& input, RangeEnd end) {
  const DeclaredCluster& declared = LoadDeclaredCluster(profiles, cluster);
  const auto choose = [&](const std::string& name, double value, double low, double high) {
    return name != input ? value : end == RangeEnd::kLow ? low : high;
  };
  DeclaredCluster moved = ChosenFrom(declared, choose);
  if (declared.calibrated_on.empty()) {
    CalibrateAgain(moved, declared, nullptr, nullptr);
  } else {
    const DeclaredCluster after = ClusterAtEnd(profiles, declared.calibrated_on, input, end);
    CalibrateAgain(moved, declared, &LoadDeclaredCluster(profiles, declared.calibrated_on), &after);
  }
  return moved;
}

const DeclaredCluster& LoadDeclaredCluster(const ProfileFolders& profiles,
                                           const std::string& cluster) {
  return DrawnCluster(profiles, cluster, 0);
}

}  // namespace sparfuse::harness
