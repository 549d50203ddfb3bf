// Carries the first side's measured ratios over to other sides by the model. The remaining
// difference is the part that the profiles of the two systems do not explain.
#pragma once

#include <memory>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/compare/modelled/modelled_side.hpp"

namespace sparfuse::harness {

// The product of two quantities that are known independently. The distance of its ends, in the
// logarithm, is the root of the sum of squares of the two distances. It has no ends if one of the
// two has none. n: of the first.
Interval Product(const Interval& a, const Interval& b);

Interval Inverse(const Interval& of);

// Sets `transported` of every cell of the comparison. Say the first side measured a ratio R, its
// model computes m, and the model of the other side computes M. The predicted ratio of the other
// side is R M / m: the error of the model on the first side (R / m) is assumed to hold on the
// other, too. The residual is the other side's measured ratio over this. The intervals are those of
// the first side's blocks, or of both sides' as for verdicts, combined with the draws of M / m.
//
// models: in the order of the comparison's sides. Throws the errors of damaged profiles; missing
// facts are named in `lacks`.
void CarryOver(SystemComparison& comparison,
               const std::vector<std::unique_ptr<ModelledSide>>& models);

// The number of hosts with ranks in a setting, on a side or, if its trials do not say, on the first
// side.
int HostsOf(const ComparedSetting& setting, std::size_t side);

}  // namespace sparfuse::harness
