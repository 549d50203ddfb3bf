#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/engine/timeline.hpp"
#include "core/fusion/plan.hpp"
#include "harness/records/record.hpp"
#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

std::string Wrong(const char* column, double said, std::uint64_t row, const std::string& expected) {
  return fmt::format("evaluations.npy: {} = {} in row {}: expected {}", column, said, row,
                     expected);
}

// Seconds of rank 0 until the end of each step; the first is 0.
std::vector<double> EndsOfSteps(const Trial& trial, const OpenSeries& steps) {
  std::vector<double> until = {0};
  const bool waits = TextOf(trial.config, "device") == "cuda";
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    if (steps.Value("rank", row) != 0) continue;
    const double waited = waits ? steps.Value("loader_wait_seconds", row) : 0;
    until.push_back(until.back() + steps.Value("step_seconds", row) + waited);
  }
  return until;
}

// A cell is evaluated after every so many steps, and after its last one.
std::string WhatDatesContradict(const Trial& trial, const OpenSeries& evaluations,
                                std::size_t steps) {
  const double every = NumberOf(trial.config, "evaluate_every");
  if (every < 1) return "";
  const double last = NumberOf(trial.config, "warmup_steps") + NumberOf(trial.config, "steps");
  std::uint64_t row = 0;
  for (std::size_t step = 1; step <= steps; ++step) {
    const auto at = static_cast<double>(step);
    if (std::fmod(at, every) != 0 && at != last) continue;
    if (row == evaluations.header.rows)
      return fmt::format(
          "evaluations.npy: {} rows: expected one of step {}, by config.evaluate_every = {}", row,
          step, every);
    if (const double said = evaluations.Value("step", row); said != at)
      return Wrong("step", said, row,
                   fmt::format("{}, by config.evaluate_every = {}", step, every));
    ++row;
  }
  if (row == evaluations.header.rows) return "";
  return Wrong("step", evaluations.Value("step", row), row, "no such row");
}

// Training ends at the first evaluation that reaches the target.
std::string WhatTargetContradicts(const Trial& trial, const OpenSeries& evaluations) {
  const auto target = trial.config.find("target");
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  if (target == trial.config.end() || !trial.config.contains("evaluate_every")) return "";
  const bool stated = trial.metrics.contains("steps_to_target");
  if (!target->is_number()) return stated ? "steps_to_target: stated without config.target" : "";
  if (workload == nullptr) return "";
  const double wanted = target->get<double>();
  const std::uint64_t rows = evaluations.header.rows;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const double metric = evaluations.Value("metric", row);
    const bool reached = workload->higher_is_better ? metric >= wanted : metric <= wanted;
    if (reached == (stated && row + 1 == rows)) continue;
    return Wrong(
        "metric", metric, row,
        fmt::format("{} {}, since {}",
                    workload->higher_is_better == reached ? "less than" : "more than", wanted,
                    reached ? "training goes on after it, or metrics lack steps_to_target"
                            : "metrics have steps_to_target"));
  }
  return "";
}

// The epochs and samples of each evaluation are those of the steps until then, with the same number
// of steps in every epoch. That number is of the cell's batch: data of N samples have N over the
// samples of a step, rounded down or up.
std::string WhatEpochsContradict(const Trial& trial, const OpenSeries& evaluations) {
  constexpr double kRounded = 0.51, kWhole = 1e-6;
  if (!TellsBatch(evaluations)) return "";
  const double first_step = evaluations.Value("step", 0),
               first_epoch = evaluations.Value("epoch", 0);
  const double per_epoch = first_step / first_epoch;
  double least = 0, most = std::numeric_limits<double>::infinity();  // samples of the data
  const bool has_samples = evaluations.header.Find("samples") != nullptr;
  for (std::uint64_t row = 0; row < evaluations.header.rows; ++row) {
    const double step = evaluations.Value("step", row);
    const double epoch = evaluations.Value("epoch", row);
    if (!AreEqual(epoch * first_step, first_epoch * step))
      return Wrong("epoch", epoch, row,
                   fmt::format("{}, as in row 0", first_epoch * step / first_step));
    if (!has_samples) continue;
    const double samples = evaluations.Value("samples", row);
    const double said_least = std::max(0.0, samples - kRounded) * per_epoch / step;
    const double said_most = (samples + kRounded) * per_epoch / step;
    if (said_least > most || said_most < least)
      return Wrong("samples", samples, row,
                   fmt::format("{:.0f}, as in the rows before it", least * step / per_epoch));
    least = std::max(least, said_least);
    most = std::min(most, said_most);
  }
  if (!trial.config.contains("evaluate_every")) return "";
  const double steps = std::round(per_epoch);
  if (steps < 1 || std::abs(per_epoch - steps) > kWhole * steps)
    return Wrong("epoch", first_epoch, 0, "a whole number of steps in an epoch");
  const double ranks = NumberOf(trial.config, "workers") * NumberOf(trial.config, "accumulation");
  const double of_step = ranks * NumberOf(trial.config, "batch_per_worker");
  if (!has_samples || of_step <= 0) return "";
  // A sampler that wraps fills up what the ranks share.
  const double fewest = std::floor(least / of_step), many = std::ceil((most + ranks) / of_step);
  if (steps >= fewest && steps <= many) return "";
  return fmt::format(
      "evaluations.npy: epoch = {} in row 0: {} steps of {} samples by config in an epoch of "
      "{:.0f}",
      first_epoch, steps, of_step, least);
}

