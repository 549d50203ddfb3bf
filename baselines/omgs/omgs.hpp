// Decides which gradients OMGS-SGD merges before it selects from them: those for which waiting and
// selecting together cost less than the saved messages. Plans by this rule, with times of a
// profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

// How the first two tensors in ready order are treated.
enum class OmgsFirstPair : std::uint8_t {
  kDecided,  // merged if it pays, as any two: the paper's algorithm
  // Always one unit, while later merges are decided as if the first tensor were sent by itself: the
  // published code, whose loop begins one tensor late.
  kMerged,
};

// [units] how many tensors each unit has, in ready order; they add up to the number of tensors. One
// lane runs backward and selections in turn; the other runs one exchange at a time.
//
// In ready order, consider a unit of x elements whose selection would end at s and whose exchange
// would begin at c. It takes the next gradient, of y elements and b seconds of backward, if
//   b + select(x + y) - select(x) - select(y) - (c - s) < exchange(x) + exchange(y)
//                                                         - exchange(x + y).
// The rule compares neighbours only, and promises nothing about other partitions.
//
// Source: Shi et al., OMGS-SGD, INFOCOM 2020. Pure; a few calls of `select` and `exchange` for each
// tensor. Throws Error{kConfig} as CheckReadyTensors.
std::vector<std::size_t> OmgsUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                   const SecondsOfElements& exchange,
                                   OmgsFirstPair first_pair = OmgsFirstPair::kDecided);

// The paper's model of top-k among `elements`: topk_seconds * x * log2(x).
double OmgsSelectionSeconds(double topk_seconds, std::size_t elements);

// The published model of the exchange of the elements kept from x: one all-gather of values and one
// of indices. Each takes alpha_seconds, and seconds_per_byte for every byte that a rank gathers:
// 2 (alpha + beta * 4 * ranks * density * x) together.
struct OmgsAllGathers {
  double alpha_seconds = 0;
  double seconds_per_byte = 0;
  double density = 1;
  int ranks = 1;

  double operator()(std::size_t elements) const {
    const double gathered_bytes = 4.0 * ranks * (density * static_cast<double>(elements));
    return 2 * (alpha_seconds + seconds_per_byte * gathered_bytes);
  }
};

// Plans with the profile's times of selections and exchanges of merged sizes.
extern const PlannerDescriptor kOmgsPlanner;

}  // namespace sparfuse::baselines
