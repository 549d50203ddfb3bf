// Multiplies matrices on the host with simple code: a measure of a core, not of a library.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/thread_pool.hpp"

namespace sparfuse::harness {

// c = a b in single precision, all [side x side], row by row. Blocks of 64 x 64, the innermost loop
// over a row of b; multiplications and additions of the processor's base instructions, so that all
// processors of an architecture run the same ones. 2 side^3 operations.
void MultiplyOnHost(std::span<const float> a, std::span<const float> b, std::span<float> c,
                    std::size_t side, ThreadPool& pool);

}  // namespace sparfuse::harness
