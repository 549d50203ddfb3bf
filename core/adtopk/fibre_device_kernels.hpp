// Top-k in each fibre of a tensor by itself (fibres.hpp), on a device.
//
// SelectTiles   a block takes whole slices of at most kTile elements into shared memory, and a warp
//               a fibre there; a thread one of at most 32 elements. One launch, one read of x.
// SelectRows    a block takes a contiguous fibre of any length, and reads it again from L1. One
//               launch; one read of x as long as L1 holds the fibres that are in work (5120
//               elements are 20 kB; it holds eight of them), one more of L2 beyond.
// Transpose     makes fibres contiguous whose slices are larger than a tile: one read and one write
//               more, and then the selected positions as a bitmap (marked_kernels.hpp).
// With feedback the residual is read and written besides, once.
//
// The bound of a fibre needs no sample and cannot fail: its elements are dealt out to lanes, of
// which each has a largest one, and k elements reach the k-th largest of those. Of 512 elements
// with k = 5 that leaves 6, of 5120 with k = 51 some 70, which a histogram of 128 bins cuts, as a
// rule at once. What comes to an element is then 20 or so instructions in a tile, 12 in a row.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/gpu/kernel.hpp"
#include "core/sparsify/marked_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr std::uint32_t kTile = 8192;       // elements of x in shared memory
inline constexpr std::uint32_t kThreadFibre = 32;  // longest that a thread selects from
inline constexpr std::uint32_t kMostMaxima = 64;   // of a warp: two for each lane
inline constexpr std::uint32_t kCutBins = 128;
inline constexpr int kCutBits = 7;

// Bins of a histogram, with a gap after every 32: lanes read four neighbouring ones each.
struct CutBins {
  std::uint32_t counts[kCutBins + kCutBins / 32];

  SPARFUSE_DEVICE std::uint32_t& At(std::uint32_t bin) { return counts[bin + bin / 32]; }
};

// Selected is what has a greater key, and `ties` of those with an equal one by position.
struct FibreCut {
  std::uint32_t key;
  std::uint32_t ties;
};
inline constexpr std::uint32_t kEveryTie = 0xffffffffu;

// Ascending over the lanes. merge_only: of a bitonic sequence.
template <class Block>
SPARFUSE_DEVICE std::uint32_t SortLanes(const Block& block, std::uint32_t key,
                                        bool merge_only = false) {
  for (unsigned size = merge_only ? kWarp : 2; size <= kWarp; size *= 2) {
    for (unsigned stride = size / 2; stride > 0; stride /= 2) {
      const std::uint32_t other = block.ShuffleXor(key, stride);
      const bool ascending = (block.lane() & size) == 0;
      const bool low = (block.lane() & stride) == 0;
      key = (low == ascending) == (key < other) ? key : other;
    }
  }
  return key;
}

template <class Block>
SPARFUSE_DEVICE std::uint32_t SumOfWarp(const Block& block, std::uint32_t value) {
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value += block.ShuffleXor(value, mask);
  return value;
}

// The sum over the lanes before.
template <class Block>
SPARFUSE_DEVICE std::uint32_t SumOfLanesBefore(const Block& block, std::uint32_t value) {
  std::uint32_t sum = value;
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const std::uint32_t up = block.ShuffleUp(sum, distance);
    if (block.lane() >= distance) sum += up;
  }
  return sum - value;
}

// What a warp knows of its elements before it looks at them again.
struct Bound {
  std::uint32_t key;  // at least `rank` of them reach it
  std::uint32_t top;  // the largest
};

