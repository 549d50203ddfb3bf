// Measures x (statistics.hpp) in the collecting pass of a device's scan (device_scan.hpp), and
// turns an estimated threshold into the selection there.
//
// All sums are in double precision. Their order follows from the spans of the scan, so that they
// are the same on every device. A thread converts an element once and does three operations in
// double precision for it, and two for each tail that contains it. On cards with half the rate for
// double precision that takes some 10 us for 25.6M elements, hidden behind a read of 22 us. A block
// leaves 8 bytes for each value; the block of the last span adds them up, in order.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"

namespace sparfuse::gpu {

// The keys of tails. They are on the device, because a kernel may decide them.
struct TailKeys {
  std::uint32_t count = 0;
  std::uint32_t keys[kMaxTails] = {};
};

// The measures in addition to the moments, as in Statistics.
struct Wanted {
  bool tail_squares = false;
  bool logs = false;
};

// The sums of one thread. kAll: logarithms and tails in addition to the moments.
template <bool kAll>
class ThreadSums {
 public:
  ThreadSums() = default;
  // tails: on the device, or null.
  SPARFUSE_DEVICE ThreadSums(const Wanted& wanted, const TailKeys* tails) {
    if constexpr (kAll) {
      wanted_ = wanted;
      if (tails == nullptr) return;
      tails_ = static_cast<int>(tails->count);
      for (int t = 0; t < kTails; ++t) keys_[t] = tails->keys[t];
    }
  }

  // key: of x.
  SPARFUSE_DEVICE void Add(float x, std::uint32_t key) {
    const auto v = static_cast<double>(x);
    sum_ += v;
    sum_abs_ += std::abs(v);
    sum_squares_ = std::fma(v, v, sum_squares_);  // the product is exact
    max_key_ = max_key_ < key ? key : max_key_;
    if constexpr (kAll) {
#ifdef __CUDACC__
#pragma unroll
#endif
      for (int t = 0; t < kTails; ++t) {
        if (t >= tails_) break;
        if (key < keys_[t]) continue;
        ++tail_count_[t];
        tail_abs_[t] += std::abs(v);
        if (wanted_.tail_squares) tail_squares_[t] = std::fma(v, v, tail_squares_[t]);
      }
      if (wanted_.logs) AddLog(key);
    }
  }

  // Calls store(value, sum), in all threads, with the sums over the block. value: a Value.
  SPARFUSE_DEVICE void Sum(auto& block, const auto& store) const {
    store(kSum, block.Sum(sum_));
    store(kSumAbs, block.Sum(sum_abs_));
    store(kSumSquares, block.Sum(sum_squares_));
    store(kMaxKey, static_cast<double>(block.Max(max_key_)));
    if constexpr (kAll) {
      if (wanted_.logs) {
        store(kSumLog, block.Sum(std::log(product_) + static_cast<double>(exponent_) * kLogTwo));
        store(kLogCount, block.Sum(static_cast<double>(log_count_)));
      }
#ifdef __CUDACC__
#pragma unroll
#endif
      for (int t = 0; t < kTails; ++t) {
        if (t >= tails_) break;
        store(kFirstTail + 3 * t, block.Sum(static_cast<double>(tail_count_[t])));
        store(kFirstTail + 3 * t + 1, block.Sum(tail_abs_[t]));
        store(kFirstTail + 3 * t + 2, block.Sum(tail_squares_[t]));
      }
    }
  }

  // Builds the statistics of n elements. total(value): the total of the sums that Sum stored.
  SPARFUSE_DEVICE Statistics Of(std::size_t n, const auto& total) const {
    Statistics all;
    all.n = n;
    all.sum = total(kSum);
    all.sum_abs = total(kSumAbs);
    all.sum_squares = total(kSumSquares);
    all.max_key = static_cast<std::uint32_t>(total(kMaxKey));
    if constexpr (kAll) {
      all.logs = wanted_.logs;
      if (wanted_.logs) {
        all.sum_log = total(kSumLog);
        all.log_count = static_cast<std::size_t>(total(kLogCount));
      }
      all.tail_squares = wanted_.tail_squares;
      all.tail_count = static_cast<std::size_t>(tails_);
#ifdef __CUDACC__
#pragma unroll
#endif
      for (int t = 0; t < kTails; ++t) {
        if (t >= tails_) break;
        all.tails[t].key = keys_[t];
        all.tails[t].sums.count = static_cast<std::size_t>(total(kFirstTail + 3 * t));
        all.tails[t].sums.sum_abs = total(kFirstTail + 3 * t + 1);
        all.tails[t].sums.sum_squares = total(kFirstTail + 3 * t + 2);
      }
    }
    return all;
  }

  // The values that Sum stores. Counts and keys, too, are exact in a double.
  enum Value : int { kSum, kSumAbs, kSumSquares, kMaxKey, kSumLog, kLogCount, kFirstTail };
  static constexpr int kValues = kAll ? kFirstTail + 3 * static_cast<int>(kMaxTails) : kSumLog;

