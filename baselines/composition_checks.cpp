// Refuses parts of a method that do not fit together.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "baselines/composition.hpp"
#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {
namespace {

// Names a part: strategy "ahead".
std::string Named(const std::string& kind, std::string_view name) {
  return kind + " \"" + std::string(name) + "\"";
}

OptionValue FallbackOf(std::string_view key) {
  return std::ranges::find(SendingOptions(), key, &OptionSpec::name)->fallback;
}

class PartChecks {
 public:
  PartChecks(const Composition& made, const CollectiveDescriptor& collective)
      : made_(made),
        collective_(collective),
        traits_(made.sparse_collective->traits()),
        sends_payloads_(made.strategy->sparsified != Sparsified::kNever),
        planner_(Named("planner", made.planner->name)),
        strategy_(Named("strategy", made.strategy->name)),
        named_collective_(Named("the collective", collective.name)),
        sparse_collective_(Named("the collective", made.sparse_collective->descriptor().name)) {}

  void Check() const {
    CheckPlanner();
    CheckPayloads();
    CheckCoding();
    CheckTraits();
    if (made_.sparsifier != nullptr) CheckSparsifier(*made_.sparsifier);
    if (made_.strategy->owned_parts) CheckOwnedParts();
    if (BoolOption(made_.sending, "dense_fallback")) CheckDenseFallback();
    if (made_.dense_warmup_steps > 0) CheckDenseWarmup();
    CheckDelays();
    if (const auto steps = made_.local_steps()) CheckLocalSteps(*steps);
  }

 private:
  static void Need(bool holds, const std::string& otherwise) { SPARFUSE_REQUIRE(holds, otherwise); }

  // Names keys of sending with their values: "payload_values = f32, payload_indices = u32".
  std::string Given(std::initializer_list<const char*> keys) const {
    std::string text;
    for (const std::string key : keys)
      text += (text.empty() ? "" : ", ") + key + " = " + ToString(made_.sending.at(key));
    return text;
  }
  bool HasFallback(std::string_view key) const {
    return made_.sending.find(key)->second == FallbackOf(key);
  }
  bool IsIndexed() const { return HasFallback("payload_dense"); }

  // An option of strategies that select; empty for others.
  std::string StrategyOption(std::string_view key) const {
    const auto found = made_.strategy_options.find(key);
    return ToString(found == made_.strategy_options.end() ? OptionValue() : found->second);
  }

  // The strategy can send the given units, and sparsifies if the planner assumes it.
  void CheckPlanner() const {
    std::string known;
    for (const StrategyDescriptor& strategy : Strategies()) {
      if (!strategy.dense_units) continue;
      known += (known.empty() ? "\"" : ", \"") + std::string(strategy.name) + "\"";
    }
    Need(made_.planner->name != kGivenPlanner || made_.strategy->dense_units,
         planner_ + " with " + strategy_ +
             ", which does not send the units of a plan; expected one of " + known);
    const std::string_view expected = made_.planner->strategy;
    Need(expected.empty() || expected == made_.strategy->name,
         planner_ + " plans the path of each unit, but " + strategy_ +
             " has no paths; expected \"" + std::string(expected) + "\"");
    Need(!made_.planner->ahead_only || made_.strategy->sparsified == Sparsified::kAhead,
         planner_ + " plans tensor by tensor, but " + strategy_ +
             " does not sparsify ahead of fusion; expected \"ahead\"");
  }

  // The strategy, the sparsifier and the collective agree on the kind of payload.
  void CheckPayloads() const {
    Need((collective_.payload == PayloadKind::kSparse) == sends_payloads_,
         named_collective_ +
             (sends_payloads_ ? " adds equal positions, not unequal indices"
                              : " takes sparse payloads") +
             ", but " + strategy_ + " sends " + (sends_payloads_ ? "payloads" : "dense gradients"));
    if (sends_payloads_) {
      Need(made_.sparsifier != nullptr || traits_.selects || !IsIndexed(),
           "the sparsifier is \"none\", and " + strategy_ +
               " sends payloads: expected a sparsifier, or a quantizer as payload_dense");
      return;
    }
    for (const OptionSpec& option : SendingOptions()) {
      Need(HasFallback(option.name),
           Given({option.name.c_str()}) + ": " + strategy_ +
               " sends dense gradients; expected this key only with a strategy that sends "
               "payloads");
    }
    Need(made_.feedback.kind == FeedbackKind::kNone,
         strategy_ + " sends dense gradients: expected feedback \"none\"");
    if (made_.sparsifier == nullptr) return;
    Need(false, Named("the sparsifier is", made_.sparsifier->name) + ", and " + strategy_ +
                    " sends dense gradients: expected \"none\"");
  }

