// Selects top-k in each fibre of a tensor by itself (adtopk.hpp), on a device.
//
// SelectTiles   a block loads whole slices of at most kTile elements into shared memory. From
//               there a warp loads a fibre of at most 1024 elements into registers. A thread
//               selects from a fibre of at most 32 elements. One launch, one read of x.
// SelectRows    a block loads a contiguous fibre into registers, up to 8192 elements (256
//               threads) or 16384 (512 threads). Longer fibres are read three times or more. One
//               launch.
// SelectColumns a block takes eight neighbouring fibres of a larger slice, of 1024 elements or
//               fewer, as a tile. The selected positions go into a bitmap, from which TakeBitmap
//               sends them (position_bitmap_kernels.hpp). Two launches; one read of x and of the
//               sent elements' sectors. SelectThinColumns does so with a thread for each fibre of
//               at most 32 elements.
// Transpose     makes longer fibres of such slices contiguous, for SelectRows: one more read and
//               one more write, then the bitmap. Four launches.
// With feedback the residual, too, is read and written once.
//
// The bound of a fibre needs no sample and cannot fail. The fibre's elements are dealt out to
// lanes, each lane has a largest element, and k elements reach the k-th largest of those. For 512
// elements with k = 5 that leaves 6 candidates, for 5120 with k = 51 some 70. A histogram of 128
// bins then finds the cut, as a rule in one round. An element costs some 15 instructions in a tile,
// 10 in a row.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr std::uint32_t kTile = 8192;       // elements of x in shared memory
inline constexpr std::uint32_t kThreadFibre = 32;  // the longest fibre for one thread
inline constexpr std::uint32_t kMostMaxima = 64;   // of a warp: two for each lane
inline constexpr std::uint32_t kCutBins = 128;
inline constexpr int kCutBits = 7;

// Bins of a histogram, with a gap after every 32, because each lane reads four neighbouring bins.
struct CutBins {
  std::uint32_t counts[kCutBins + kCutBins / 32];

  SPARFUSE_DEVICE std::uint32_t& At(std::uint32_t bin) { return counts[bin + bin / 32]; }
};

// The selection has all elements with a greater key, and the first `ties` elements with an equal
// key.
struct FibreCut {
  std::uint32_t key;
  std::uint32_t ties;
};
inline constexpr std::uint32_t kEveryTie = 0xffffffffu;

// Sorts keys, ascending over the lanes. merge_only: the keys are a bitonic sequence.
SPARFUSE_DEVICE std::uint32_t SortLanes(const auto& block, std::uint32_t key,
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

SPARFUSE_DEVICE std::uint32_t SumOfWarp(const auto& block, std::uint32_t value) {
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value += block.ShuffleXor(value, mask);
  return value;
}

// The sum over the lanes before the calling one.
SPARFUSE_DEVICE std::uint32_t SumOfLanesBefore(const auto& block, std::uint32_t value) {
  std::uint32_t sum = value;
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const std::uint32_t up = block.ShuffleUp(sum, distance);
    if (block.lane() >= distance) sum += up;
  }
  return sum - value;
}

// A warp's knowledge of its elements before the search.
struct Bound {
  std::uint32_t key;  // at least `rank` of them reach it
  std::uint32_t top;  // the largest
};

// The two largest keys of a lane.
struct TopTwo {
  std::uint32_t largest = 0;
  std::uint32_t second = 0;

  SPARFUSE_DEVICE void Add(std::uint32_t key) {
    const std::uint32_t smaller = key < largest ? key : largest;
    second = smaller > second ? smaller : second;
    largest = key > largest ? key : largest;
  }
};