// Evaluations are at the ends of steps, and their times are sums of rank 0's step times.
std::string WhatMomentsContradict(const OpenSeries& evaluations, const std::vector<double>& until) {
  const auto has = [&](const char* column) { return evaluations.header.Find(column) != nullptr; };
  double last_step = 0, evaluating = 0;
  for (std::uint64_t row = 0; row < evaluations.header.rows; ++row) {
    const auto value = [&](const char* column) { return evaluations.Value(column, row); };
    const double step = value("step");
    if (step <= last_step || step >= static_cast<double>(until.size()))
      return Wrong("step", step, row,
                   fmt::format("a step after {:g}, at most {}", last_step, until.size() - 1));
    last_step = step;
    const double seconds = until[static_cast<std::size_t>(step)];
    if (has("seconds") && !AreEqual(value("seconds"), seconds))
      return Wrong("seconds", value("seconds"), row, fmt::format("{}, of its steps", seconds));
    if (!has("seconds_with_evaluation")) continue;
    const double took = value("seconds_with_evaluation") - value("seconds");
    if (took < evaluating - 1e-9 * seconds)
      return Wrong("seconds_with_evaluation", value("seconds_with_evaluation"), row,
                   fmt::format("at least {}", value("seconds") + evaluating));
    evaluating = took;
  }
  return "";
}

}  // namespace

bool TellsBatch(const OpenSeries& evaluations) {
  return evaluations.header.rows > 0 && evaluations.Value("epoch", 0) > 0 &&
         evaluations.Value("step", 0) > 0;
}

std::string WhatEvaluationsContradict(const Trial& trial, const OpenSeries& evaluations,
                                      const OpenSeries& steps) {
  const std::vector<double> until = EndsOfSteps(trial, steps);
  std::string wrong = WhatMomentsContradict(evaluations, until);
  if (wrong.empty()) wrong = WhatDatesContradict(trial, evaluations, until.size() - 1);
  if (wrong.empty()) wrong = WhatTargetContradicts(trial, evaluations);
  return wrong.empty() ? WhatEpochsContradict(trial, evaluations) : wrong;
}