// From the largest key that each lane has seen, and its second largest where rank > 32. With a rank
// beyond kMostMaxima: 0.
template <class Block>
SPARFUSE_DEVICE Bound BoundOfWarp(const Block& block, std::uint32_t largest, std::uint32_t second,
                                  std::uint32_t rank) {
  const std::uint32_t sorted = SortLanes(block, largest);
  const std::uint32_t top = block.Shuffle(sorted, kWarp - 1);
  if (rank <= kWarp) return {block.Shuffle(sorted, kWarp - rank), top};
  if (rank > kMostMaxima) return {0, top};
  // The 32 smallest of both, which are a bitonic sequence.
  const std::uint32_t reversed = block.Shuffle(SortLanes(block, second), kWarp - 1 - block.lane());
  const std::uint32_t low = SortLanes(block, std::min(sorted, reversed), true);
  return {block.Shuffle(low, kMostMaxima - rank), top};
}

// The search for the cut of k elements among those with keys in [bound, top], in rounds: after Bin
// of every element, FinishRound, which all warps that share the bins call alike.
class CutSearch {
 public:
  SPARFUSE_DEVICE CutSearch(const Bound& bound, std::uint32_t k)
      : low_(bound.key), bits_(std::bit_width(bound.top - bound.key)), need_(k) {
    NextShift();
  }

  // Whether the element counts, and where.
  SPARFUSE_DEVICE bool Bin(std::uint32_t key, std::uint32_t* bin) const {
    const std::uint32_t above = key - low_;
    *bin = above >> shift_;
    return key >= low_ && (above >> bits_) == 0;
  }

  // Returns whether the cut is found.
  template <class Block>
  SPARFUSE_DEVICE bool FinishRound(const Block& block, CutBins& bins) {
    constexpr std::uint32_t kEach = kCutBins / kWarp;
    const std::uint32_t from_top = kCutBins - 1 - block.lane() * kEach;
    std::uint32_t counts[kEach];
    std::uint32_t sum = 0;
    for (std::uint32_t j = 0; j < kEach; ++j) sum += counts[j] = bins.At(from_top - j);
    std::uint32_t before = SumOfLanesBefore(block, sum);
    const bool here = before < need_ && need_ <= before + sum;
    const auto lane = static_cast<unsigned>(std::countr_zero(block.Ballot(here)));
    std::uint32_t bin = 0;
    std::uint32_t inside = 0;
    for (std::uint32_t j = 0; j < kEach; ++j) {
      if (need_ > before && inside == 0 && need_ <= before + counts[j]) {
        bin = from_top - j;
        inside = counts[j];
      }
      if (inside == 0) before += counts[j];
    }
    bin = block.Shuffle(bin, lane);
    inside = block.Shuffle(inside, lane);
    need_ -= block.Shuffle(before, lane);
    low_ += bin << shift_;
    bits_ = shift_;
    exact_ = inside == need_;
    const bool found = exact_ || shift_ == 0;
    NextShift();
    return found;
  }

  SPARFUSE_DEVICE FibreCut cut() const { return {low_, exact_ ? kEveryTie : need_}; }

 private:
  SPARFUSE_DEVICE void NextShift() { shift_ = bits_ > kCutBits ? bits_ - kCutBits : 0; }

  std::uint32_t low_;
  int bits_;  // keys of [low_, low_ + 2^bits_) are left
  int shift_ = 0;
  std::uint32_t need_;  // of those
  bool exact_ = false;
};

// Where the selected elements of contiguous fibres lie in the tensor that they are from.
struct FibreOrigin {
  std::uint32_t length;
  std::uint32_t inner;

  SPARFUSE_DEVICE std::size_t operator()(std::size_t fibre, std::uint32_t element) const {
    return (fibre / inner * length + element) * inner + fibre % inner;
  }
};

// What both kernels select from, and where what they select goes. kMarks: into a bitmap of the
// tensor that the fibres were transposed from, for TakeMarked; else into the slot.
template <bool kMarks>
struct FibreSource {
  const float* gradient;
  float* residual;  // null: none
  bool pending;     // x = gradient + residual; else x is in `gradient`, which has been checked
  bool aligned;
  std::size_t n;
  std::uint32_t length;
  std::uint32_t k;  // of each fibre, less than its length
  std::uint32_t* indices;
  float* values;
  SlotReport* report;
  std::uint32_t* bitmap;
  FibreOrigin origin;
};