  // Values and indices can be coded together, and options of a filter are set only with a filter.
  void CheckCoding() const {
    const std::string both = Given({"payload_values", "payload_indices"});
    const IndexCoding indices = made_.coding.indices;
    Need(made_.coding.values != ValueCoding::kFitted ||
             (indices != IndexCoding::kDelta && indices != IndexCoding::kU12),
         both +
             ": values are fitted in descending order, but these indices are increasing; "
             "expected \"u32\" or \"bloom\"");
    const bool codes = made_.coding.values == ValueCoding::kCodes4;
    Need(!codes || indices == IndexCoding::kU12,
         both + ": codes need selections by chunks; expected \"u12\"");
    Need(codes || HasFallback("scope"),
         Given({"scope"}) + " with " + Given({"payload_values"}) +
             ", which has no levels: expected \"codes4\", or \"tensor\"");
    if (indices == IndexCoding::kBloom) return;
    for (const OptionSpec& option : SendingOptions()) {
      Need(!option.name.starts_with("bloom_") || HasFallback(option.name),
           Given({option.name.c_str()}) + " with " + Given({"payload_indices"}) +
               ": expected \"bloom\"");
    }
  }

  // A collective that sums, drops or selects can work on the payloads.
  void CheckTraits() const {
    Need(!traits_.sums || made_.coding == PayloadCoding{},
         Given({"payload_values", "payload_indices"}) + ": " + sparse_collective_ +
             " adds payloads on the way; expected \"f32\" and \"u32\"");
    Need(!traits_.sums || IsIndexed(), Given({"payload_dense"}) + ": " + sparse_collective_ +
                                           " adds payloads on the way; expected \"indexed\"");
    Need((!traits_.drops && !traits_.selects) || made_.feedback.kind == FeedbackKind::kResidual,
         sparse_collective_ +
             (traits_.selects ? " selects from a residual"
                              : " gives back the elements that it drops") +
             ": expected feedback \"residual\"");
    Need(made_.feedback.name != "decoupled" || traits_.selects,
         "feedback \"decoupled\" with " + sparse_collective_ +
             ", which does not select from a momentum: expected \"residual\", whose decay may be "
             "below 1");
    Need(!traits_.selects || made_.strategy->sparsified == Sparsified::kBehind,
         sparse_collective_ + " selects from whole units, but " + strategy_ +
             " sparsifies tensor by tensor; expected \"behind\"");
    Need(!traits_.by_tensor || !made_.strategy->node_shards || made_.strategy->whole_shards,
         sparse_collective_ + " works on whole tensors, but " + strategy_ +
             " sends a shard from each rank of a node, which cuts tensors; expected "
             "\"node-tensors\" or \"behind\"");
    Need(made_.sparsifier != nullptr || !traits_.selects || traits_.sizes_itself,
         "the sparsifier is \"none\", but " + sparse_collective_ +
             " selects a density of the elements: expected a sparsifier, say \"topk\"");
  }

  // The sparsifier selects as many elements, or the ones, that the collective needs.
  void CheckSparsifier(const SparsifierDescriptor& descriptor) const {
    const std::string sparsifier = Named("the sparsifier", descriptor.name);
    Need(!traits_.equal_counts || made_.threshold_period <= 1,
         "threshold_period = " + std::to_string(made_.threshold_period) + " with " + sparsifier +
             ": the number of elements above a threshold of another step differs between ranks, "
             "but " +
             sparse_collective_ + " needs equal counts: expected 1");
    Need(!traits_.equal_counts || descriptor.exact_count,
         sparsifier + " selects counts that differ between ranks, but " + sparse_collective_ +
             " needs equal counts: expected a sparsifier whose count is exact, say \"topk\"");
    Need(!traits_.same_indices || descriptor.index_shared,
         sparsifier + " selects other indices on each rank, but " + sparse_collective_ +
             " needs the same indices: expected a sparsifier that shares them, say \"randomk\"");
  }

  // Owners can take payloads apart, sum them, and select again from the sums.
  void CheckOwnedParts() const {
    const bool whole = made_.strategy->owned_whole;
    Need(made_.coding == PayloadCoding{} && (whole || IsIndexed()),
         Given({"payload_values", "payload_indices", "payload_dense"}) + ": " + strategy_ +
             " takes payloads apart and adds them up; expected \"f32\", \"u32\"" +
             (whole ? " with any payload_dense" : " and \"indexed\""));
    Need(!traits_.sums && !traits_.drops && !traits_.selects && !traits_.equal_counts &&
             !traits_.same_indices,
         sparse_collective_ + ": " + strategy_ +
             " has summed before it gathers; expected \"sparse-allgather\"");
    Need(made_.feedback.kind != FeedbackKind::kMomentum,
         "feedback \"momentum\": " + strategy_ +
             " selects twice, the second time from sums; expected \"residual\" or \"none\"");
  }