namespace {

// Sums over the ranks of a step.
struct StepOfAllRanks {
  double sent = 0, received = 0, payload = 0, messages = 0, exchanges = 0;
};

// What a cell's exchanges look like where that follows from its configuration alone.
enum class Traffic : std::uint8_t { kOther, kDenseRing, kGatheredPairs };

// The part of the table that the method names with this key; null for one of a plug-in, of which
// nothing is known.
template <class Descriptor>
const Descriptor* BuiltIn(std::span<const Descriptor> table, const json& options, const char* key) {
  const auto found = std::ranges::find(table, TextOf(options, key), &Descriptor::name);
  return found == table.end() ? nullptr : &*found;
}

const StrategyDescriptor* StrategyIn(const json& options) {
  return BuiltIn(Strategies(), options, "strategy");
}

// Whether each step exchanges its own gradients, whole: all elements, or what is selected of them.
bool SendsWholeSteps(const StrategyDescriptor& strategy) {
  return strategy.local_steps == nullptr && strategy.loses == nullptr && !strategy.delays &&
         !strategy.node_shards && !strategy.owned_parts;
}

bool SelectsInEveryStep(const json& config) {
  const json options = config.value("method_options", json()),
             feedback = config.value("feedback_options", json()),
             dense = config.value("dense_tensors", json());
  const bool some_are_dense = NumberOf(dense, "max_ndim") > 0 ||
                              (dense.is_object() && !dense.value("names", json()).empty());
  const PlannerDescriptor* const planner = BuiltIn(Planners(), options, "planner");
  return planner != nullptr && planner->keeps_density &&
         !(options.is_object() && options.value("dense_fallback", json()) == true) &&
         !some_are_dense && NumberOf(feedback, "warmup_epochs") == 0 &&
         NumberOf(options, "dense_warmup_steps") == 0;
}

Traffic TrafficOf(const json& config) {
  const json options = config.value("method_options", json());
  const StrategyDescriptor* const strategy = StrategyIn(options);
  const std::string collective = TextOf(options, "collective");
  if (TextOf(config, "transport") == "nccl" || TextOf(config, "device") == "cuda")
    return Traffic::kOther;  // a library's traffic
  if (strategy == nullptr || !SendsWholeSteps(*strategy)) return Traffic::kOther;
  if (strategy->sparsified == Sparsified::kNever)
    return collective == "ring-allreduce" ? Traffic::kDenseRing : Traffic::kOther;
  const bool pairs = TextOf(options, "payload_indices") == "u32" &&
                     TextOf(options, "payload_values") == "f32" &&
                     TextOf(options, "payload_dense") == "indexed";
  return collective == "sparse-allgather" && pairs && SelectsInEveryStep(config) &&
                 TextOf(config, "sparsifier") != "none"
             ? Traffic::kGatheredPairs
             : Traffic::kOther;
}

// Whether each step sends what a sparsifier selects by the density, of the tensors or groups of a
// plan.
bool SelectsTheDensity(const json& config) {
  const json options = config.value("method_options", json());
  const StrategyDescriptor* const strategy = StrategyIn(options);
  const std::string sparsifier = TextOf(config, "sparsifier");
  return (sparsifier == "topk" || sparsifier == "randomk") && strategy != nullptr &&
         strategy->sparsified != Sparsified::kNever && strategy->dense_units &&
         SendsWholeSteps(*strategy) && TextOf(options, "collective") == "sparse-allgather" &&
         SelectsInEveryStep(config) && NumberOf(options, "threshold_period") <= 1;
}

std::string WhatRowContradicts(const Trial& trial, const OpenSeries& steps, std::uint64_t row,
                               Traffic traffic, double elements) {
  if (traffic == Traffic::kOther) return "";
  const bool dense = traffic == Traffic::kDenseRing;
  const double selected = steps.Value("selected", row);
  if (dense && elements > 0 && selected != elements)
    return fmt::format("steps.npy: selected = {} in row {}: expected all {} elements", selected,
                       row, elements);
  const double of_element = dense ? 4 : 8;  // bytes: a value, or a value and an index
  const double payload = steps.Value("payload_bytes", row);
  if (payload == of_element * selected) return "";
  return fmt::format("steps.npy: payload_bytes = {} in row {}: expected {} of {} elements by {}",
                     payload, row, of_element * selected, selected,
                     TextOf(trial.config.at("method_options"), "collective"));
}

// What the ranks have to send together for this payload, to the byte: a payload goes to all other
// ranks, or around the ring twice but for its own part. Every part of an exchange is a message,
// unless it is empty.
std::string WhatTrafficContradicts(const Trial& trial,
                                   const std::map<double, StepOfAllRanks>& steps, Traffic traffic) {
  const double workers = NumberOf(trial.config, "workers");
  if (traffic == Traffic::kOther || workers < 2) return "";
  const bool dense = traffic == Traffic::kDenseRing;
  const double share = dense ? 2 * (workers - 1) / workers : workers - 1;  // of the payload
  const double hops = dense ? 2 * (workers - 1) : workers - 1;  // messages of a rank in an exchange
  // Parts of fewer elements than ranks, and selections by a threshold, may be empty. A modelled
  // trial lists no tensors.
  const bool none_is_empty =
      dense ? !trial.layout.empty() &&
                  std::ranges::all_of(trial.layout,
                                      [&](const LayoutTensor& tensor) {
                                        return static_cast<double>(tensor.numel) >= workers;
                                      })
            : SelectsTheDensity(trial.config);
  for (const auto& [step, sums] : steps) {
    if (const double bytes = share * sums.payload; std::abs(sums.sent - bytes) > 0.5)
      return fmt::format(
          "steps.npy: sent_bytes of step {:g} are {} together: expected {} of the payload", step,
          sums.sent, bytes);
    const double messages = hops * sums.exchanges;
    if (sums.messages > messages || (none_is_empty && sums.messages != messages))
      return fmt::format(
          "steps.npy: messages_sent of step {:g} are {} together: expected {} of {} exchanges",
          step, sums.messages, messages, sums.exchanges);
  }
  return "";
}

// Messages beside the steps arrive in a later one.
bool SendsBesideSteps(const json& config) {
  const StrategyDescriptor* const strategy = StrategyIn(config.value("method_options", json()));
  return WindowSteps(config) > 1 || (strategy != nullptr && strategy->delays);
}

std::map<double, StepOfAllRanks> SumsByStep(const OpenSeries& steps) {
  std::map<double, StepOfAllRanks> sums;
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    StepOfAllRanks& step = sums[steps.Value("step", row)];
    step.sent += steps.Value("sent_bytes", row);
    step.received += steps.Value("received_bytes", row);
    step.payload += steps.Value("payload_bytes", row);
    step.messages += steps.Value("messages_sent", row);
    step.exchanges += steps.Value("exchanges", row);
  }
  return sums;
}

