// Holds sets of positions of a tensor on a device, as bitmaps, and sends the elements there to a
// slot, in index order.
//
// Cost: one launch. If the addition is pending, it reads gradient and residual once, writes the
// residual once, and reads n / 8 bytes of bitmap. Else it touches the bitmap and the sectors of the
// sent elements.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// Scratch of one selection, all zero. Valid until the next ClearDeviceBitmap on the same workspace.
struct DeviceBitmap {
  std::uint32_t* bits = nullptr;  // bit i % 32 of word i / 32 is element i's
  std::uint64_t* told = nullptr;
  std::uint32_t* words = nullptr;  // [kBitmapScratchWords], for the caller
};
inline constexpr std::size_t kBitmapScratchWords = 64;

DeviceBitmap ClearDeviceBitmap(const DeviceContext& context, std::size_t n);

enum class SetBits : std::uint8_t { kSent, kKept };
enum class Sum : std::uint8_t { kPending, kDone };  // gradient + residual and its check

// Moves the elements whose bits are set (kSent), or all others (kKept), from the residual into the
// slot. With kPending adds and checks all of x; else x is the residual, or the gradient if there is
// no residual.
// Precondition: the slot has room for them.
void TakeBitmapOnDevice(const DeviceContext& context, const SelectSource& source,
                        const DeviceBitmap& bitmap, SetBits set_bits, Sum sum, DeviceSlot& slot);

namespace gpu {

// The declarations below sum over the blocks before this one while they run, so that one pass over
// memory computes a prefix sum.
//
// Source: D. Merrill, M. Garland, "Single-pass parallel prefix scan with decoupled look-back",
// NVIDIA technical report, 2016.

// The flags of the word that a block publishes for later blocks. The low half holds its own number
// (kOfBlock) or the sum over all blocks up to it (kOfAll). A word of 0: nothing published yet.
inline constexpr std::uint64_t kOfBlock = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kOfAll = std::uint64_t{2} << 32;

// Returns the sum of `own` over the blocks before this one, to every thread. All threads call it
// with equal `own`. Other writes of those blocks need not be visible afterwards.
//
//   told      [blocks], zero before the kernel.
//   scratch   of the block's shared memory.
SPARFUSE_DEVICE std::uint32_t SumByLookBack(auto& block, std::uint64_t* told, std::uint32_t own,
                                            std::uint32_t* scratch) {
  const unsigned self = block.block();
  if (block.warp() == 0) {
    std::uint32_t before = 0;
    if (block.lane() == 0) block.StoreRelaxed(told + self, (self == 0 ? kOfAll : kOfBlock) | own);
    // Lane l reads the word of block self - 1 - behind - l.
    for (unsigned behind = 0; behind < self; behind += kWarp) {
      std::uint64_t word = kOfAll;
      if (behind + block.lane() < self) {
        const std::uint64_t* const at = told + (self - 1 - behind - block.lane());
        while ((word = block.LoadRelaxed(at)) == 0) block.Pause();
      }
      const std::uint32_t of_all = block.Ballot((word & kOfAll) != 0);
      const auto last = static_cast<unsigned>(of_all == 0 ? kWarp : std::countr_zero(of_all));
      std::uint32_t sum = block.lane() <= last ? static_cast<std::uint32_t>(word) : 0;
      for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) sum += block.ShuffleXor(sum, mask);
      before += sum;
      if (of_all != 0) break;
    }
    if (block.lane() == 0) {
      if (self > 0) block.StoreRelaxed(told + self, kOfAll | (before + own));
      *scratch = before;
    }
  }
  block.Sync();
  return *scratch;
}

// The elements and bitmap words of a block of TakeBitmap. Bit i % 32 of word i / 32 is element i's.
// A bitmap is as long as whole blocks need.
inline constexpr std::uint32_t kBitmapChunk = 8192;
inline constexpr std::uint32_t kBitmapWords = kBitmapChunk / 32;

// Loads four elements from `at` on, and 0 for elements from `end` on. aligned: `from` is aligned to
// 16 bytes, and `at` is a multiple of 4. kKeep: the elements are read again soon.
template <bool kKeep, class Block>
SPARFUSE_DEVICE Float4 LoadFour(const Block& block, const float* from, std::size_t at,
                                std::size_t end, bool aligned) {
  if (aligned && at + 4 <= end) {
    const auto* const four = reinterpret_cast<const Float4*>(from + at);
    return kKeep ? *four : block.LoadStreaming(four);
  }
  Float4 x{};
  for (std::size_t c = 0; c < 4; ++c) {
    if (at + c < end) x.v[c] = from[at + c];
  }
  return x;
}

