// Computes the Euclidean norm, in one order of additions on the host and on devices.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// The sum of x[i]^2 in double precision. Does not depend on the pool's size.
//
// A tile of 8192 elements has eight pieces of 1024. Element i of a piece belongs to lane i % 128,
// which adds up its eight squares in order; lanes are added in fours, (0 + 1) + (2 + 3). That gives
// 32 numbers per piece and 256 per tile, which are added as Block::Sum adds the threads of a block
// (core/device/kernel.hpp). Tile t is added, in order, to number t % 256, and these numbers again
// as a block adds its threads.
double SumSquares(std::span<const float> x, ThreadPool& pool);

// Sets *sum, a word of the device, to SumSquares(x), in the order of `stream`. Does not wait;
// allocates only for a larger x than before. Two launches, one read of x.
void SumSquaresOnDevice(const Stream& stream, DeviceWorkspace& workspace, DeviceSpan<const float> x,
                        double* sum);

// Sets *factor, a word of the device, to ClipFactor(gradient, max_norm) of momentum/momentum.hpp.
// Throws Error{kConfig} unless max_norm > 0. Two launches, one read of the gradient.
void ClipFactorOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                        DeviceSpan<const float> gradient, double max_norm, float* factor);

// The sizes that define the order of additions.
inline constexpr std::size_t kNormThreads = 256;
inline constexpr std::size_t kNormRows = 8;
inline constexpr std::size_t kNormLanes = 128;
inline constexpr std::size_t kNormPiece = kNormRows * kNormLanes;
inline constexpr std::size_t kNormTile = kNormThreads / (kNormLanes / 4) * kNormPiece;
inline std::size_t NormTiles(std::size_t n) { return (n + kNormTile - 1) / kNormTile; }

}  // namespace sparfuse