  // Units can be sent sparse or dense, and neither changes the method's mathematics.
  void CheckDenseFallback() const {
    Need(made_.strategy->dense_units && sends_payloads_,
         "dense_fallback with " + strategy_ +
             ", which does not send the units of a plan: expected \"ahead\" or \"behind\"");
    Need(!made_.strategy->node_shards && !made_.strategy->owned_parts,
         "dense_fallback with " + strategy_ +
             ", which sends units in several exchanges: their time is predicted for a single "
             "gather only; expected \"ahead\" or \"behind\"");
    Need(made_.sparsifier != nullptr,
         "dense_fallback with sparsifier \"none\": expected a sparsifier, whose selections may "
         "take longer than they save");
    Need(made_.feedback.kind != FeedbackKind::kMomentum,
         "dense_fallback with feedback \"momentum\": units that are sent dense have no momentum; "
         "expected \"residual\" or \"none\"");
  }

  // The units of a plan can be sent dense for some steps without loss.
  void CheckDenseWarmup() const {
    const std::string steps = Given({"dense_warmup_steps"});
    Need(made_.strategy->dense_units, steps + " with " + strategy_ +
                                          ", which does not send the units of a plan: expected "
                                          "\"ahead\" or \"behind\", or 0");
    Need(made_.feedback.kind != FeedbackKind::kMomentum,
         steps +
             " with feedback \"momentum\": units that are sent dense have no momentum; "
             "expected \"residual\" or \"none\", or 0");
  }

  // Exchanges of a strategy that delays are possible beside training.
  void CheckDelays() const {
    if (!made_.strategy->delays) return;
    Need(!collective_.native, strategy_ + " with " + named_collective_ +
                                  ", which need not go on beside training: expected "
                                  "\"ring-allreduce\"");
    Need(HasFallback("replan_every"),
         Given({"replan_every"}) + " with " + strategy_ +
             ", which sends units of one plan in a step of another plan: expected 0");
  }

  // Windows consist of whole fragments, and exchanges beside training are possible.
  void CheckLocalSteps(const LocalSteps& steps) const {
    const bool planned = made_.planner->name == kFragmentsPlanner;
    const std::int64_t fragments = planned ? IntOption(made_.planner_options, "fragments") : 1;
    if (!steps.when_idle) (void)FragmentDates(steps, static_cast<std::size_t>(fragments));
    const bool moves_by_sums =
        steps.outer == OuterRule::kAverage || steps.outer == OuterRule::kElastic;
    Need(!sends_payloads_ || !moves_by_sums,
         "outer = " + StrategyOption("outer") + " with " + strategy_ +
             ", which selects from differences: expected \"sgd\", \"momentum\" or \"nesterov\"");
    Need(made_.feedback.kind != FeedbackKind::kMomentum,
         "feedback \"momentum\" with local steps, whose outer optimizer has a momentum: expected "
         "\"residual\" or \"none\"");
    Need(!traits_.selects, named_collective_ +
                               " selects from gradients by itself: expected another collective "
                               "with local steps");
    Need(!traits_.sums || (!steps.by_senders && !steps.to_median),
         "combine = " + StrategyOption("combine") + ", clip = " + StrategyOption("clip") +
             " with " + named_collective_ +
             ", which adds payloads on the way, so that nobody sees what a rank sent: expected "
             "\"sparse-allgather\", or \"ranks\" and \"none\"");
    Need(made_.feedback.warmup_epochs == 0,
         "warmup_epochs = " + std::to_string(made_.feedback.warmup_epochs) +
             " with local steps, whose windows all have one density: expected 0");
    for (const char* key : {"dense_fallback", "dense_warmup_steps", "replan_every"}) {
      Need(HasFallback(key), Given({key}) +
                                 " with local steps, which send no gradients: expected " +
                                 ToString(FallbackOf(key)));
    }
    const std::string inner = "inner_state = " + StrategyOption("inner_state");
    Need(steps.inner == InnerState::kKeep || made_.inner_arrays != 0,
         inner +
             " with an optimizer that keeps nothing from step to step, which sgd without "
             "momentum and sign are: expected \"keep\", or another recipe");
    Need(steps.inner != InnerState::kAverage ||
             made_.dense_collective->traits().mass != Conservation::kLost,
         inner + " with " + Named("the collective", made_.dense_collective->descriptor().name) +
             ", which rounds sums: a second moment that becomes 0 divides by nothing; expected "
             "\"ring-allreduce\", or \"keep\" or \"reset\"");
    Need(steps.delay == 0 || !collective_.native,
         "delay = " + std::to_string(steps.delay) + " with " + named_collective_ +
             ", which need not go on beside training: expected 0, or \"" +
             (collective_.payload == PayloadKind::kSparse ? "sparse-allgather" : "ring-allreduce") +
             "\"");
  }

  const Composition& made_;
  const CollectiveDescriptor& collective_;  // of the two in `made_`, the one that the method names
  const CollectiveTraits traits_;           // of the sparse one
  const bool sends_payloads_;
  const std::string planner_, strategy_, named_collective_, sparse_collective_;  // by kind and name
};

}  // namespace

void CheckParts(const Composition& made, const CollectiveDescriptor& collective) {
  PartChecks(made, collective).Check();
}

}  // namespace sparfuse
