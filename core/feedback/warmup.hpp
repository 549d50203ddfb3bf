// Warms the density up: the first epochs send more.
//
// Source: Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.3, and the authors'
// code.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace sparfuse {

struct DensityWarmup {
  std::size_t epochs = 0;            // W; 0: no warm-up
  std::optional<double> factor;      // w in (0, 1]; by default density^(1 / (W + 1))
  std::span<const double> schedule;  // instead of w: the density of each of the W epochs
};

// The density of an epoch, counted from 0: max(w^(epoch + 1), density), or schedule[epoch], for
// epoch < W, then `density`. Throws Error{kConfig} for a density or factor outside (0, 1], a
// schedule shorter than W, and a factor beside a schedule.
double WarmupDensity(std::size_t epoch, double density, const DensityWarmup& warmup);

}  // namespace sparfuse
