// Refuses parts of a method that do not fit together.
#include <algorithm>
#include <optional>
#include <string>

#include "baselines/composition.hpp"
#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {
namespace {

// Throws unless values and indices can be coded together, and options of a filter are set only with
// a filter.
void CheckCoding(const Composition& made) {
  const OptionValue& indices = made.sending.at("payload_indices");
  const bool chunks = made.coding.indices == IndexCoding::kU12;
  if (made.coding.values == ValueCoding::kFitted &&
      (made.coding.indices == IndexCoding::kDelta || chunks)) {
    SPARFUSE_THROW(kConfig, "payload_values = fitted, payload_indices = " + ToString(indices) +
                                ": values are fitted in descending order, but these indices are "
                                "increasing; expected \"u32\" or \"bloom\"");
  }
  if (made.coding.values == ValueCoding::kCodes4 && !chunks) {
    SPARFUSE_THROW(kConfig, "payload_values = codes4, payload_indices = " + ToString(indices) +
                                ": codes need selections by chunks; expected \"u12\"");
  }
  if (StringOption(made.sending, "scope") != "tensor" &&
      made.coding.values != ValueCoding::kCodes4) {
    SPARFUSE_THROW(kConfig,
                   "scope = " + ToString(made.sending.at("scope")) +
                       " with payload_values = " + ToString(made.sending.at("payload_values")) +
                       ", which has no levels: expected \"codes4\", or \"tensor\"");
  }
  if (made.coding.indices == IndexCoding::kBloom) return;
  for (const OptionSpec& option : SendingOptions()) {
    if (!option.name.starts_with("bloom_") || made.sending.at(option.name) == option.fallback) {
      continue;
    }
    SPARFUSE_THROW(kConfig, option.name + " = " + ToString(made.sending.at(option.name)) +
                                " with payload_indices = " + ToString(indices) +
                                ": expected \"bloom\"");
  }
}

// Throws unless the strategy can send the given units, and sparsifies if the planner assumes it.
void CheckPlanner(const Composition& made) {
  if (made.planner->name == kGivenPlanner && !made.strategy->dense_units) {
    std::string known;
    for (const StrategyDescriptor& strategy : Strategies()) {
      if (!strategy.dense_units) continue;
      known += (known.empty() ? "\"" : ", \"") + std::string(strategy.name) + "\"";
    }
    SPARFUSE_THROW(kConfig,
                   "planner \"given\" with strategy \"" + std::string(made.strategy->name) +
                       "\", which does not send the units of a plan; expected one of " + known);
  }
  if (!made.planner->strategy.empty() && made.planner->strategy != made.strategy->name) {
    SPARFUSE_THROW(kConfig, "planner \"" + std::string(made.planner->name) +
                                "\" plans the path of each unit, but strategy \"" +
                                std::string(made.strategy->name) + "\" has no paths; expected \"" +
                                std::string(made.planner->strategy) + "\"");
  }
  if (!made.planner->ahead_only || made.strategy->sparsified == Sparsified::kAhead) return;
  SPARFUSE_THROW(kConfig, "planner \"" + std::string(made.planner->name) +
                              "\" plans tensor by tensor, but strategy \"" +
                              std::string(made.strategy->name) +
                              "\" does not sparsify ahead of fusion; expected \"ahead\"");
}

// Throws unless the strategy, the sparsifier and the collective agree on the kind of payload.
void CheckPayloads(const Composition& made, const CollectiveDescriptor& collective) {
  const std::string strategy = "strategy \"" + std::string(made.strategy->name) + "\"";
  const bool sends_payloads = made.strategy->sparsified != Sparsified::kNever;
  if ((collective.payload == PayloadKind::kSparse) != sends_payloads) {
    SPARFUSE_THROW(kConfig, "the collective \"" + std::string(collective.name) + "\" " +
                                (sends_payloads ? "adds equal positions, not unequal indices"
                                                : "takes sparse payloads") +
                                ", but " + strategy + " sends " +
                                (sends_payloads ? "payloads" : "dense gradients"));
  }
  for (const OptionSpec& option : SendingOptions()) {
    const OptionValue& value = made.sending.at(option.name);
    if (sends_payloads || value == option.fallback) continue;
    SPARFUSE_THROW(
        kConfig,
        option.name + " = " + ToString(value) + ": " + strategy +
            " sends dense gradients; expected this key only with a strategy that sends payloads");
  }
  if (!sends_payloads && made.feedback.kind != FeedbackKind::kNone) {
    SPARFUSE_THROW(kConfig, strategy + " sends dense gradients: expected feedback \"none\"");
  }
  if (!sends_payloads && made.sparsifier != nullptr) {
    SPARFUSE_THROW(kConfig, "the sparsifier is \"" + std::string(made.sparsifier->name) +
                                "\", and " + strategy +
                                " sends dense gradients: expected \"none\"");
  }
  if (sends_payloads && made.sparsifier == nullptr && !made.sparse_collective->traits().selects &&
      StringOption(made.sending, "payload_dense") == "indexed") {
    SPARFUSE_THROW(kConfig, "the sparsifier is \"none\", and " + strategy +
                                " sends payloads: expected a sparsifier, or a quantizer as "
                                "payload_dense");
  }
}

// Throws unless a collective that sums, drops or selects can work on the payloads.
void CheckTraits(const Composition& made) {
  const CollectiveTraits& traits = made.sparse_collective->traits();
  const std::string collective =
      "the collective \"" + std::string(made.sparse_collective->descriptor().name) + "\"";
  if (traits.sums && made.coding != PayloadCoding{}) {
    SPARFUSE_THROW(
        kConfig, "payload_values = " + ToString(made.sending.at("payload_values")) +
                     ", payload_indices = " + ToString(made.sending.at("payload_indices")) + ": " +
                     collective + " adds payloads on the way; expected \"f32\" and \"u32\"");
  }
  if (traits.sums && StringOption(made.sending, "payload_dense") != "indexed") {
    SPARFUSE_THROW(kConfig, "payload_dense = " + ToString(made.sending.at("payload_dense")) + ": " +
                                collective + " adds payloads on the way; expected \"indexed\"");
  }
  if ((traits.drops || traits.selects) && made.feedback.kind != FeedbackKind::kResidual) {
    SPARFUSE_THROW(kConfig, collective +
                                (traits.selects ? " selects from a residual"
                                                : " gives back the elements that it drops") +
                                ": expected feedback \"residual\"");
  }
  if (made.feedback.name == "decoupled" && !traits.selects) {
    SPARFUSE_THROW(kConfig,
                   "feedback \"decoupled\" with " + collective +
                       ", which does not select from a momentum: expected \"residual\", whose "
                       "decay may be below 1");
  }
  if (traits.selects && made.strategy->sparsified != Sparsified::kBehind) {
    SPARFUSE_THROW(kConfig, collective + " selects from whole units, but strategy \"" +
                                std::string(made.strategy->name) +
                                "\" sparsifies tensor by tensor; expected \"behind\"");
  }
  if (traits.by_tensor && made.strategy->node_shards && !made.strategy->whole_shards) {
    SPARFUSE_THROW(kConfig, collective + " works on whole tensors, but strategy \"" +
                                std::string(made.strategy->name) +
                                "\" sends a shard from each rank of a node, which cuts tensors; "
                                "expected \"node-tensors\" or \"behind\"");
  }
  SPARFUSE_REQUIRE(made.sparsifier != nullptr || !traits.selects || traits.sizes_itself,
                   "the sparsifier is \"none\", but " + collective +
                       " selects a density of the elements: expected a sparsifier, say \"topk\"");
  if (made.sparsifier == nullptr) return;  // CheckPayloads has refused collectives that need one
  const std::string sparsifier = "the sparsifier \"" + std::string(made.sparsifier->name) + "\"";
  if (traits.equal_counts && made.threshold_period > 1) {
    SPARFUSE_THROW(kConfig, "threshold_period = " + std::to_string(made.threshold_period) +
                                " with " + sparsifier +
                                ": the number of elements above a threshold of another step "
                                "differs between ranks, but " +
                                collective + " needs equal counts: expected 1");
  }
  if (traits.equal_counts && !made.sparsifier->exact_count) {
    SPARFUSE_THROW(kConfig,
                   sparsifier + " selects counts that differ between ranks, but " + collective +
                       " needs equal counts: expected a sparsifier whose count is exact, say "
                       "\"topk\"");
  }
  if (traits.same_indices && !made.sparsifier->index_shared) {
    SPARFUSE_THROW(kConfig,
                   sparsifier + " selects other indices on each rank, but " + collective +
                       " needs the same indices: expected a sparsifier that shares them, say "
                       "\"randomk\"");
  }
}

// Throws unless owners can take payloads apart, sum them, and select again from the sums.
void CheckOwnedParts(const Composition& made) {
  if (!made.strategy->owned_parts) return;
  const std::string strategy = "strategy \"" + std::string(made.strategy->name) + "\"";
  const CollectiveTraits& traits = made.sparse_collective->traits();
  const bool whole = made.strategy->owned_whole;
  SPARFUSE_REQUIRE(made.coding == PayloadCoding{} &&
                       (whole || StringOption(made.sending, "payload_dense") == "indexed"),
                   "payload_values = " + ToString(made.sending.at("payload_values")) +
                       ", payload_indices = " + ToString(made.sending.at("payload_indices")) +
                       ", payload_dense = " + ToString(made.sending.at("payload_dense")) + ": " +
                       strategy +
                       " takes payloads apart and adds them up; expected \"f32\", \"u32\"" +
                       (whole ? " with any payload_dense" : " and \"indexed\""));
  SPARFUSE_REQUIRE(!traits.sums && !traits.drops && !traits.selects && !traits.equal_counts &&
                       !traits.same_indices,
                   "the collective \"" + std::string(made.sparse_collective->descriptor().name) +
                       "\": " + strategy +
                       " has summed before it gathers; expected \"sparse-allgather\"");
  SPARFUSE_REQUIRE(made.feedback.kind != FeedbackKind::kMomentum,
                   "feedback \"momentum\": " + strategy +
                       " selects twice, the second time from sums; expected \"residual\" or "
                       "\"none\"");
}

// Throws unless units can be sent sparse or dense, and neither changes the method's mathematics.
void CheckDenseFallback(const Composition& made) {
  if (!BoolOption(made.sending, "dense_fallback")) return;
  const std::string strategy = "strategy \"" + std::string(made.strategy->name) + "\"";
  SPARFUSE_REQUIRE(made.strategy->dense_units && made.strategy->sparsified != Sparsified::kNever,
                   "dense_fallback with " + strategy +
                       ", which does not send the units of a plan: expected \"ahead\" or "
                       "\"behind\"");
  SPARFUSE_REQUIRE(!made.strategy->node_shards && !made.strategy->owned_parts,
                   "dense_fallback with " + strategy +
                       ", which sends units in several exchanges: their time is predicted for a "
                       "single gather only; expected \"ahead\" or \"behind\"");
  SPARFUSE_REQUIRE(made.sparsifier != nullptr,
                   "dense_fallback with sparsifier \"none\": expected a sparsifier, whose "
                   "selections may take longer than they save");
  SPARFUSE_REQUIRE(made.feedback.kind != FeedbackKind::kMomentum,
                   "dense_fallback with feedback \"momentum\": units that are sent dense have no "
                   "momentum; expected \"residual\" or \"none\"");
}

// Throws unless the units of a plan can be sent dense for some steps without loss.
void CheckDenseWarmup(const Composition& made) {
  if (made.dense_warmup_steps == 0) return;
  const std::string steps = "dense_warmup_steps = " + std::to_string(made.dense_warmup_steps);
  SPARFUSE_REQUIRE(made.strategy->dense_units, steps + " with strategy \"" +
                                                   std::string(made.strategy->name) +
                                                   "\", which does not send the units of a plan: "
                                                   "expected \"ahead\" or \"behind\", or 0");
  SPARFUSE_REQUIRE(made.feedback.kind != FeedbackKind::kMomentum,
                   steps +
                       " with feedback \"momentum\": units that are sent dense have no momentum; "
                       "expected \"residual\" or \"none\", or 0");
}

// An option of strategies that select; empty for others.
OptionValue OptionOf(const Composition& made, std::string_view key) {
  const auto found = made.strategy_options.find(key);
  return found == made.strategy_options.end() ? OptionValue() : found->second;
}

OptionValue FallbackOf(std::string_view key) {
  return std::ranges::find(SendingOptions(), key, &OptionSpec::name)->fallback;
}

// Throws unless windows consist of whole fragments, and exchanges beside training are possible.
void CheckLocalSteps(const Composition& made, const CollectiveDescriptor& collective) {
  SPARFUSE_REQUIRE(!made.strategy->delays || !collective.native,
                   "strategy \"" + std::string(made.strategy->name) + "\" with the collective \"" +
                       std::string(collective.name) +
                       "\", which need not go on beside training: expected \"ring-allreduce\"");
  SPARFUSE_REQUIRE(!made.strategy->delays || IntOption(made.sending, "replan_every") == 0,
                   "replan_every = " + ToString(made.sending.at("replan_every")) +
                       " with strategy \"" + std::string(made.strategy->name) +
                       "\", which sends units of one plan in a step of another plan: expected 0");
  const std::optional<LocalSteps> steps = made.local_steps();
  if (!steps) return;
  const bool planned = made.planner->name == kFragmentsPlanner;
  const std::int64_t fragments = planned ? IntOption(made.planner_options, "fragments") : 1;
  if (!steps->when_idle) (void)FragmentDates(*steps, static_cast<std::size_t>(fragments));
  const bool sends_payloads = made.strategy->sparsified != Sparsified::kNever;
  const bool moves_by_sums =
      steps->outer == OuterRule::kAverage || steps->outer == OuterRule::kElastic;
  SPARFUSE_REQUIRE(!sends_payloads || !moves_by_sums,
                   "outer = " + ToString(made.strategy_options.at("outer")) + " with strategy \"" +
                       std::string(made.strategy->name) +
                       "\", which selects from differences: expected \"sgd\", \"momentum\" or "
                       "\"nesterov\"");
  SPARFUSE_REQUIRE(
      made.feedback.kind != FeedbackKind::kMomentum,
      "feedback \"momentum\" with local steps, whose outer optimizer has a momentum: expected "
      "\"residual\" or \"none\"");
  SPARFUSE_REQUIRE(
      !made.sparse_collective->traits().selects,
      "the collective \"" + std::string(collective.name) +
          "\" selects from gradients by itself: expected another collective with local steps");
  SPARFUSE_REQUIRE(
      !made.sparse_collective->traits().sums || (!steps->by_senders && !steps->to_median),
      "combine = " + ToString(OptionOf(made, "combine")) +
          ", clip = " + ToString(OptionOf(made, "clip")) + " with the collective \"" +
          std::string(collective.name) +
          "\", which adds payloads on the way, so that nobody sees what a rank sent: expected "
          "\"sparse-allgather\", or \"ranks\" and \"none\"");
  SPARFUSE_REQUIRE(made.feedback.warmup_epochs == 0,
                   "warmup_epochs = " + std::to_string(made.feedback.warmup_epochs) +
                       " with local steps, whose windows all have one density: expected 0");
  for (const char* key : {"dense_fallback", "dense_warmup_steps", "replan_every"}) {
    SPARFUSE_REQUIRE(made.sending.at(key) == FallbackOf(key),
                     std::string(key) + " = " + ToString(made.sending.at(key)) +
                         " with local steps, which send no gradients: expected " +
                         ToString(FallbackOf(key)));
  }
  const std::string inner = "inner_state = " + ToString(OptionOf(made, "inner_state"));
  SPARFUSE_REQUIRE(steps->inner == InnerState::kKeep || made.inner_arrays != 0,
                   inner +
                       " with an optimizer that keeps nothing from step to step, which sgd "
                       "without momentum and sign are: expected \"keep\", or another recipe");
  SPARFUSE_REQUIRE(steps->inner != InnerState::kAverage ||
                       made.dense_collective->traits().mass != Conservation::kLost,
                   inner + " with the collective \"" +
                       std::string(made.dense_collective->descriptor().name) +
                       "\", which rounds sums: a second moment that becomes 0 divides by nothing; "
                       "expected \"ring-allreduce\", or \"keep\" or \"reset\"");
  SPARFUSE_REQUIRE(
      steps->delay == 0 || !collective.native,
      "delay = " + std::to_string(steps->delay) + " with the collective \"" +
          std::string(collective.name) +
          "\", which need not go on beside training: expected 0, or \"" +
          (collective.payload == PayloadKind::kSparse ? "sparse-allgather" : "ring-allreduce") +
          "\"");
}

}  // namespace

void CheckParts(const Composition& made, const CollectiveDescriptor& collective) {
  CheckPlanner(made);
  CheckPayloads(made, collective);
  CheckCoding(made);
  CheckTraits(made);
  CheckOwnedParts(made);
  CheckDenseFallback(made);
  CheckDenseWarmup(made);
  CheckLocalSteps(made, collective);
}

}  // namespace sparfuse
