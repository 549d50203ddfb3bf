// Carries the first side's measured ratios over to other sides by the model. The remaining
// difference is the part that the profiles of the two systems do not explain.
#pragma once

#include <memory>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/compare/modelled/modelled_side.hpp"

namespace sparfuse::harness {

// Of two quantities that are known independently: ends are as far from the product as the root of
// the sum of squares of how far the ends of each are from it, as logarithms. Without ends where
// either has none. n: of the first.
Interval Product(const Interval& a, const Interval& b);

Interval Inverse(const Interval& of);

// Sets `transported` of every cell of the comparison. A ratio R of the first side, which its model
// says is m, becomes R M / m where the model of the other side says M: what the model does not know
// of a method on the first side (R / m) is taken to hold on the other one, too. The residual is
// what that side measured, over this. Intervals: of the first's blocks, or of both sides' as
// verdicts have them, and of the draws of M / m.
//
// models: as the comparison's sides. Throws what damaged profiles throw; what is missing stands in
// `lacks`.
void CarryOver(SystemComparison& comparison,
               const std::vector<std::unique_ptr<ModelledSide>>& models);

// Hosts that a setting's ranks were on, of a side or, where its trials do not say, of the first.
int HostsOf(const ComparedSetting& setting, std::size_t side);

}  // namespace sparfuse::harness
