// Declares methods that synchronise seldom: ranks train for a window of steps by themselves, then
// exchange parameters, or how far these have come from an anchor that all ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"

namespace sparfuse {

// What becomes of the anchor a and the parameters w of a rank when D, the average over ranks of the
// pseudo-gradients a - w, has come; b is the outer state:
//
//   kAverage   parameters are exchanged instead: a <- their average
//   kSgd       a <- a - rate D
//   kMomentum  b <- momentum b + D;  a <- a - rate b
//   kNesterov  b <- momentum b + D;  a <- a - rate (D + momentum b)
//   then       w <- a + mix (w - a); with mix 0 and 1 without arithmetic
//
//   kElastic   e = w - a when it is sent;  w <- w - rate e;  a <- a + rate times the sum of all e
enum class OuterRule : std::uint8_t { kAverage, kSgd, kMomentum, kNesterov, kElastic };

// What a rank sends of a tensor.
enum class PackSource : std::uint8_t {
  kGradient,
  kParameters,
  kDifference,  // anchor - parameters
  kElastic      // parameters - anchor, kept until their sum has come
};

struct LocalSteps {
  std::uint64_t every = 1;  // steps of a window
  // Steps from a fragment's send to its receipt: below the period of fragments, or `every`.
  std::uint64_t delay = 0;
  OuterRule outer = OuterRule::kAverage;
  float rate = 1;
  float momentum = 0;
  float mix = 0;            // weight of the rank's own parameters
  bool long_first = false;  // no fragment is received before the first window is over

  // A whole window passes between send and receipt; every window begins at the anchor.
  bool lags() const noexcept { return delay == every; }
  bool has_state() const noexcept {
    return outer == OuterRule::kMomentum || outer == OuterRule::kNesterov;
  }
};

// Precondition: resolved options of the strategy.
LocalSteps LocalStepsOf(const Options& resolved);

// When the fragments of a plan are sent and received. Steps count from 1.
class FragmentDates {
 public:
  // Throws Error{kConfig} where the fragments do not divide the window or the delay does not fit.
  FragmentDates(const LocalSteps& steps, std::size_t fragments);

  // The fragment that is due behind the update of this step.
  std::optional<std::size_t> SentAt(std::uint64_t step) const;
  std::optional<std::size_t> ReceivedAt(std::uint64_t step) const;
  // Parameters go back to the anchor, and nothing has come: the end of the first window of a method
  // that lags.
  bool RestartsAt(std::uint64_t step) const;

 private:
  std::optional<std::size_t> DueAt(std::uint64_t step) const;

  LocalSteps steps_;
  std::uint64_t fragments_;
  std::uint64_t period_;
};

}  // namespace sparfuse
