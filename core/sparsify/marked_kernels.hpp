// The marked elements of a tensor into a slot, in index order, on a device.
//
// Cost: one launch. Pending: one read of gradient and residual, one write of the residual, n / 8
// bytes of bitmap. Else the bitmap and the sectors of what is marked.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/gpu/kernel.hpp"
#include "core/gpu/look_back.hpp"
#include "core/sparsify/on_device.hpp"
#include "core/sparsify/scan_kernels.hpp"

namespace sparfuse::gpu {

// Elements of a block of TakeMarked. Bit i % 32 of word i / 32 is element i's; a bitmap is as long
// as whole blocks need.
inline constexpr std::uint32_t kMarkedChunk = 8192;
inline constexpr std::uint32_t kMarkedWords = kMarkedChunk / 32;

// Four elements from `at` on; 0 from `end` on. aligned: `from` is, and `at` is a multiple of 4.
template <class Block>
SPARFUSE_DEVICE Float4 LoadFour(const Block& block, const float* from, std::size_t at,
                                std::size_t end, bool aligned) {
  if (aligned && at + 4 <= end) {
    return block.LoadStreaming(reinterpret_cast<const Float4*>(from + at));
  }
  Float4 x{};
  for (std::size_t c = 0; c < 4; ++c) {
    if (at + c < end) x.v[c] = block.LoadStreaming(from + at + c);
  }
  return x;
}

// The same of what is read again soon.
SPARFUSE_DEVICE Float4 LoadFourToKeep(const float* from, std::size_t at, std::size_t end,
                                      bool aligned) {
  if (aligned && at + 4 <= end) return *reinterpret_cast<const Float4*>(from + at);
  Float4 x{};
  for (std::size_t c = 0; c < 4; ++c) {
    if (at + c < end) x.v[c] = from[at + c];
  }
  return x;
}

SPARFUSE_DEVICE void StoreFour(float* to, std::size_t at, std::size_t end, bool aligned,
                               const Float4& x) {
  if (aligned && at + 4 <= end) {
    *reinterpret_cast<Float4*>(to + at) = x;
    return;
  }
  for (std::size_t c = 0; c < 4; ++c) {
    if (at + c < end) to[at + c] = x.v[c];
  }
}

// Where four elements from `at` on are not all finite, says so in the report.
template <class Block>
SPARFUSE_DEVICE void CheckFinite(const Block& block, const Float4& x, std::size_t at,
                                 SlotReport* report) {
  std::uint32_t code = 0;
  for (std::size_t c = 4; c-- > 0;) {
    if (KeyOf(x.v[c]) >= kInfinityKey) code = NotFiniteCode(static_cast<std::uint32_t>(at + c));
  }
  if (code != 0) block.AtomicMax(&report->not_finite, code);
}

// kPending: x = gradient + residual is not in the residual yet, or has not been checked.
template <bool kPending>
struct TakeMarked {
  static constexpr const char* kName = "TakeMarked";
  static constexpr int kThreads = 256;
  struct Shared {
    std::uint32_t words[kMarkedWords];
    std::uint32_t places[kMarkedWords];  // in the slot, of the first element of each word
    std::uint32_t base;
  };
  static_assert(kThreads == kMarkedWords);

  const float* gradient;
  float* residual;  // null: none
  std::size_t n;
  bool aligned;
  const std::uint32_t* bitmap;
  std::uint32_t flip;   // ~0: what is not marked is taken
  std::uint64_t* told;  // of SumByLookBack
  std::uint32_t* indices;
  float* values;
  SlotReport* report;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::size_t begin = std::size_t{block.block()} * kMarkedChunk;
    const std::size_t end = n - begin < kMarkedChunk ? n : begin + kMarkedChunk;
    // Half of what a thread reads is under way while the blocks before are asked for their counts.
    Float4 x[kBatch];
    Float4 old[kBatch];
    if constexpr (kPending) Load(block, begin, end, 0, x, old);

    const unsigned t = block.thread();
    std::uint32_t word = bitmap[begin / 32 + t] ^ flip;
    const std::size_t of_word = begin + std::size_t{t} * 32;
    if (of_word + 32 > end) word &= of_word < end ? (1u << (end - of_word)) - 1 : 0;
    std::uint32_t total = 0;
    const std::uint32_t before = block.ExclusiveSum(CountBits(word), &total);
    const std::uint32_t base = SumByLookBack(block, told, total, &shared.base);
    if (t == 0 && block.block() + 1 == block.blocks()) report->count = base + total;

    if constexpr (kPending) {
      shared.words[t] = word;
      shared.places[t] = base + before;
      block.Sync();
      Take(block, shared, begin, end, 0, x, old);
      for (unsigned first = kBatch; first < kVectors; first += kBatch) {
        Load(block, begin, end, first, x, old);
        Take(block, shared, begin, end, first, x, old);
      }
    } else {
      const float* const from = residual == nullptr ? gradient : residual;
      std::uint32_t place = base + before;
      for (; word != 0; word &= word - 1) {
        const std::size_t at = of_word + static_cast<unsigned>(std::countr_zero(word));
        indices[place] = static_cast<std::uint32_t>(at);
        values[place++] = from[at];
        if (residual != nullptr) residual[at] = 0.0f;
      }
    }
  }

 private:
  static constexpr unsigned kBatch = 4;
  static constexpr unsigned kVectors = kMarkedChunk / 4 / kThreads;

  template <class Block>
  SPARFUSE_DEVICE void Load(const Block& block, std::size_t begin, std::size_t end, unsigned first,
                            Float4* x, Float4* old) const {
    for (unsigned j = 0; j < kBatch; ++j) {
      const std::size_t at = begin + std::size_t{(first + j) * kThreads + block.thread()} * 4;
      x[j] = LoadFour(block, gradient, at, end, aligned);
      if (residual != nullptr) old[j] = LoadFour(block, residual, at, end, aligned);
    }
  }

  template <class Block>
  SPARFUSE_DEVICE void Take(const Block& block, const Shared& shared, std::size_t begin,
                            std::size_t end, unsigned first, Float4* x, Float4* old) const {
    for (unsigned j = 0; j < kBatch; ++j) {
      const unsigned vector = (first + j) * kThreads + block.thread();
      const std::size_t at = begin + std::size_t{vector} * 4;
      for (int c = 0; c < 4 && residual != nullptr; ++c) x[j].v[c] += old[j].v[c];
      CheckFinite(block, x[j], at, report);
      const std::uint32_t word = shared.words[vector / 8];
      const unsigned shift = vector % 8 * 4;
      const std::uint32_t before = word & ((1u << shift) - 1);
      std::uint32_t place = shared.places[vector / 8] + CountBits(before);
      for (unsigned c = 0; c < 4; ++c) {
        if ((word >> (shift + c) & 1) == 0) continue;
        indices[place] = static_cast<std::uint32_t>(at + c);
        values[place++] = x[j].v[c];
        x[j].v[c] = 0.0f;
      }
      if (residual != nullptr) StoreFour(residual, at, end, aligned, x[j]);
    }
  }
};

}  // namespace sparfuse::gpu