// Finds the bound from each lane's largest key and, if rank > 32, its second largest. The key is 0
// for a rank beyond kMostMaxima.
SPARFUSE_DEVICE Bound BoundOfWarp(const auto& block, const TopTwo& top_two, std::uint32_t rank) {
  const std::uint32_t sorted = SortLanes(block, top_two.largest);
  const std::uint32_t top = block.Shuffle(sorted, kWarp - 1);
  if (rank <= kWarp) return {block.Shuffle(sorted, kWarp - rank), top};
  if (rank > kMostMaxima) return {0, top};
  // The 32 smallest of both sets, which form a bitonic sequence.
  const std::uint32_t reversed =
      block.Shuffle(SortLanes(block, top_two.second), kWarp - 1 - block.lane());
  const std::uint32_t low = SortLanes(block, sorted < reversed ? sorted : reversed, true);
  return {block.Shuffle(low, kMostMaxima - rank), top};
}

// Searches for the cut of k elements among the elements with keys in [bound, top], in rounds. A
// round bins every element with Bin, then calls FinishRound; all warps that share the bins make
// equal calls.
class CutSearch {
 public:
  SPARFUSE_DEVICE CutSearch(const Bound& bound, std::uint32_t k)
      : low_(bound.key), bits_(std::bit_width(bound.top - bound.key)), need_(k) {
    NextShift();
  }

  // Returns whether the element counts, and sets its bin.
  SPARFUSE_DEVICE bool Bin(std::uint32_t key, std::uint32_t* bin) const {
    const std::uint32_t above = key - low_;
    *bin = above >> shift_;
    return key >= low_ && (above >> bits_) == 0;
  }

  // Returns whether the cut is found.
  SPARFUSE_DEVICE bool FinishRound(const auto& block, CutBins& bins) {
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
  int bits_;  // the keys in [low_, low_ + 2^bits_) remain
  int shift_ = 0;
  std::uint32_t need_;  // elements to select among those
  bool exact_ = false;
};

// The input and the output of a selection in fibres.
struct FibreSource {
  const float* gradient;
  float* residual;  // null: none
  bool pending;     // x = gradient + residual; else x is in `gradient`, which has been checked
  bool aligned;
  std::size_t n;
  std::uint32_t length;
  std::uint32_t inner;  // the distance of neighbours of a fibre
  std::uint32_t k;      // of each fibre, less than its length
  std::uint32_t* indices;
  float* values;
  SlotReport* report;
  std::uint32_t* bitmap;  // receives the selection of kernels that mark it, instead of the slot

  // The position of an element of a fibre.
  SPARFUSE_DEVICE std::size_t At(std::size_t fibre, std::uint32_t element) const {
    return (fibre / inner * length + element) * inner + fibre % inner;
  }