template <bool kMarks>
struct SelectTiles {
  static constexpr const char* kName = "SelectTiles";
  static constexpr int kThreads = 256;
  static constexpr unsigned kWarps = kThreads / kWarp;
  static constexpr unsigned kVectors = kTile / 4 / kThreads;
  static constexpr unsigned kBatch = 4;
  static constexpr unsigned kLongest = kTile / 2;  // of a fibre beside another
  struct Shared {
    alignas(16) float x[kTile];
    std::uint32_t marks[kTile / 32];
    struct {
      CutBins bins;
      std::uint32_t words[kLongest / 32];  // candidates of a fibre
    } warps[kWarps];
  };
  static_assert(kThreads == kTile / 32);

  FibreSource<kMarks> source;
  std::uint32_t inner;   // 1 with kMarks
  std::uint32_t slices;  // of a tile

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::uint32_t slice = source.length * inner;
    const std::size_t begin = std::size_t{block.block()} * slices * slice;
    const std::size_t left = source.n - begin;
    const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(left, slices * slice));
    shared.marks[block.thread()] = 0;
    for (unsigned first = 0; first < kVectors; first += kBatch)
      Load(block, shared, begin, size, first);
    block.Sync();

    const std::uint32_t fibres = size / source.length;
    if (source.length <= kThreadFibre) {
      for (std::uint32_t f = block.thread(); f < fibres; f += kThreads) {
        SelectByThread(block, shared, f / inner * slice + f % inner);
      }
    } else {
      for (std::uint32_t f = block.warp(); f < fibres; f += kWarps) {
        SelectByWarp(block, shared, f / inner * slice + f % inner);
      }
    }
    block.Sync();

    const std::uint32_t word = shared.marks[block.thread()];
    if constexpr (kMarks) {
      for (std::uint32_t bits = word; bits != 0; bits &= bits - 1) {
        const std::size_t at = begin + PositionOf(block, bits);
        const std::size_t origin =
            source.origin(at / source.length, static_cast<std::uint32_t>(at % source.length));
        block.AtomicOr(source.bitmap + origin / 32, 1u << (origin % 32));
      }
    } else {
      std::uint32_t total = 0;
      std::size_t place =
          begin / source.length * source.k + block.ExclusiveSum(CountBits(word), &total);
      for (std::uint32_t bits = word; bits != 0; bits &= bits - 1) {
        const std::uint32_t at = PositionOf(block, bits);
        source.indices[place] = static_cast<std::uint32_t>(begin + at);
        source.values[place++] = shared.x[at];
      }
      if (begin + size == source.n && block.thread() == 0) {
        source.report->count = static_cast<std::uint32_t>(source.n / source.length * source.k);
      }
      if (source.residual != nullptr) StoreResidual(block, shared, begin, size);
    }
  }

 private:
  template <class Block>
  SPARFUSE_DEVICE std::uint32_t PositionOf(const Block& block, std::uint32_t bits) const {
    return block.thread() * 32 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }

  template <class Block>
  SPARFUSE_DEVICE void Load(const Block& block, Shared& shared, std::size_t begin,
                            std::uint32_t size, unsigned first) const {
    const std::size_t end = begin + size;
    const bool add = source.pending && source.residual != nullptr;
    Float4 x[kBatch];
    Float4 old[kBatch];
    for (unsigned j = 0; j < kBatch; ++j) {
      const std::size_t at = begin + ((first + j) * kThreads + block.thread()) * 4;
      x[j] = LoadFour(block, source.gradient, at, end, source.aligned);
      if (add) old[j] = LoadFour(block, source.residual, at, end, source.aligned);
    }
    for (unsigned j = 0; j < kBatch; ++j) {
      const std::uint32_t at = ((first + j) * kThreads + block.thread()) * 4;
      for (int c = 0; c < 4 && add; ++c) x[j].v[c] += old[j].v[c];
      if (source.pending) CheckFinite(block, x[j], begin + at, source.report);
      *reinterpret_cast<Float4*>(shared.x + at) = x[j];
    }
  }

  // x without what is sent.
  template <class Block>
  SPARFUSE_DEVICE void StoreResidual(const Block& block, const Shared& shared, std::size_t begin,
                                     std::uint32_t size) const {
    for (std::uint32_t at = block.thread() * 4; at < size; at += 4 * kThreads) {
      Float4 x = *reinterpret_cast<const Float4*>(shared.x + at);
      const std::uint32_t marks = shared.marks[at / 32] >> (at % 32);
      for (unsigned c = 0; c < 4; ++c) {
        if ((marks >> c & 1) != 0) x.v[c] = 0.0f;
      }
      StoreFour(source.residual, begin + at, begin + size, source.aligned, x);
    }
  }

  template <class Block>
  SPARFUSE_DEVICE void Mark(const Block& block, Shared& shared, std::uint32_t at) const {
    block.AtomicOr(shared.marks + at / 32, 1u << (at % 32));
  }

  // The largest of those not taken yet, k times.
  template <class Block>
  SPARFUSE_DEVICE void SelectByThread(const Block& block, Shared& shared,
                                      std::uint32_t first) const {
    std::uint32_t taken = 0;
    for (std::uint32_t round = 0; round < source.k; ++round) {
      std::uint32_t best = source.length;
      std::uint32_t largest = 0;
      for (std::uint32_t c = 0; c < source.length; ++c) {
        if ((taken >> c & 1) != 0) continue;
        const std::uint32_t key = KeyOf(shared.x[first + c * inner]);
        if (best < source.length && key <= largest) continue;
        best = c;
        largest = key;
      }
      taken |= 1u << best;
      Mark(block, shared, first + best * inner);
    }
  }

  template <class Block>
  SPARFUSE_DEVICE void SelectByWarp(const Block& block, Shared& shared, std::uint32_t first) const {
    const std::uint32_t length = source.length;
    const float* const x = shared.x + first;
    const unsigned lane = block.lane();
    std::uint32_t largest = 0;
    std::uint32_t second = 0;
    if (source.k <= kWarp) {
      for (std::uint32_t c = lane; c < length; c += kWarp) {
        largest = std::max(largest, KeyOf(x[c * inner]));
      }
    } else {
      for (std::uint32_t c = lane; c < length; c += kWarp) {
        const std::uint32_t key = KeyOf(x[c * inner]);
        second = std::max(second, std::min(key, largest));
        largest = std::max(largest, key);
      }
    }
    const Bound bound = BoundOfWarp(block, largest, second, source.k);

    // Which elements reach it, 32 in a word; a lane has every 32nd word.
    auto& own = shared.warps[block.warp()];
    const std::uint32_t words = (length + 31) / 32;
    std::uint32_t count = 0;
    for (std::uint32_t w = 0; w < words; ++w) {
      const std::uint32_t c = w * 32 + lane;
      const std::uint32_t reach = block.Ballot(c < length && KeyOf(x[c * inner]) >= bound.key);
      if (w % kWarp == lane) {
        own.words[w] = reach;
        count += CountBits(reach);
      }
    }
    const FibreCut cut = SumOfWarp(block, count) == source.k
                             ? FibreCut{bound.key, kEveryTie}
                             : Search(block, own.bins, own.words, words, x, bound);
    // Words of neighbouring lanes follow one another: ties are given out in the order of positions.
    std::uint32_t ties = cut.ties;
    for (std::uint32_t begin = 0; begin < words; begin += kWarp) {
      const std::uint32_t w = begin + lane;
      const std::uint32_t word = w < words ? own.words[w] : 0;
      std::uint32_t equal = 0;
      if (cut.ties != kEveryTie) {
        for (std::uint32_t bits = word; bits != 0; bits &= bits - 1) {
          equal += KeyOf(x[ElementOf(w, bits) * inner]) == cut.key ? 1 : 0;
        }
        const std::uint32_t before = SumOfLanesBefore(block, equal);
        const std::uint32_t all = SumOfWarp(block, equal);
        equal = ties > before ? ties - before : 0;  // from here on: how many this lane may take
        ties -= std::min(ties, all);
      }
      for (std::uint32_t bits = word; bits != 0; bits &= bits - 1) {
        const std::uint32_t at = ElementOf(w, bits) * inner;
        const std::uint32_t key = KeyOf(x[at]);
        if (key < cut.key) continue;
        if (key == cut.key && cut.ties != kEveryTie) {
          if (equal == 0) continue;
          --equal;
        }
        Mark(block, shared, first + at);
      }
    }
  }

  static SPARFUSE_DEVICE std::uint32_t ElementOf(std::uint32_t word, std::uint32_t bits) {
    return word * 32 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }

  template <class Block>
  SPARFUSE_DEVICE FibreCut Search(const Block& block, CutBins& bins,
                                  const std::uint32_t* candidates, std::uint32_t words,
                                  const float* x, const Bound& bound) const {
    CutSearch search(bound, source.k);
    bool found = false;
    while (!found) {
      for (std::uint32_t b = block.lane(); b < kCutBins; b += kWarp) bins.At(b) = 0;
      block.SyncWarp();
      for (std::uint32_t w = block.lane(); w < words; w += kWarp) {
        for (std::uint32_t bits = candidates[w]; bits != 0; bits &= bits - 1) {
          std::uint32_t bin = 0;
          if (search.Bin(KeyOf(x[ElementOf(w, bits) * inner]), &bin)) {
            block.AtomicAdd(&bins.At(bin), 1u);
          }
        }
      }
      block.SyncWarp();
      found = search.FinishRound(block, bins);
      block.SyncWarp();
    }
    return search.cut();
  }
};

