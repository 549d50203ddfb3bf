// Declares methods that synchronise seldom. Ranks train for a window of steps by themselves. They
// then exchange parameters, or the difference of these from an anchor that all ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/options.hpp"

namespace sparfuse {

// The update of a rank's anchor a and parameters w when the average D of the pseudo-gradients a - w
// over ranks has arrived; b is the outer state:
//
//   kAverage   parameters are exchanged instead: a <- their average
//   kSgd       a <- a - rate D
//   kMomentum  b <- momentum b + D;  a <- a - rate b
//   kNesterov  b <- momentum b + D;  a <- a - rate (D + momentum b)
//   then       w <- a + mix (w - a); with mix 0 and 1 without arithmetic
//
//   kElastic   e = w - a when it is sent;  w <- w - rate e;  a <- a + rate times the sum of all e
enum class OuterRule : std::uint8_t { kAverage, kSgd, kMomentum, kNesterov, kElastic };

// The values of a tensor that a rank sends.
enum class PackSource : std::uint8_t {
  kGradient,
  kParameters,
  kDifference,  // anchor - parameters
  kElastic,     // parameters - anchor, kept until their sum has arrived
  kInnerState   // an array of what the inner optimizer keeps of the parameters
};

// What becomes of the state that the inner optimizer keeps of parameters (its momentum, or both
// moments of adam) when these are received. It stays; it is zero, and the optimizer counts the
// updates of these parameters anew; or it becomes the average over ranks, as it then is.
enum class InnerState : std::uint8_t { kKeep, kReset, kAverage };

struct LocalSteps {
  std::uint64_t every = 1;  // steps in a window
  // Steps from a fragment's send to its receipt: below the period of fragments, or `every`.
  std::uint64_t delay = 0;
  // No dates: a fragment is received as soon as its exchange is over on all ranks, but not before
  // `delay` steps, and the next one is sent at once. Windows serve measurements only.
  bool when_idle = false;
  OuterRule outer = OuterRule::kAverage;
  float rate = 1;
  float momentum = 0;
  float mix = 0;            // weight of the rank's own parameters
  bool long_first = false;  // no fragment is received before the first window is over
  float penalty = 1;        // D is divided by it first: for averages that come late
  float outer_clip = 0;     // largest norm of b over all that is received together; 0: any
  InnerState inner = InnerState::kKeep;
  // Of selections: D is the sum divided by the ranks that sent the element, not by all.
  bool by_senders = false;
  // Of selections: the values of a rank are first scaled down to the median norm over ranks.
  bool to_median = false;

  // A whole window passes between send and receipt; every window begins at the anchor.
  bool lags() const noexcept { return delay == every && !when_idle; }
  bool has_state() const noexcept {
    return outer == OuterRule::kMomentum || outer == OuterRule::kNesterov;
  }
};

// Precondition: resolved options of the strategy.
LocalSteps LocalStepsOf(const Options& resolved);

// The steps at which the fragments of a plan are sent and received. Steps count from 1. There are
// none with when_idle.
class FragmentDates {
 public:
  // Throws Error{kConfig} if the number of fragments does not divide the window, or if the delay
  // does not fit.
  FragmentDates(const LocalSteps& steps, std::size_t fragments);

  // The fragment that is due after the update of this step.
  std::optional<std::size_t> SentAt(std::uint64_t step) const {
    return steps_.lags() ? DueAt(step) : DueAt(step + steps_.delay);
  }
  std::optional<std::size_t> ReceivedAt(std::uint64_t step) const;
  // Whether parameters go back to the anchor although no average has arrived: at the end of the
  // first window of a method that lags.
  bool RestartsAt(std::uint64_t step) const { return steps_.lags() && step == steps_.every; }

 private:
  std::optional<std::size_t> DueAt(std::uint64_t step) const;

  LocalSteps steps_;
  std::uint64_t fragments_;
  std::uint64_t period_;
};

// The strategies: once in a window of steps, or one step late.
struct StrategyDescriptor;  // core/engine/engine.hpp
// "local-steps", dense.
extern const StrategyDescriptor kLocalSteps;
// "sparse-local-steps", which selects from differences tensor by tensor.
extern const StrategyDescriptor kSparseLocalSteps;
// "delayed-units", which applies the gradients of a step in the next step.
extern const StrategyDescriptor kDelayedGradients;

}  // namespace sparfuse
