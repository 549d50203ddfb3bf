#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/engine/timeline.hpp"
#include "harness/records/record.hpp"
#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/stated.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

double CountIn(const OpenSeries& series, const char* column, std::uint64_t row) {
  return series.Number(column, row).value_or(0);
}

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
  const double selected = CountIn(steps, "selected", row);
  if (dense && elements > 0 && selected != elements)
    return fmt::format("steps.npy: selected = {} in row {}: expected all {} elements", selected,
                       row, elements);
  const double of_element = dense ? 4 : 8;  // bytes: a value, or a value and an index
  const double payload = CountIn(steps, "payload_bytes", row);
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
          "steps.npy: sent_bytes of step {:g} are {} together: expected {} of the "
          "payload",
          step, sums.sent, bytes);
    const double messages = hops * sums.exchanges;
    if (sums.messages > messages || (none_is_empty && sums.messages != messages))
      return fmt::format(
          "steps.npy: messages_sent of step {:g} are {} together: expected {} of {} "
          "exchanges",
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
    StepOfAllRanks& step = sums[CountIn(steps, "step", row)];
    step.sent += CountIn(steps, "sent_bytes", row);
    step.received += CountIn(steps, "received_bytes", row);
    step.payload += CountIn(steps, "payload_bytes", row);
    step.messages += CountIn(steps, "messages_sent", row);
    step.exchanges += CountIn(steps, "exchanges", row);
  }
  return sums;
}

// Whether all that a window exchanges follows from the configuration: dense local steps around our
// ring.
bool DecidesWindows(const json& config) {
  const json options = config.value("method_options", json()),
             given = options.is_object() ? options.value("strategy_options", json()) : json();
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
             strategy = options.is_object() ? options.value("strategy_options", json()) : json();
  if (!DecidesWindows(trial.config) || elements == 0) return "";
  const double arrays = TextOf(strategy, "inner_state") != "average"
                            ? 0
                            : static_cast<double>(workloads::MomentsUsed(
                                  TextOf(recipe, "optimizer"), NumberOf(recipe, "momentum")));
  const auto every = static_cast<double>(WindowSteps(trial.config));
  std::map<std::pair<double, double>, WindowOfRank> windows;  // by window and rank
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    WindowOfRank& window =
        windows[{std::floor(CountIn(steps, "step", row) / every), CountIn(steps, "rank", row)}];
    ++window.steps;
    window.selected += CountIn(steps, "selected", row);
    window.payload += CountIn(steps, "payload_bytes", row);
    window.sent += CountIn(steps, "sent_bytes", row);
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
    TracedExchanges& of = traced[{CountIn(spans, "step", row), CountIn(spans, "rank", row)}];
    const std::string kind = spans.Text("kind", row);
    of.forwards += kind == SpanKindName(SpanKind::kForward);
    if (kind != SpanKindName(SpanKind::kExchange)) continue;
    of.bytes += CountIn(spans, "bytes", row);
    ++of.exchanges;
  }
  const bool have_payload = SpansHavePayload(trial.config);
  const double micro_steps = NumberOf(trial.config, "accumulation");
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const auto found = traced.find({CountIn(steps, "step", row), CountIn(steps, "rank", row)});
    if (found == traced.end()) continue;
    const TracedExchanges& of = found->second;
    const auto differs = [&](const char* column, double given) {
      return fmt::format("steps.npy: {} = {} in row {}: spans.npy gives {}", column,
                         CountIn(steps, column, row), row, given);
    };
    if (have_payload && CountIn(steps, "payload_bytes", row) != of.bytes)
      return differs("payload_bytes", of.bytes);
    if (CountIn(steps, "exchanges", row) != of.exchanges) return differs("exchanges", of.exchanges);
    if (IsLive(trial) && micro_steps > 0 && of.forwards != micro_steps)
      return fmt::format(
          "spans.npy: {} forward passes in step {:g} of rank {:g}: expected the {:g} "
          "of config.accumulation",
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
    const double selected = CountIn(steps, "selected", row);
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

}  // namespace sparfuse::harness