// Blocks of 256 or 1024 threads: the latter where k asks for more maxima.
template <bool kMarks, int Threads>
struct SelectRows {
  static constexpr const char* kName = "SelectRows";
  static constexpr int kThreads = Threads;
  static constexpr unsigned kWarps = kThreads / kWarp;
  static constexpr std::uint32_t kSegmentWords = 256;  // of what is sent at once
  struct Shared {
    Bound bounds[kWarps];
    std::uint32_t equal[kWarps];
    CutBins bins;
    std::uint32_t marks[kSegmentWords];
  };

  FibreSource<kMarks> source;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::size_t row = block.block();
    const std::size_t begin = row * source.length;
    // Each warp has a part of the row, in order.
    const std::uint32_t share = ((source.length + kWarps - 1) / kWarps + 3) / 4 * 4;
    const std::uint32_t first = std::min(source.length, block.warp() * share);
    const std::uint32_t last = std::min(source.length, first + share);
    const unsigned parts = (source.length + share - 1) / share;
    const std::uint32_t rank = (source.k + parts - 1) / parts;
    const Bound own = Measure(block, begin, first, last, rank);
    if (block.lane() == 0) shared.bounds[block.warp()] = own;
    block.Sync();
    Bound bound = shared.bounds[0];
    for (unsigned w = 1; w < parts; ++w) {
      bound.key = std::min(bound.key, shared.bounds[w].key);
      bound.top = std::max(bound.top, shared.bounds[w].top);
    }

