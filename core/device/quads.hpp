// Walks over arrays of floats in kernels, four at a time, with any alignment. Uses one 16-byte
// access if the arrays allow it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"

namespace sparfuse::gpu {

// Stores 16 bytes at once to an aligned address in global memory. (The compiler splits a plain copy
// next to a branch that stores the same elements one by one.)
SPARFUSE_DEVICE void StoreQuad(float* at, const Float4& group) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(at)), "f"(group.v[0]), "f"(group.v[1]),
                 "f"(group.v[2]), "f"(group.v[3])
               : "memory");
#else
  *reinterpret_cast<Float4*>(at) = group;
#endif
}

// Arrays of n < 2^32 elements as groups of four. If all arrays have the same offset from a 16-byte
// boundary, groups are aligned to 16 bytes, and the first and the last may be partial. Elements of
// a group that lie outside the arrays load as 0 and are not stored.
struct Quads {
  std::size_t n = 0;
  std::uint32_t skew = 0;         // elements of the first group that lie before the arrays
  std::uint32_t first_whole = 0;  // the first group that one access loads or stores
  std::uint32_t whole = 0;        // the number of such groups

  Quads() = default;
  // aligned: every array begins `skew` elements behind a 16-byte boundary.
  Quads(std::size_t size, std::uint32_t elements_before, bool aligned)
      : n(size), skew(elements_before), first_whole(elements_before == 0 ? 0 : 1) {
    const auto end = static_cast<std::uint32_t>((n + skew) / 4);
    whole = aligned && end > first_whole ? end - first_whole : 0;
  }

  SPARFUSE_HOST_DEVICE std::uint32_t count() const {
    return static_cast<std::uint32_t>((n + skew + 3) / 4);
  }

  // The array's index of element v of group q; wraps below 0, so that it is not below n there.
  SPARFUSE_HOST_DEVICE std::size_t At(std::uint32_t q, unsigned v) const {
    return 4 * std::size_t{q} + v - skew;
  }

  SPARFUSE_HOST_DEVICE bool Whole(std::uint32_t q) const { return q - first_whole < whole; }

  SPARFUSE_DEVICE Float4 Load(const float* x, std::uint32_t q) const {
    if (Whole(q)) return *reinterpret_cast<const Float4*>(x + At(q, 0));
    Float4 group;
    for (unsigned v = 0; v < 4; ++v) group.v[v] = At(q, v) < n ? x[At(q, v)] : 0.0f;
    return group;
  }

  SPARFUSE_DEVICE void Store(float* x, std::uint32_t q, const Float4& group) const {
    if (Whole(q)) {
      StoreQuad(x + At(q, 0), group);
      return;
    }
    for (unsigned v = 0; v < 4; ++v) {
      if (At(q, v) < n) x[At(q, v)] = group.v[v];
    }
  }
};

// Returns the groups of arrays of n elements that begin at these addresses; null for an absent one.
template <class... Arrays>
Quads QuadsOf(std::size_t n, const Arrays*... arrays) {
  constexpr std::uintptr_t kBytes = sizeof(Float4);
  std::uintptr_t skews = 0;  // bit s: an array has the skew s
  ((skews |= arrays == nullptr ? 0
                               : std::uintptr_t{1} << reinterpret_cast<std::uintptr_t>(arrays) %
                                                          kBytes / sizeof(float)),
   ...);
  for (std::uint32_t skew = 0; skew < 4; ++skew) {
    if (skews == std::uintptr_t{1} << skew) return Quads(n, skew, true);
  }
  return Quads(n, 0, false);
}

// A block of an elementwise kernel takes kQuadsPerThread groups a thread. A thread starts all its
// loads before it uses the first.
inline constexpr int kElementwiseThreads = 256;
inline constexpr int kQuadsPerThread = 4;
inline std::size_t ElementwiseBlocks(const Quads& quads) {
  constexpr std::size_t kPerBlock = kElementwiseThreads * kQuadsPerThread;
  return (quads.count() + kPerBlock - 1) / kPerBlock;
}
// The index of the calling thread's j-th group.
SPARFUSE_DEVICE std::uint32_t ElementwiseQuad(const auto& block, int j) {
  return (block.block() * kQuadsPerThread + static_cast<unsigned>(j)) * kElementwiseThreads +
         block.thread();
}

}  // namespace sparfuse::gpu