// Loads four elements each from `at`, `at + stride`, ... on.
template <bool kKeep, unsigned kCount, class Block>
SPARFUSE_DEVICE void LoadFours(const Block& block, const float* from, std::size_t at,
                               std::uint32_t stride, std::size_t end, bool aligned,
                               Float4 (&x)[kCount]) {
  if (aligned && end % 4 == 0) {  // no branch between the loads
    const float* const first = from + at;
    const std::uint32_t left = at < end ? static_cast<std::uint32_t>(end - at) : 0;
    for (unsigned j = 0; j < kCount; ++j) {
      x[j] = {};
      if (j * stride >= left) continue;
      const auto* const four = reinterpret_cast<const Float4*>(first + j * stride);
      x[j] = kKeep ? *four : block.LoadStreaming(four);
    }
    return;
  }
  for (unsigned j = 0; j < kCount; ++j) {
    x[j] = LoadFour<kKeep>(block, from, at + j * stride, end, aligned);
  }
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

// Reports the first element of x that is not finite. It costs one addition an element: the elements
// are examined only if their sum is not finite, as it is also for extremely large ones.
template <unsigned kCount, class Block>
SPARFUSE_DEVICE void CheckFinite(const Block& block, const Float4 (&x)[kCount], std::size_t at,
                                 std::size_t stride, SlotReport* report) {
  float sum = 0;
  for (unsigned j = 0; j < kCount; ++j) {
    for (const float v : x[j].v) sum += std::fabs(v);
  }
  if (KeyOf(sum) < kInfinityKey) return;
  std::uint32_t code = 0;
  for (unsigned j = kCount; j-- > 0;) {
    for (unsigned c = 4; c-- > 0;) {
      if (KeyOf(x[j].v[c]) < kInfinityKey) continue;
      code = NotFiniteCode(static_cast<std::uint32_t>(at + j * stride + c));
    }
  }
  if (code != 0) block.AtomicMax(&report->not_finite, code);
}

// kPending: x = gradient + residual is not in the residual yet, or has not been checked.
template <bool kPending>
struct TakeBitmap {
  static constexpr int kThreads = 256;
  struct Shared {
    std::uint32_t words[kBitmapWords];
    std::uint32_t places[kBitmapWords];  // in the slot, of the first element of each word
    std::uint32_t base;
  };
  static_assert(kThreads == kBitmapWords);

  const float* gradient;
  float* residual;  // null: none
  std::size_t n;
  bool aligned;
  const std::uint32_t* bitmap;
  std::uint32_t flip;   // ~0: takes the elements with a clear bit
  std::uint64_t* told;  // of SumByLookBack
  std::uint32_t* indices;
  float* values;
  SlotReport* report;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::size_t begin = std::size_t{block.block()} * kBitmapChunk;
    const std::size_t end = n - begin < kBitmapChunk ? n : begin + kBitmapChunk;
    // Half of a thread's loads are in flight while it waits for the counts of earlier blocks.
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
  static constexpr unsigned kVectors = kBitmapChunk / 4 / kThreads;

  SPARFUSE_DEVICE void Load(const auto& block, std::size_t begin, std::size_t end, unsigned first,
                            Float4 (&x)[kBatch], Float4 (&old)[kBatch]) const {
    const std::size_t at = begin + std::size_t{first * kThreads + block.thread()} * 4;
    LoadFours<false>(block, gradient, at, 4 * kThreads, end, aligned, x);
    if (residual != nullptr) LoadFours<false>(block, residual, at, 4 * kThreads, end, aligned, old);
  }

  SPARFUSE_DEVICE void Take(const auto& block, const Shared& shared, std::size_t begin,
                            std::size_t end, unsigned first, Float4 (&x)[kBatch],
                            const Float4 (&old)[kBatch]) const {
    for (unsigned j = 0; j < kBatch && residual != nullptr; ++j) {
      for (int c = 0; c < 4; ++c) x[j].v[c] += old[j].v[c];
    }
    CheckFinite(block, x, begin + std::size_t{first * kThreads + block.thread()} * 4, 4 * kThreads,
                report);
    for (unsigned j = 0; j < kBatch; ++j) {
      const unsigned vector = (first + j) * kThreads + block.thread();
      const std::size_t at = begin + std::size_t{vector} * 4;
      const std::uint32_t word = shared.words[vector / 8];
      const unsigned shift = vector % 8 * 4;
      if ((word >> shift & 15) != 0) {
        std::uint32_t place = shared.places[vector / 8] + CountBits(word & ((1u << shift) - 1));
        for (unsigned c = 0; c < 4; ++c) {
          if ((word >> (shift + c) & 1) == 0) continue;
          indices[place] = static_cast<std::uint32_t>(at + c);
          values[place++] = x[j].v[c];
          x[j].v[c] = 0.0f;
        }
      }
      if (residual != nullptr) StoreFour(residual, at, end, aligned, x[j]);
    }
  }
};

}  // namespace gpu
}  // namespace sparfuse
