// Decompresses: sums the ranks' sparse payloads into a dense average.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/thread_pool.hpp"
#include "core/payload/payload.hpp"

namespace sparfuse {

// out[i] = scale * sum over payloads of their value at i (0 if none has i).
//
//   out       [n] float32, overwritten whole.
//   payloads  index-sorted, indices < n. Added in the order given: equal payloads give equal bits
//             on every rank, whatever the pool's size.
//   window    if given, the payloads cover `whole` elements, and `out` is the part of them that
//             begins with element `first`.
//
// Works block by block, so that a block is summed, scaled and cleared in cache, and `out` is
// written once. Returns false if a sum is NaN or infinite; the sums are written all the same.
// Throws Error{kComm} if an index is out of range or not above its predecessor (a corrupt payload);
// then `out` may have been written, too.
struct Window {
  std::size_t first = 0;
  std::size_t whole = 0;
};
bool AccumulateSparse(std::span<const SparsePayload> payloads, const Window& window, float scale,
                      std::span<float> out, ThreadPool& pool);
bool AccumulateSparse(std::span<const SparsePayload> payloads, float scale, std::span<float> out,
                      ThreadPool& pool);

// out[i] = in[i] * scale;  in may be out. A dense average after an all-reduce.
void ScaleDense(std::span<const float> in, float scale, std::span<float> out, ThreadPool& pool);

// to[i] += from[i].
void AddInto(std::span<const float> from, std::span<float> to);

// The position of the first NaN or infinity; the size if there is none.
std::size_t FirstNotFinite(std::span<const float> values);

// Copies and checks in one pass. Returns false if an element is NaN or infinite.
bool CopyFinite(std::span<const float> from, std::span<float> to, ThreadPool& pool);

// to[i] += from[i]. Returns false if a sum is NaN or infinite.
bool AddFinite(std::span<const float> from, std::span<float> to, ThreadPool& pool);

}  // namespace sparfuse