 private:
  // With |x| = m * 2^e and 1 <= m < 2: updates the product of the m and the sum of the e.
  SPARFUSE_DEVICE void AddLog(std::uint32_t key) {
    constexpr std::uint32_t kMantissa = 0x007fffffu;
    if (key <= kMantissa) return;  // zero or denormal
    product_ *= std::bit_cast<double>(std::uint64_t{0x3ff} << 52 |
                                      static_cast<std::uint64_t>(key & kMantissa) << 29);
    exponent_ += static_cast<std::int32_t>(key >> 23) - 127;
    ++log_count_;
    if (product_ > 0x1p500) {
      product_ *= 0x1p-500;
      exponent_ += 500;
    }
  }

  static constexpr double kLogTwo = 0.69314718055994530942;
  static constexpr int kTails = static_cast<int>(kMaxTails);
  static constexpr int kRoom = kAll ? kTails : 1;

  double sum_ = 0;
  double sum_abs_ = 0;
  double sum_squares_ = 0;
  std::uint32_t max_key_ = 0;
  // Only with kAll.
  Wanted wanted_;
  int tails_ = 0;
  std::uint32_t keys_[kRoom] = {};
  std::uint32_t tail_count_[kRoom] = {};
  double tail_abs_[kRoom] = {};
  double tail_squares_[kRoom] = {};
  double product_ = 1;
  std::int64_t exponent_ = 0;
  std::uint32_t log_count_ = 0;
};

// A measure of CollectWithMeasure. After all of x has been measured and collected, all threads of
// one block call use(block, statistics).
//
//   Use   a struct with void operator()(Block&, const Statistics&) const.
template <bool kAll, class Use>
struct Measure {
  using Part = ThreadSums<kAll>;

  std::uint64_t n;
  std::uint32_t spans;
  double* parts;          // [Part::kValues][spans]
  std::uint32_t* stored;  // [spans], zero before
  Wanted wanted;
  const TailKeys* tails;  // or null
  Use use;

  SPARFUSE_DEVICE Part Begin() const { return Part(wanted, tails); }

  SPARFUSE_DEVICE void Add(Part& part, float x, std::uint32_t key) const { part.Add(x, key); }

  SPARFUSE_DEVICE void Store(auto& block, const Part& part, unsigned span) const {
    part.Sum(block, [&](int value, double sum) {
      if (block.thread() == 0) parts[static_cast<std::size_t>(value) * spans + span] = sum;
    });
    Announce(block, stored + span);
    if (span != spans - 1) return;
    Await(block, stored, spans);
    const Statistics all = part.Of(n, [&](int value) { return Total(block, value); });
    use(block, all);
  }

 private:
  template <class Block>
  SPARFUSE_DEVICE double Total(Block& block, int value) const {
    const double* const of_spans = parts + static_cast<std::size_t>(value) * spans;
    double sum = 0;
    double largest = 0;
    for (unsigned span = block.thread(); span < spans; span += Block::kThreads) {
      sum += of_spans[span];
      largest = largest < of_spans[span] ? of_spans[span] : largest;
    }
    return value == Part::kMaxKey ? block.Max(largest) : block.Sum(sum);
  }
};

template <class Use>
using MeasureMoments = Measure<false, Use>;
template <class Use>
using MeasureAll = Measure<true, Use>;

}  // namespace sparfuse::gpu

namespace sparfuse {

// CollectOnDevice, but also measures all of x, and at its end calls use(block, statistics) in one
// block of the device.
//
//   kAll   tails and logarithms beside the moments, as `wanted` and `tails` (on the device) say.
//   Use    trivially copyable; sparfuse::gpu::Collect<sparfuse::gpu::Measure<kAll, Use>> is named
//          in a .cu file.
template <bool kAll, class Use>
void CollectAndMeasureOnDevice(const DeviceContext& context, DeviceScan& scan, const Use& use,
                               const gpu::Wanted& wanted = {},
                               const gpu::TailKeys* tails = nullptr) {
  using Measure = gpu::Measure<kAll, Use>;
  double* const parts = context.workspace->Get<double>(context.stream, kUseParts,
                                                       Measure::Part::kValues * scan.plan.spans);
  CollectWithMeasure(context, scan,
                     Measure{scan.input.n, static_cast<std::uint32_t>(scan.plan.spans), parts,
                             scan.control->measured, wanted, tails, use});
}

namespace gpu {

// Turns an estimated threshold into the key that SendReaching uses.
struct ThresholdCorrection {
  std::uint32_t needed;  // candidates, so that a key below them all is known to select too many
  ScanControl* control;
  SlotReport* report;

  // Called by all threads of a block; thread 0 knows the estimate. Counts a fallback if the
  // estimate is not a number, and if the candidates' bound was too high. In the latter case it asks
  // for a second collection.
  SPARFUSE_DEVICE void Apply(auto& block, double estimate) const {
    const bool first = block.thread() == 0;
    const bool number = !std::isnan(estimate);
    if (first) control->key = number ? KeyAbove(estimate) : kInfinityKey;
    if (first && !number) ++report->fallbacks;
    block.Sync();
    const std::uint32_t key = control->key;
    if (control->count >= needed || key >= control->lo) return;
    if (first) ++report->fallbacks;
    WantRecollected(block, control, key);
  }
};

}  // namespace gpu

// The correction for a scan that was prepared with Correcting.
inline gpu::ThresholdCorrection CorrectionOf(const DeviceScan& scan) {
  return {static_cast<std::uint32_t>(NeededToCorrect(scan.input.n, scan.k)), scan.control,
          scan.report};
}

}  // namespace sparfuse