    const float* const x =
        (source.pending && source.residual != nullptr ? source.residual : source.gradient) + begin;
    const FibreCut cut = Search(block, shared.bins, x, first, last, bound);
    std::uint32_t ties = cut.ties;
    std::size_t place = row * source.k;
    for (std::uint32_t from = 0; from < source.length; from += kSegmentWords * 32) {
      MarkSegment(block, shared, x, from, cut, &ties);
      block.Sync();
      const unsigned t = block.thread();
      const std::uint32_t word = t < kSegmentWords ? shared.marks[t] : 0;
      std::uint32_t total = 0;
      std::size_t at_place = place + block.ExclusiveSum(CountBits(word), &total);
      for (std::uint32_t bits = word; bits != 0; bits &= bits - 1) {
        const std::uint32_t c = from + t * 32 + static_cast<std::uint32_t>(std::countr_zero(bits));
        if constexpr (kMarks) {
          const std::size_t origin = source.origin(row, c);
          block.AtomicOr(source.bitmap + origin / 32, 1u << (origin % 32));
        } else {
          source.indices[at_place] = static_cast<std::uint32_t>(begin + c);
          source.values[at_place++] = x[c];
          if (source.residual != nullptr) source.residual[begin + c] = 0.0f;
        }
      }
      place += total;
    }
    if (!kMarks && row + 1 == block.blocks() && block.thread() == 0) {
      source.report->count = static_cast<std::uint32_t>(place);
    }
  }

 private:
  static constexpr unsigned kBatch = 4;

  // The pending addition and the check of a warp's part, and its bound.
  template <class Block>
  SPARFUSE_DEVICE Bound Measure(const Block& block, std::size_t begin, std::uint32_t first,
                                std::uint32_t last, std::uint32_t rank) const {
    const bool add = source.pending && source.residual != nullptr;
    const std::size_t end = begin + last;
    std::uint32_t largest = 0;
    std::uint32_t second = 0;
    for (std::size_t at = begin + first; at < end; at += kBatch * 4 * kWarp) {
      Float4 x[kBatch];
      Float4 old[kBatch];
      for (unsigned j = 0; j < kBatch; ++j) {
        const std::size_t mine = at + (j * kWarp + block.lane()) * 4;
        x[j] = LoadFourToKeep(source.gradient, mine, end, source.aligned);
        if (add) old[j] = LoadFourToKeep(source.residual, mine, end, source.aligned);
      }
      for (unsigned j = 0; j < kBatch; ++j) {
        const std::size_t mine = at + (j * kWarp + block.lane()) * 4;
        for (int c = 0; c < 4 && add; ++c) x[j].v[c] += old[j].v[c];
        std::uint32_t key = 0;
        for (float v : x[j].v) key = std::max(key, KeyOf(v));
        // Four at a time: these are groups of which only the largest counts.
        second = std::max(second, std::min(key, largest));
        largest = std::max(largest, key);
        if (source.pending && key >= kInfinityKey) CheckFinite(block, x[j], mine, source.report);
        if (add) StoreFour(source.residual, mine, end, source.aligned, x[j]);
      }
    }
    return BoundOfWarp(block, largest, second, rank);
  }

  template <class Block>
  SPARFUSE_DEVICE FibreCut Search(Block& block, CutBins& bins, const float* x, std::uint32_t first,
                                  std::uint32_t last, const Bound& bound) const {
    CutSearch search(bound, source.k);
    bool found = false;
    while (!found) {
      if (block.thread() < kCutBins) bins.At(block.thread()) = 0;
      block.Sync();
      for (std::uint32_t c = first + block.lane(); c < last; c += kWarp) {
        std::uint32_t bin = 0;
        if (search.Bin(KeyOf(x[c]), &bin)) block.AtomicAdd(&bins.At(bin), 1u);
      }
      block.Sync();
      found = search.FinishRound(block, bins);
      block.Sync();
    }
    return search.cut();
  }

  // What is selected of the elements [from, from + 32 * kSegmentWords). ties: how many are left.
  template <class Block>
  SPARFUSE_DEVICE void MarkSegment(Block& block, Shared& shared, const float* x, std::uint32_t from,
                                   const FibreCut& cut, std::uint32_t* ties) const {
    const std::uint32_t left_words = (source.length - from + 31) / 32;
    const std::uint32_t words = left_words < kSegmentWords ? left_words : kSegmentWords;
    const std::uint32_t share = (words + kWarps - 1) / kWarps;
    const std::uint32_t begin = std::min(words, block.warp() * share);
    const std::uint32_t end = std::min(words, begin + share);
    const auto key_at = [&](std::uint32_t w) {
      const std::uint32_t c = from + w * 32 + block.lane();
      return c < source.length ? KeyOf(x[c]) : 0;
    };
    std::uint32_t left = kEveryTie;
    if (cut.ties != kEveryTie) {
      std::uint32_t equal = 0;
      for (std::uint32_t w = begin; w < end; ++w) {
        equal += CountBits(block.Ballot(key_at(w) == cut.key && InRow(block, from, w)));
      }
      if (block.lane() == 0) shared.equal[block.warp()] = equal;
      block.Sync();
      std::uint32_t before = 0;
      std::uint32_t all = 0;
      for (unsigned w = 0; w < kWarps; ++w) {
        if (w < block.warp()) before += shared.equal[w];
        all += shared.equal[w];
      }
      left = *ties > before ? *ties - before : 0;
      *ties -= std::min(*ties, all);
    }
    for (std::uint32_t w = begin; w < end; ++w) {
      const std::uint32_t key = key_at(w);
      const bool in_row = InRow(block, from, w);
      std::uint32_t kept = block.Ballot(in_row && key > cut.key);
      const std::uint32_t equal = block.Ballot(in_row && key == cut.key);
      if (equal != 0) {
        const bool mine = (equal >> block.lane() & 1) != 0 && LanesBefore(block, equal) < left;
        kept |= block.Ballot(mine);
        if (left != kEveryTie) left -= std::min(left, CountBits(equal));
      }
      if (block.lane() == 0) shared.marks[w] = kept;
    }
    for (std::uint32_t w = words + block.thread(); w < kSegmentWords; w += kThreads) {
      shared.marks[w] = 0;
    }
  }

  template <class Block>
  SPARFUSE_DEVICE bool InRow(const Block& block, std::uint32_t from, std::uint32_t word) const {
    return from + word * 32 + block.lane() < source.length;
  }
};