  SPARFUSE_DEVICE void Mark(const auto& block, std::size_t position) const {
    block.AtomicOr(bitmap + position / 32, 1u << (position % 32));
  }
};

// Returns how many of its `equal` elements a lane may keep, if *ties are kept in all and earlier
// lanes come first. Lowers *ties by the number that the warp keeps.
SPARFUSE_DEVICE std::uint32_t DealTies(const auto& block, std::uint32_t equal,
                                       std::uint32_t* ties) {
  const std::uint32_t before = SumOfLanesBefore(block, equal);
  const std::uint32_t all = SumOfWarp(block, equal);
  const std::uint32_t left = *ties > before ? *ties - before : 0;
  *ties -= *ties < all ? *ties : all;
  return left;
}

// The functions below select from fibres in shared memory, where element c of a fibre is at first +
// c * inner. They call mark(position) for each selected element.

// Takes the largest remaining element k times. For one thread.
SPARFUSE_DEVICE void SelectByThread(const float* tile, std::uint32_t first, std::uint32_t inner,
                                    std::uint32_t length, std::uint32_t k, const auto& mark) {
  std::uint32_t taken = 0;
  for (std::uint32_t round = 0; round < k; ++round) {
    std::uint32_t best = length;
    std::uint32_t largest = 0;
    for (std::uint32_t c = 0; c < length; ++c) {
      if ((taken >> c & 1) != 0) continue;
      const std::uint32_t key = KeyOf(tile[first + c * inner]);
      if (best < length && key <= largest) continue;
      best = c;
      largest = key;
    }
    taken |= 1u << best;
    mark(first + best * inner);
  }
}

SPARFUSE_DEVICE FibreCut SearchByWarp(const auto& block, CutBins& bins, const float* x,
                                      std::uint32_t stride, std::uint32_t mask, std::uint32_t k,
                                      const Bound& bound) {
  CutSearch search(bound, k);
  bool found = false;
  while (!found) {
    for (std::uint32_t b = block.lane(); b < kCutBins; b += kWarp) bins.At(b) = 0;
    block.SyncWarp();
    for (std::uint32_t bits = mask; bits != 0; bits &= bits - 1) {
      const auto j = static_cast<std::uint32_t>(std::countr_zero(bits));
      std::uint32_t bin = 0;
      if (search.Bin(KeyOf(x[j * stride]), &bin)) block.AtomicAdd(&bins.At(bin), 1u);
    }
    block.SyncWarp();
    found = search.FinishRound(block, bins);
    block.SyncWarp();
  }
  return search.cut();
}

// Selects by a warp, in registers. A lane has kPerLane elements, at most 32.
template <unsigned kPerLane, class Block, class Mark>
SPARFUSE_DEVICE void SelectByWarp(const Block& block, CutBins& bins, const float* tile,
                                  std::uint32_t first, std::uint32_t inner, std::uint32_t length,
                                  std::uint32_t k, const Mark& mark) {
  static_assert(kPerLane <= 32);
  const unsigned lane = block.lane();
  // Element j * 32 + lane is the lane's j-th.
  const std::uint32_t stride = kWarp * inner;
  const std::uint32_t own = first + lane * inner;
  const float* const x = tile + own;
  const std::uint32_t count = lane < length ? (length - lane + kWarp - 1) / kWarp : 0;
  std::uint32_t keys[kPerLane];
  for (unsigned j = 0; j < kPerLane; ++j) keys[j] = j < count ? KeyOf(x[j * stride]) : 0;
  TopTwo top_two;
  if (k <= kWarp) {
    for (const std::uint32_t key : keys) {
      top_two.largest = key > top_two.largest ? key : top_two.largest;
    }
  } else {
    for (const std::uint32_t key : keys) top_two.Add(key);
  }
  const Bound bound = BoundOfWarp(block, top_two, k);
  std::uint32_t mask = 0;  // bit j: the lane's j-th element is a candidate
  for (unsigned j = 0; j < kPerLane; ++j) mask |= keys[j] >= bound.key ? 1u << j : 0;
  if (count < 32) mask &= (1u << count) - 1;

  FibreCut cut{bound.key, kEveryTie};
  if (SumOfWarp(block, CountBits(mask)) != k) {
    cut = SearchByWarp(block, bins, x, stride, mask, k, bound);
  }
  if (cut.ties != kEveryTie) {
    std::uint32_t ties = cut.ties;
    for (std::uint32_t j = 0; j < kPerLane; ++j) {
      const bool equal = (mask >> j & 1) != 0 && KeyOf(x[j * stride]) == cut.key;
      const std::uint32_t lanes = block.Ballot(equal);
      if (equal && LanesBefore(block, lanes) >= ties) mask &= ~(1u << j);
      const std::uint32_t all = CountBits(lanes);
      ties -= ties < all ? ties : all;
    }
  }
  for (; mask != 0; mask &= mask - 1) {
    const auto j = static_cast<std::uint32_t>(std::countr_zero(mask));
    if (KeyOf(x[j * stride]) >= cut.key) mark(own + j * stride);
  }
}

template <unsigned kPerLane>
struct SelectTiles {
  static constexpr int kThreads = 256;
  static constexpr unsigned kWarps = kThreads / kWarp;
  static constexpr unsigned kVectors = kTile / 4 / kThreads;
  static constexpr unsigned kBatch = 4;
  struct Shared {
    alignas(16) float x[kTile];
    std::uint32_t marks[kTile / 32];
    CutBins bins[kWarps];
  };
  static_assert(kThreads == kTile / 32);