// Whether all that a window exchanges follows from the configuration: dense local steps around our
// ring.
bool DecidesWindows(const json& config) {
  const json options = config.value("method_options", json()),
             given = MemberIn(options, "strategy_options");
  const StrategyDescriptor* const strategy = StrategyIn(options);
  return strategy != nullptr && strategy->local_steps != nullptr &&
         strategy->sparsified == Sparsified::kNever &&
         TextOf(options, "collective") == "ring-allreduce" && TextOf(given, "trigger") != "idle" &&
         TextOf(config, "transport") != "nccl" && TextOf(config, "device") != "cuda" &&
         TextOf(config, "mode") != "modelled";  // which lists no tensors
}

// Sums over a rank's steps of a window.
struct WindowOfRank {
  double steps = 0, selected = 0, payload = 0, sent = 0;
};

// Such steps exchange every element once in a window, wherever its dates are, and with inner_state
// = "average" what the recipe's optimizer keeps of it. The first window may have fewer exchanges,
// if fragments come late.
std::string WhatWindowsContradict(const Trial& trial, const OpenSeries& steps, double elements) {
  const json options = trial.config.value("method_options", json()),
             recipe = trial.config.value("recipe", json()),
             strategy = MemberIn(options, "strategy_options");
  if (!DecidesWindows(trial.config) || elements == 0) return "";
  const double arrays = TextOf(strategy, "inner_state") != "average"
                            ? 0
                            : static_cast<double>(workloads::MomentsUsed(
                                  TextOf(recipe, "optimizer"), NumberOf(recipe, "momentum")));
  const auto every = static_cast<double>(WindowSteps(trial.config));
  std::map<std::pair<double, double>, WindowOfRank> windows;  // by window and rank
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    WindowOfRank& window =
        windows[{std::floor(steps.Value("step", row) / every), steps.Value("rank", row)}];
    ++window.steps;
    window.selected += steps.Value("selected", row);
    window.payload += steps.Value("payload_bytes", row);
    window.sent += steps.Value("sent_bytes", row);
  }
  const double workers = NumberOf(trial.config, "workers");
  std::map<double, double> sent;  // by window
  for (const auto& [place, window] : windows) {
    if (place.first == 0 || window.steps != every) continue;
    if (window.selected != elements)
      return fmt::format(
          "steps.npy: selected = {} in window {:g} of rank {:g}: expected all {} elements",
          window.selected, place.first, place.second, elements);
    const double payload = 4 * elements * (1 + arrays);
    if (window.payload != payload)
      return fmt::format(
          "steps.npy: payload_bytes = {} in window {:g} of rank {:g}: expected {} of {} elements "
          "and {:g} arrays of their inner state",
          window.payload, place.first, place.second, payload, elements, arrays);
    sent[place.first] += window.sent;
  }
  const double all = 2 * (workers - 1) * 4 * elements * (1 + arrays);
  for (const auto& [window, bytes] : sent) {
    if (std::abs(bytes - all) <= 0.5) continue;
    return fmt::format("steps.npy: sent_bytes of window {:g} are {} together: expected {}", window,
                       bytes, all);
  }
  return "";
}

