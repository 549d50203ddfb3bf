#include "core/localsteps/local_steps.hpp"

#include <algorithm>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse {

LocalSteps LocalStepsOf(const Options& resolved) {
  LocalSteps steps;
  steps.every = static_cast<std::uint64_t>(IntOption(resolved, "every"));
  steps.delay = static_cast<std::uint64_t>(IntOption(resolved, "delay"));
  const std::string& outer = StringOption(resolved, "outer");
  steps.outer = outer == "sgd"        ? OuterRule::kSgd
                : outer == "momentum" ? OuterRule::kMomentum
                : outer == "nesterov" ? OuterRule::kNesterov
                : outer == "elastic"  ? OuterRule::kElastic
                                      : OuterRule::kAverage;
  steps.rate = static_cast<float>(DoubleOption(resolved, "outer_rate"));
  steps.momentum = static_cast<float>(DoubleOption(resolved, "outer_momentum"));
  steps.mix = static_cast<float>(DoubleOption(resolved, "mix"));
  steps.long_first = StringOption(resolved, "first") == "long";
  steps.penalty = static_cast<float>(DoubleOption(resolved, "penalty"));
  steps.outer_clip = static_cast<float>(DoubleOption(resolved, "outer_clip"));
  steps.when_idle = StringOption(resolved, "trigger") == "idle";
  const std::string& inner = StringOption(resolved, "inner_state");
  steps.inner = inner == "reset"     ? InnerState::kReset
                : inner == "average" ? InnerState::kAverage
                                     : InnerState::kKeep;
  if (resolved.contains("combine")) {  // of a strategy that selects
    steps.by_senders = StringOption(resolved, "combine") == "senders";
    steps.to_median = StringOption(resolved, "clip") == "median";
  }
  const auto refuse = [](const std::string& what) {
    SPARFUSE_THROW(kConfig, "strategy \"local-steps\": ", what);
  };
  if (steps.when_idle && steps.delay == 0) {
    refuse(
        "delay = 0 with trigger = idle: an exchange that its own step receives leaves nothing to "
        "begin beside training: expected a delay of at least 1, or trigger = \"steps\"");
  }
  if (steps.when_idle && steps.long_first) {
    refuse(
        "first = long with trigger = idle, which has no dates: expected \"short\", or trigger = "
        "\"steps\"");
  }
  if (steps.lags() && steps.mix != 0) {
    refuse("mix = " + ToString(resolved.at("mix")) +
           " with delay = " + std::to_string(steps.delay) +
           " = every: every window begins at the anchor; expected mix = 0");
  }
  if (steps.outer == OuterRule::kElastic && (steps.mix != 0 || steps.lags())) {
    refuse(
        "outer = elastic moves parameters by outer_rate alone, within the window: expected mix "
        "0 and a delay below every");
  }
  if (!steps.has_state() && steps.momentum != 0) {
    refuse("outer_momentum = " + ToString(resolved.at("outer_momentum")) + " with outer = " +
           outer + ", which keeps no momentum: expected \"momentum\" or \"nesterov\", or 0");
  }
  if (steps.outer == OuterRule::kAverage && steps.rate != 1) {
    refuse("outer_rate = " + ToString(resolved.at("outer_rate")) +
           " with outer = average, which has no rate: expected 1");
  }
  const bool of_differences = steps.outer == OuterRule::kSgd || steps.has_state();
  if (!of_differences && steps.penalty != 1) {
    refuse("penalty = " + ToString(resolved.at("penalty")) + " with outer = " + outer +
           ", which has no average of differences: expected 1, or \"sgd\", \"momentum\" or "
           "\"nesterov\"");
  }
  if (steps.inner != InnerState::kKeep && steps.mix == 1) {
    refuse("inner_state = " + inner +
           " with mix = 1, which leaves each rank its own parameters: their optimizer's state "
           "belongs to no other ones; expected \"keep\", or a mix below 1");
  }
  if (steps.inner != InnerState::kKeep && steps.outer == OuterRule::kElastic) {
    refuse("inner_state = " + inner +
           " with outer = elastic, which only pulls each rank's own parameters: expected "
           "\"keep\", or another outer rule");
  }
  if (steps.outer_clip != 0 && steps.outer != OuterRule::kMomentum) {
    refuse("outer_clip = " + ToString(resolved.at("outer_clip")) + " with outer = " + outer +
           ", whose step is not the outer momentum alone: expected \"momentum\", or 0");
  }
  return steps;
}

FragmentDates::FragmentDates(const LocalSteps& steps, std::size_t fragments)
    : steps_(steps),
      fragments_(fragments),
      period_(steps.every / std::max<std::uint64_t>(1, fragments)) {
  const std::string window = "every = " + std::to_string(steps.every);
  if (fragments == 0 || steps.every % fragments != 0) {
    SPARFUSE_THROW(kConfig, window, " with ", fragments,
                   " fragments: expected a multiple of their number");
  }
  if (steps_.lags() ? fragments != 1 : steps.delay >= period_) {
    const std::string given = "delay = " + std::to_string(steps.delay) + " with " + window;
    const std::string within = "expected 0 to " + std::to_string(period_ - 1);
    SPARFUSE_THROW(kConfig, fragments == 1 ? given + ": " + within + ", or " +
                                                 std::to_string(steps.every) + ", a whole window"
                                           : given + " and " + std::to_string(fragments) +
                                                 " fragments: " + within +
                                                 ", so that at most one fragment is under way");
  }
}

std::optional<std::size_t> FragmentDates::DueAt(std::uint64_t step) const {
  if (step == 0 || step % period_ != 0) return std::nullopt;
  if (steps_.long_first && step < steps_.every) return std::nullopt;
  return static_cast<std::size_t>((step / period_ - 1) % fragments_);
}

std::optional<std::size_t> FragmentDates::ReceivedAt(std::uint64_t step) const {
  if (steps_.lags() && step <= steps_.every) return std::nullopt;
  return DueAt(step);
}

}  // namespace sparfuse