  FibreSource source;
  std::uint32_t slices;  // of a tile

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t inner = source.inner;
    const std::uint32_t slice = source.length * inner;
    const std::size_t begin = std::size_t{block.block()} * slices * slice;
    const std::size_t left = source.n - begin;
    const std::uint32_t whole = slices * slice;
    const std::uint32_t size = left < whole ? static_cast<std::uint32_t>(left) : whole;
    shared.marks[block.thread()] = 0;
    for (unsigned first = 0; first < kVectors; first += kBatch) {
      Load(block, shared, begin, size, first);
    }
    block.Sync();

    const std::uint32_t fibres = size / source.length;
    const auto mark = [&](std::uint32_t at) {
      block.AtomicOr(shared.marks + at / 32, 1u << (at % 32));
    };
    if (source.length <= kThreadFibre) {
      for (std::uint32_t f = block.thread(); f < fibres; f += kThreads) {
        SelectByThread(shared.x, f / inner * slice + f % inner, inner, source.length, source.k,
                       mark);
      }
    } else {
      for (std::uint32_t f = block.warp(); f < fibres; f += kWarps) {
        SelectByWarp<kPerLane>(block, shared.bins[block.warp()], shared.x,
                               f / inner * slice + f % inner, inner, source.length, source.k, mark);
      }
    }
    block.Sync();

    const std::uint32_t word = shared.marks[block.thread()];
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

 private:
  SPARFUSE_DEVICE std::uint32_t PositionOf(const auto& block, std::uint32_t bits) const {
    return block.thread() * 32 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }

  SPARFUSE_DEVICE void Load(const auto& block, Shared& shared, std::size_t begin,
                            std::uint32_t size, unsigned first) const {
    const std::uint32_t own = (first * kThreads + block.thread()) * 4;
    const std::size_t end = begin + size;
    const bool add = source.pending && source.residual != nullptr;
    Float4 x[kBatch];
    Float4 old[kBatch];
    LoadFours<false>(block, source.gradient, begin + own, 4 * kThreads, end, source.aligned, x);
    if (add) {
      LoadFours<false>(block, source.residual, begin + own, 4 * kThreads, end, source.aligned, old);
      for (unsigned j = 0; j < kBatch; ++j) {
        for (int c = 0; c < 4; ++c) x[j].v[c] += old[j].v[c];
      }
    }
    if (source.pending) CheckFinite(block, x, begin + own, 4 * kThreads, source.report);
    for (unsigned j = 0; j < kBatch; ++j) {
      *reinterpret_cast<Float4*>(shared.x + own + j * 4 * kThreads) = x[j];
    }
  }