struct TracedExchanges {
  double bytes = 0, exchanges = 0, forwards = 0;
};

// A collective that selects knows its payload only at its end, and its spans lack it.
bool SpansHavePayload(const json& config) {
  const json options = config.value("method_options", json());
  try {
    const CollectiveDescriptor& collective = FindCollective(TextOf(options, "collective"));
    const json given = options.value("collective_options", json());
    const Options resolved =
        ResolveOptions(collective.name, collective.options,
                       given.is_object() ? OptionsFromJson(collective.name, given) : Options());
    return !collective.TraitsOf(resolved).selects;
  } catch (const Error&) {
    return false;
  }
}

std::string WhatTracesContradict(const Trial& trial, const OpenSeries& spans,
                                 const OpenSeries& steps) {
  std::map<std::pair<double, double>, TracedExchanges> traced;  // by step and rank
  for (std::uint64_t row = 0; row < spans.header.rows; ++row) {
    TracedExchanges& of = traced[{spans.Value("step", row), spans.Value("rank", row)}];
    const std::string kind = spans.Text("kind", row);
    of.forwards += kind == SpanKindName(SpanKind::kForward);
    if (kind != SpanKindName(SpanKind::kExchange)) continue;
    of.bytes += spans.Value("bytes", row);
    ++of.exchanges;
  }
  const bool have_payload = SpansHavePayload(trial.config);
  const double micro_steps = NumberOf(trial.config, "accumulation");
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const auto found = traced.find({steps.Value("step", row), steps.Value("rank", row)});
    if (found == traced.end()) continue;
    const TracedExchanges& of = found->second;
    const auto differs = [&](const char* column, double given) {
      return fmt::format("steps.npy: {} = {} in row {}: spans.npy gives {}", column,
                         steps.Value(column, row), row, given);
    };
    if (have_payload && steps.Value("payload_bytes", row) != of.bytes)
      return differs("payload_bytes", of.bytes);
    if (steps.Value("exchanges", row) != of.exchanges) return differs("exchanges", of.exchanges);
    if (IsLive(trial) && micro_steps > 0 && of.forwards != micro_steps)
      return fmt::format(
          "spans.npy: {} forward passes in step {:g} of rank {:g}: expected the {:g} of "
          "config.accumulation",
          of.forwards, found->first.first, found->first.second, micro_steps);
  }
  return "";
}

// The least and the most that such a selection takes: the number of a group is rounded, and at
// least one. A coding of indices may change it up to twofold.
std::string WhatSelectionContradicts(const Trial& trial, const OpenSeries& steps, Traffic traffic) {
  if (!SelectsTheDensity(trial.config)) return "";
  const double density = NumberOf(trial.config, "density");
  double least = 0, most = 0;
  for (const LayoutTensor& tensor : trial.layout) {
    const double kept = density * static_cast<double>(tensor.numel);
    least += std::floor(kept);
    most += std::max(1.0, std::ceil(kept));
  }
  if (traffic != Traffic::kGatheredPairs) {
    least /= 2;
    most *= 2;
  }
  for (std::uint64_t row = 0; row < steps.header.rows && most > 0; ++row) {
    const double selected = steps.Value("selected", row);
    if (selected >= least && selected <= most) continue;
    return fmt::format(
        "steps.npy: selected = {} in row {}: expected {} to {} elements by config.density = {}",
        selected, row, least, most, density);
  }
  return "";
}

}  // namespace

std::vector<std::string> WhatOnlyStepsTell(const Trial& trial) {
  if (!trial.config.contains("method_options")) return {};
  std::vector<std::string> told;
  const Traffic traffic = TrafficOf(trial.config);
  if (traffic == Traffic::kOther)
    told = {"messages_sent", "payload_bytes", "received_bytes", "sent_bytes", "summed"};
  // Of throughput trials, all measured steps are in whole windows behind the first.
  if (DecidesWindows(trial.config) && TextOf(trial.config, "kind") == "throughput")
    return {"messages_sent", "received_bytes", "summed"};
  if (traffic == Traffic::kDenseRing) return told;
  if (!SelectsTheDensity(trial.config)) {
    told.emplace_back("selected");
    told.emplace_back("config.density");
  }
  return told;
}