// x, row-major [outer][length][inner], as [outer][inner][length]. Adds what is pending, into the
// residual too, and checks x.
struct Transpose {
  static constexpr const char* kName = "Transpose";
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kSide = 32;
  struct Shared {
    float x[kSide][kSide + 1];
  };

  const float* gradient;
  float* residual;  // null: none
  std::uint32_t length;
  std::uint32_t inner;
  float* to;
  SlotReport* report;

  static std::size_t Blocks(std::size_t outer, std::size_t length, std::size_t inner) {
    return outer * ((length + kSide - 1) / kSide) * ((inner + kSide - 1) / kSide);
  }

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::uint32_t across = (inner + kSide - 1) / kSide;
    const std::uint32_t down = (length + kSide - 1) / kSide;
    const std::uint32_t i0 = block.block() % across * kSide;
    const std::uint32_t c0 = block.block() / across % down * kSide;
    const std::size_t slice = std::size_t{block.block() / across / down} * length * inner;
    const std::uint32_t lane = block.lane();
    for (std::uint32_t r = block.warp(); r < kSide; r += kThreads / kWarp) {
      const std::uint32_t c = c0 + r;
      if (c >= length || i0 + lane >= inner) continue;
      const std::size_t at = slice + std::size_t{c} * inner + i0 + lane;
      float x = block.LoadStreaming(gradient + at);
      if (residual != nullptr) residual[at] = x = x + residual[at];
      if (KeyOf(x) >= kInfinityKey) {
        block.AtomicMax(&report->not_finite, NotFiniteCode(static_cast<std::uint32_t>(at)));
      }
      shared.x[r][lane] = x;
    }
    block.Sync();
    for (std::uint32_t r = block.warp(); r < kSide; r += kThreads / kWarp) {
      const std::uint32_t i = i0 + r;
      if (i >= inner || c0 + lane >= length) continue;
      to[slice + std::size_t{i} * length + c0 + lane] = shared.x[lane][r];
    }
  }
};

}  // namespace sparfuse::gpu