  // Stores x without the sent elements.
  SPARFUSE_DEVICE void StoreResidual(const auto& block, const Shared& shared, std::size_t begin,
                                     std::uint32_t size) const {
    for (std::uint32_t at = block.thread() * 4; at < size; at += 4 * kThreads) {
      Float4 x = *reinterpret_cast<const Float4*>(shared.x + at);
      const std::uint32_t marks = shared.marks[at / 32] >> (at % 32) & 15;
      for (unsigned c = 0; c < 4 && marks != 0; ++c) {
        if ((marks >> c & 1) != 0) x.v[c] = 0.0f;
      }
      StoreFour(source.residual, begin + at, begin + size, source.aligned, x);
    }
  }
};

// Loads kColumnBatch elements c, c + step, ... of a fibre with neighbours. Adds the residual,
// checks x, and writes it to to[c * pitch]. All loads are in flight before the first is used.
inline constexpr unsigned kColumnBatch = 8;
SPARFUSE_DEVICE void LoadColumn(const auto& block, const FibreSource& from, std::size_t fibre,
                                std::uint32_t c, std::uint32_t step, float* to,
                                std::uint32_t pitch) {
  float x[kColumnBatch];
  float old[kColumnBatch];
  for (unsigned j = 0; j < kColumnBatch; ++j) {
    const std::size_t at = fibre + std::size_t{c + j * step} * from.inner;
    const bool inside = c + j * step < from.length;
    x[j] = inside ? from.gradient[at] : 0.0f;
    old[j] = inside && from.residual != nullptr ? from.residual[at] : 0.0f;
  }
  for (unsigned j = 0; j < kColumnBatch && c + j * step < from.length; ++j) {
    const std::size_t at = fibre + std::size_t{c + j * step} * from.inner;
    if (from.residual != nullptr) from.residual[at] = x[j] += old[j];
    NoteIfNotFinite(block, from.report, KeyOf(x[j]), at);
    to[std::size_t{c + j * step} * pitch] = x[j];
  }
}

// Selects from neighbouring fibres, of at most 1024 elements each, of a slice that is larger than a
// tile. A block has eight fibres, a warp one of them. A block reads rows of 32 bytes, which
// neighbouring blocks complete to lines in L2.
template <unsigned kPerLane>
struct SelectColumns {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kSide = kThreads / kWarp;
  static constexpr std::uint32_t kPitch = kSide + 1;  // lanes of a warp read different banks
  struct Shared {
    float x[kPerLane * kWarp * kPitch];
    CutBins bins[kSide];
  };

  FibreSource source;

  static std::size_t Blocks(std::size_t outer, std::size_t inner) {
    return outer * ((inner + kSide - 1) / kSide);
  }

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t inner = source.inner;
    const std::uint32_t across = (inner + kSide - 1) / kSide;
    const std::uint32_t i0 = block.block() % across * kSide;
    const std::size_t begin = std::size_t{block.block() / across} * source.length * inner + i0;
    const std::uint32_t side = inner - i0 < kSide ? inner - i0 : kSide;
    const std::uint32_t column = block.thread() % kSide;
    if (column < side) {
      for (std::uint32_t c = block.thread() / kSide; c < source.length; c += kColumnBatch * kRows) {
        LoadColumn(block, source, begin + column, c, kRows, shared.x + column, kPitch);
      }
    }
    block.Sync();
    if (block.warp() >= side) return;
    const auto mark = [&](std::uint32_t at) {
      source.Mark(block, begin + std::size_t{at / kPitch} * inner + at % kPitch);
    };
    SelectByWarp<kPerLane>(block, shared.bins[block.warp()], shared.x, block.warp(), kPitch,
                           source.length, source.k, mark);
  }

 private:
  static constexpr std::uint32_t kRows = kThreads / kSide;
};

// SelectColumns for fibres of at most kThreadFibre elements. A thread has one fibre, and its own
// column of shared memory. Neighbouring threads read neighbouring elements.
struct SelectThinColumns {
  static constexpr int kThreads = 256;
  struct Shared {
    float x[kThreadFibre * kThreads];
  };

  FibreSource source;
  std::size_t fibres;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::size_t fibre = std::size_t{block.block()} * kThreads + block.thread();
    if (fibre >= fibres) return;
    const std::size_t first = source.At(fibre, 0);
    for (std::uint32_t c = 0; c < source.length; c += kColumnBatch) {
      LoadColumn(block, source, first, c, 1, shared.x + block.thread(), kThreads);
    }
    const auto mark = [&](std::uint32_t at) {
      source.Mark(block, first + std::size_t{at / kThreads} * source.inner);
    };
    SelectByThread(shared.x, block.thread(), kThreads, source.length, source.k, mark);
  }
};

// Selects from one contiguous fibre by a block of 256 threads, or of 512 for long fibres and if k
// needs more maxima. kMarks: the tensor was transposed, and a bitmap receives the selection.
template <bool kMarks, int Threads>
struct SelectRows {
  static constexpr int kThreads = Threads;
  static constexpr unsigned kWarps = kThreads / kWarp;
  static constexpr unsigned kVectors = 8;                        // in the registers of a lane
  static constexpr std::uint32_t kChunk = kVectors * 4 * kWarp;  // of a warp, at most
  static constexpr std::uint32_t kSegment = kWarps * kChunk;     // of a block, at a time
  struct Shared {
    Bound bounds[kWarps];
    std::uint32_t equal[kWarps];
    CutBins bins;
    std::uint32_t marks[kSegment / 32];
  };

