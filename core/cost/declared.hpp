// Makes a profile that is declared where none was measured.
#pragma once

#include <string>

#include "core/cost/cost_model.hpp"

namespace sparfuse {

// A link of `gbps` (10^9 bit/s) and alpha_seconds a message, and 1 us plus 1 ns an element for any
// local work: packing, encoding with any quantizer, selecting with any sparsifier of core or the
// one called `sparsifier`, whatever the density.
CostModel DeclaredCost(double gbps, double alpha_seconds, const std::string& sparsifier = {});

}  // namespace sparfuse