std::string WhatBytesContradict(const Trial& trial, const OpenSeries& steps,
                                const OpenSeries* spans) {
  if (!trial.config.contains("method_options") || steps.header.Find("sent_bytes") == nullptr)
    return "";
  const Traffic traffic = TrafficOf(trial.config);
  double elements = 0;
  for (const LayoutTensor& tensor : trial.layout) elements += static_cast<double>(tensor.numel);
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    std::string wrong = WhatRowContradicts(trial, steps, row, traffic, elements);
    if (!wrong.empty()) return wrong;
  }
  const std::map<double, StepOfAllRanks> sums = SumsByStep(steps);
  if (!SendsBesideSteps(trial.config)) {
    for (const auto& [step, of_step] : sums) {
      if (of_step.sent == of_step.received) continue;
      return fmt::format(
          "steps.npy: received_bytes of step {:g} are {} together: expected the {} of sent_bytes",
          step, of_step.received, of_step.sent);
    }
  }
  std::string wrong = WhatTrafficContradicts(trial, sums, traffic);
  if (wrong.empty()) wrong = WhatWindowsContradict(trial, steps, elements);
  if (wrong.empty()) wrong = WhatSelectionContradicts(trial, steps, traffic);
  if (wrong.empty() && spans != nullptr) wrong = WhatTracesContradict(trial, *spans, steps);
  return wrong;
}

namespace {

constexpr double kRounding = 1e-6;  // of the step: a card's clock shifts spans

// The part of a step that a compute-lane span belongs to; kPartsOfAStep.size() if to none.
std::size_t PartOf(std::string_view kind) {
  static const std::map<std::string_view, std::size_t> kParts = {
      {SpanKindName(SpanKind::kForward), 0}, {SpanKindName(SpanKind::kBackward), 1},
      {SpanKindName(SpanKind::kPack), 2},    {SpanKindName(SpanKind::kSparsify), 2},
      {SpanKindName(SpanKind::kExposed), 3}, {SpanKindName(SpanKind::kDecompress), 4},
      {SpanKindName(SpanKind::kUpdate), 5},  {SpanKindName(SpanKind::kOuter), 6},
  };
  const auto found = kParts.find(kind);
  return found == kParts.end() ? kPartsOfAStep.size() : found->second;
}

bool HasParts(const OpenSeries& steps) {
  for (const char* part : kPartsOfAStep) {
    for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
      if (steps.Value(part, row) != 0) return true;
    }
  }
  return false;
}

using StepOfRank = std::pair<double, double>;
using Parts = std::array<double, kPartsOfAStep.size()>;

}  // namespace

std::string WhatSpansContradict(const OpenSeries& spans, const OpenSeries& steps) {
  for (const char* needed : {"step", "rank", "kind", "lane", "begin_seconds", "end_seconds"}) {
    if (spans.header.Find(needed) == nullptr)
      return fmt::format("spans.npy: expected a column {}", needed);
  }
  for (const char* text : {"kind", "lane"}) {
    if (!spans.header.Find(text)->type.starts_with("<U"))
      return fmt::format("spans.npy: column {}: expected texts", text);
  }
  if (!HasParts(steps)) return "";
  std::map<StepOfRank, Parts> traced;
  for (std::uint64_t row = 0; row < spans.header.rows; ++row) {
    Parts& parts = traced[{*spans.Number("step", row), *spans.Number("rank", row)}];
    if (spans.Text("lane", row) != LaneName(Lane::kCompute)) continue;
    const std::size_t part = PartOf(spans.Text("kind", row));
    if (part < parts.size())
      parts[part] += *spans.Number("end_seconds", row) - *spans.Number("begin_seconds", row);
  }
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const auto found = traced.find({*steps.Number("step", row), *steps.Number("rank", row)});
    if (found == traced.end()) continue;
    const double step_seconds = *steps.Number("step_seconds", row);
    for (std::size_t part = 0; part < kPartsOfAStep.size(); ++part) {
      const double said = steps.Value(kPartsOfAStep[part], row);
      if (std::abs(said - found->second[part]) <= kRounding * step_seconds) continue;
      return fmt::format("steps.npy: {} = {} in row {}: spans.npy gives {}", kPartsOfAStep[part],
                         said, row, found->second[part]);
    }
    traced.erase(found);
  }
  if (traced.empty()) return "";
  return fmt::format("spans.npy: step {:g} of rank {:g}: steps.npy has no such step",
                     traced.begin()->first.first, traced.begin()->first.second);
}

}  // namespace sparfuse::harness