  FibreSource source;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    Row row;
    row.begin = std::size_t{block.block()} * source.length;
    row.segments = (source.length + kSegment - 1) / kSegment;
    row.share = kChunk;  // of a warp
    if (row.segments == 1) {
      row.share = ((source.length + kWarps - 1) / kWarps + kWarp - 1) / kWarp * kWarp;
    }
    // x of the last or only segment stays in registers.
    Float4 x[kVectors];
    TopTwo top_two;
    for (std::uint32_t s = 0; s < row.segments; ++s) {
      Load(block, row, s, source.pending, x);
      for (unsigned j = 0; j < kVectors && j * 4 * kWarp < row.share; ++j) {
        for (const float v : x[j].v) top_two.Add(KeyOf(v));
      }
    }
    const Bound bound = BoundOfBlock(block, shared, row, top_two);
    const FibreCut cut = Search(block, shared.bins, row, bound, x);
    Send(block, shared, row, bound, cut, x);
  }

 private:
  struct Row {
    std::size_t begin;
    std::uint32_t segments;
    std::uint32_t share;  // of a segment, for a warp
  };

  // Loads a warp's share of a segment, 0 beyond the share. Vector j of a lane begins
  // (j * 32 + lane) * 4 elements after the start of the share. pending: adds and checks x first.
  SPARFUSE_DEVICE void Load(const auto& block, const Row& row, std::uint32_t segment, bool pending,
                            Float4 (&x)[kVectors]) const {
    const std::uint32_t first = FirstOf(block, row, segment);
    const std::size_t at = row.begin + first + block.lane() * 4;
    const std::size_t end = row.begin + LastOf(row, first);
    constexpr std::uint32_t kStride = 4 * kWarp;
    const bool feedback = source.residual != nullptr;
    const float* const from = feedback && !pending ? source.residual : source.gradient;
    LoadFours<true>(block, from, at, kStride, end, source.aligned, x);
    if (!pending) return;
    if (feedback) {
      constexpr unsigned kBatch = 4;
      for (unsigned j0 = 0; j0 < kVectors; j0 += kBatch) {
        Float4 old[kBatch];
        LoadFours<true>(block, source.residual, at + j0 * kStride, kStride, end, source.aligned,
                        old);
        for (unsigned j = 0; j < kBatch; ++j) {
          for (int c = 0; c < 4; ++c) x[j0 + j].v[c] += old[j].v[c];
          StoreFour(source.residual, at + (j0 + j) * kStride, end, source.aligned, x[j0 + j]);
        }
      }
    }
    CheckFinite(block, x, at, kStride, source.report);
  }

  SPARFUSE_DEVICE std::uint32_t FirstOf(const auto& block, const Row& row,
                                        std::uint32_t segment) const {
    const std::uint32_t first = segment * kSegment + block.warp() * row.share;
    return first < source.length ? first : source.length;
  }
  SPARFUSE_DEVICE std::uint32_t LastOf(const Row& row, std::uint32_t first) const {
    return source.length - first < row.share ? source.length : first + row.share;
  }

  // The bound of the fibre from the warps' bounds. Warps with elements divide the rank evenly.
  SPARFUSE_DEVICE Bound BoundOfBlock(auto& block, Shared& shared, const Row& row,
                                     const TopTwo& top_two) const {
    const unsigned needed = (source.length + row.share - 1) / row.share;
    const unsigned warps = needed < kWarps ? needed : kWarps;
    const Bound own = BoundOfWarp(block, top_two, (source.k + warps - 1) / warps);
    if (block.lane() == 0) shared.bounds[block.warp()] = own;
    block.Sync();
    Bound bound = shared.bounds[0];
    for (unsigned w = 1; w < warps; ++w) {
      const Bound other = shared.bounds[w];
      bound.key = other.key < bound.key ? other.key : bound.key;
      bound.top = other.top > bound.top ? other.top : bound.top;
    }
    return bound;
  }

  // A mask of the lane's elements of a segment that reach the bound: bit 4 j + c for element c of
  // vector j.
  SPARFUSE_DEVICE std::uint32_t Candidates(const auto& block, const Row& row, std::uint32_t segment,
                                           const Bound& bound, Float4 (&x)[kVectors]) const {
    if (row.segments > 1) Load(block, row, segment, false, x);
    std::uint32_t mask = 0;
    for (unsigned j = 0; j < kVectors && j * 4 * kWarp < row.share; ++j) {
      for (unsigned c = 0; c < 4; ++c) {
        mask |= KeyOf(x[j].v[c]) >= bound.key ? 1u << (4 * j + c) : 0;
      }
    }
    if (bound.key > 0) return mask;
    // Elements beyond the share are 0 and reach a bound of 0, too.
    const std::uint32_t first = FirstOf(block, row, segment);
    const std::uint32_t size = LastOf(row, first) - first;
    std::uint32_t inside = 0;
    for (unsigned b = 0; b < 32; ++b) {
      if (OffsetOf(block, b) < size) inside |= 1u << b;
    }
    return mask & inside;
  }

  SPARFUSE_DEVICE std::uint32_t OffsetOf(const auto& block, std::uint32_t bit) const {
    return (bit / 4 * kWarp + block.lane()) * 4 + bit % 4;
  }

  // x in memory, if nothing is pending.
  SPARFUSE_DEVICE const float* Memory(const Row& row) const {
    const bool feedback = source.pending && source.residual != nullptr;
    return (feedback ? source.residual : source.gradient) + row.begin;
  }

  SPARFUSE_DEVICE FibreCut Search(auto& block, CutBins& bins, const Row& row, const Bound& bound,
                                  Float4 (&x)[kVectors]) const {
    const float* const memory = Memory(row);
    CutSearch search(bound, source.k);
    bool found = false;
    while (!found) {
      if (block.thread() < kCutBins) bins.At(block.thread()) = 0;
      block.Sync();
      for (std::uint32_t s = 0; s < row.segments; ++s) {
        const std::uint32_t first = FirstOf(block, row, s);
        std::uint32_t mask = Candidates(block, row, s, bound, x);
        for (; mask != 0; mask &= mask - 1) {
          const auto bit = static_cast<std::uint32_t>(std::countr_zero(mask));
          std::uint32_t bin = 0;
          if (search.Bin(KeyOf(memory[first + OffsetOf(block, bit)]), &bin)) {
            block.AtomicAdd(&bins.At(bin), 1u);
          }
        }
      }
      block.Sync();
      found = search.FinishRound(block, bins);
      block.Sync();
    }
    return search.cut();
  }

  SPARFUSE_DEVICE void Send(auto& block, Shared& shared, const Row& row, const Bound& bound,
                            const FibreCut& cut, Float4 (&x)[kVectors]) const {
    const float* const memory = Memory(row);
    std::uint32_t ties = cut.ties;
    std::size_t sent = std::size_t{block.block()} * source.k;
    for (std::uint32_t s = 0; s < row.segments; ++s) {
      for (std::uint32_t w = block.thread(); w < kSegment / 32; w += kThreads) shared.marks[w] = 0;
      block.Sync();
      const std::uint32_t first = FirstOf(block, row, s);
      std::uint32_t mask = Candidates(block, row, s, bound, x);
      if (cut.ties != kEveryTie) {
        mask = WithoutLateTies(block, shared, memory + first, mask, cut.key, &ties);
      }
      const std::uint32_t base = s * kSegment;
      for (; mask != 0; mask &= mask - 1) {
        const std::uint32_t at =
            first + OffsetOf(block, static_cast<std::uint32_t>(std::countr_zero(mask)));
        if (KeyOf(memory[at]) < cut.key) continue;
        block.AtomicOr(shared.marks + (at - base) / 32, 1u << ((at - base) % 32));
      }
      block.Sync();
      for (std::uint32_t w0 = 0; w0 < kSegment / 32; w0 += kThreads) {
        if (base + w0 * 32 >= source.length) break;
        const std::uint32_t w = w0 + block.thread();
        const std::uint32_t word = w < kSegment / 32 ? shared.marks[w] : 0;
        std::uint32_t total = 0;
        std::size_t place = sent + block.ExclusiveSum(CountBits(word), &total);
        for (std::uint32_t bits = word; bits != 0; bits &= bits - 1) {
          Take(block, row, base + w * 32 + static_cast<std::uint32_t>(std::countr_zero(bits)),
               place++);
        }
        sent += total;
      }
    }
    if (!kMarks && block.block() + 1 == block.blocks() && block.thread() == 0) {
      source.report->count = static_cast<std::uint32_t>(sent);
    }
  }

  SPARFUSE_DEVICE void Take(const auto& block, const Row& row, std::uint32_t at,
                            std::size_t place) const {
    if constexpr (kMarks) {
      source.Mark(block, source.At(block.block(), at));
    } else {
      source.indices[place] = static_cast<std::uint32_t>(row.begin + at);
      source.values[place] = Memory(row)[at];
      if (source.residual != nullptr) source.residual[row.begin + at] = 0.0f;
    }
  }

  // Clears the bits of elements that equal the cut but come after the last kept one. ties: the
  // number of ties to keep in this segment and those after it.
  SPARFUSE_DEVICE std::uint32_t WithoutLateTies(auto& block, Shared& shared, const float* memory,
                                                std::uint32_t mask, std::uint32_t key,
                                                std::uint32_t* ties) const {
    std::uint32_t equal = 0;  // a bit for each element
    for (std::uint32_t bits = mask; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      if (KeyOf(memory[OffsetOf(block, bit)]) == key) equal |= 1u << bit;
    }
    const std::uint32_t of_warp = SumOfWarp(block, CountBits(equal));
    if (block.lane() == 0) shared.equal[block.warp()] = of_warp;
    block.Sync();
    std::uint32_t before = 0;
    std::uint32_t all = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      before += w < block.warp() ? shared.equal[w] : 0;
      all += shared.equal[w];
    }
    std::uint32_t left = *ties > before ? *ties - before : 0;
    *ties -= *ties < all ? *ties : all;
    for (unsigned j = 0; j < kVectors; ++j) {
      const std::uint32_t own = equal >> (4 * j) & 15;
      std::uint32_t keep = DealTies(block, CountBits(own), &left);
      for (unsigned c = 0; c < 4; ++c) {
        if ((own >> c & 1) == 0) continue;
        if (keep == 0) {
          mask &= ~(1u << (4 * j + c));
        } else {
          --keep;
        }
      }
    }
    block.Sync();  // `equal` is written again for the next segment
    return mask;
  }
};

// Transposes x from row-major [outer][length][inner] to [outer][inner][length]. Adds the gradient
// to the residual, if there is one, and checks x.
struct Transpose {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kSide = 32;
  struct Shared {
    float x[kSide][kSide + 1];
  };

  FibreSource source;
  float* to;

  static std::size_t Blocks(std::size_t outer, std::size_t length, std::size_t inner) {
    return outer * ((length + kSide - 1) / kSide) * ((inner + kSide - 1) / kSide);
  }

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t length = source.length;
    const std::uint32_t inner = source.inner;
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
      float x = block.LoadStreaming(source.gradient + at);
      if (source.residual != nullptr) source.residual[at] = x = x + source.residual[at];
      NoteIfNotFinite(block, source.report, KeyOf(x), at);
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
