// Declares DeMo's exchange: every rank sends the largest coefficients of its momentum's cosine
// transform, and all ranks transform the sum back.
//
// Source:      B. Peng, J. Quesnelle & D. P. Kingma, DeMo: Decoupled Momentum Optimization, arXiv
//              2411.19870, Algorithm 1.
// Deviations:  in the descriptor.
//
// For a rank's momentum of a unit (x = rate * gradient + decay * momentum):
//
//   C = the transform of each tensor's tiles. The k largest magnitudes of each tile are sent, and
//       their part leaves the momentum: x - inverse(sent)
//   all-gather of the sent coefficients of all ranks
//   applied: inverse(their sum)
//
// A payload, little-endian, has the same number of elements on all ranks, and no counts. First come
// indices within their tiles in 12 bits each, ascending in a tile, tile after tile and tensor after
// tensor, padded with zeros to 4 bytes; then the same number of f32 values.
#pragma once

#include <cstddef>

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// Bytes of a payload of `count` coefficients.
std::size_t CoefficientBytes(std::size_t count);

// Options: `k`, coefficients of a tile; `tile`, its sides, and `tiles`, how dimensions are cut into
// them; `combine`, the divisor of a sum of coefficients.
CollectiveDescriptor DemoCoefficients();

}  // namespace sparfuse::baselines
