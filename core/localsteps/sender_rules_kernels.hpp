// Looks at the payloads of single ranks in kernels (sender_rules.hpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/payload/accumulate_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr std::uint32_t kMaxTensors = 64;  // of one launch

struct TensorTable {
  std::uint32_t begins[kMaxTensors];
  std::uint32_t ends[kMaxTensors];
  std::uint32_t size;
  std::uint32_t number;  // of the first tensor
};

// The positions in a payload of a tensor's elements.
struct TensorSpan {
  std::uint32_t first;
  std::uint32_t last;
};

// Threads 0 and 1 search, for all.
SPARFUSE_DEVICE TensorSpan SpanOf(auto& block, std::uint32_t* shared, const PayloadTable& payloads,
                                  std::uint32_t p, std::uint32_t begin, std::uint32_t end) {
  const unsigned t = block.thread();
  if (t < 2)
    shared[t] = FirstNotBelow(payloads.indices[p], payloads.Count(p), t == 0 ? begin : end);
  block.Sync();
  return {shared[0], shared[1]};
}

// norms[tensor][payload] = the root of SumSquares of the payload's values of the tensor. A block
// for each.
struct NormsOfTensors {
  static constexpr int kThreads = kNormThreads;
  struct Shared {
    std::uint32_t span[2];
  };
  PayloadTable payloads;
  TensorTable tensors;
  std::uint32_t ranks;  // payloads of all launches
  double* norms;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    constexpr std::uint32_t kPiece = kNormPiece, kLanes = kNormLanes, kTile = kNormTile;
    const std::uint32_t p = block.block() / tensors.size, of = block.block() % tensors.size;
    const TensorSpan span =
        SpanOf(block, shared.span, payloads, p, tensors.begins[of], tensors.ends[of]);
    const float* const values = payloads.values[p];
    double own = 0;
    std::uint32_t tile = 0;
    for (std::uint32_t from = span.first; from < span.last; from += kTile, ++tile) {
      double lanes[4] = {};
      const std::uint32_t begin = from + block.warp() * kPiece + 4 * block.lane();
      for (std::uint32_t row = 0; row < kNormRows; ++row) {
        for (std::uint32_t v = 0; v < 4; ++v) {
          const std::uint32_t at = begin + row * kLanes + v;
          const double value = at < span.last ? values[at] : 0.0f;
          lanes[v] += value * value;
        }
      }
      const double sum = block.Sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
      if (block.thread() == tile % kNormThreads) own += sum;
    }
    const double all = block.Sum(own);
    if (block.thread() != 0) return;
    norms[std::size_t{tensors.number + of} * ranks + payloads.number + p] = std::sqrt(all);
  }
};

// factors[tensor][payload] = the factor that scales the payload's values down to the median norm; 1
// for payloads that are not above it. A block for each tensor.
struct FactorsOfMedians {
  static constexpr int kThreads = 64;
  struct Shared {
    double median;
  };
  std::uint32_t ranks;
  const double* norms;
  float* factors;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const double* const own = norms + std::size_t{block.block()} * ranks;
    if (block.thread() == 0) shared.median = 0;
    block.Sync();
    for (std::uint32_t r = block.thread(); r < ranks; r += kThreads) {
      std::uint32_t before = 0;  // in ascending order
      for (std::uint32_t other = 0; other < ranks; ++other) {
        before += own[other] < own[r] || (own[other] == own[r] && other < r) ? 1 : 0;
      }
      if (before == (ranks - 1) / 2) shared.median = own[r];
    }
    block.Sync();
    const double median = shared.median;
    for (std::uint32_t r = block.thread(); r < ranks; r += kThreads) {
      factors[std::size_t{block.block()} * ranks + r] =
          own[r] > median ? static_cast<float>(median / own[r]) : 1.0f;
    }
  }
};

// to[payload] = its values times the factors of their tensors. A block for each payload and tensor.
struct ScaleTensors {
  static constexpr int kThreads = 256;
  struct Shared {
    std::uint32_t span[2];
  };
  PayloadTable payloads;
  TensorTable tensors;
  std::uint32_t ranks;
  const float* factors;
  float* to[kMaxPayloads];

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t p = block.block() / tensors.size, of = block.block() % tensors.size;
    const TensorSpan span =
        SpanOf(block, shared.span, payloads, p, tensors.begins[of], tensors.ends[of]);
    const float factor = factors[std::size_t{tensors.number + of} * ranks + payloads.number + p];
    for (std::uint32_t i = span.first + block.thread(); i < span.last; i += kThreads) {
      to[p][i] = payloads.values[p][i] * factor;
    }
  }
};

// Adds 1 to senders[index - first] for each element of the payloads in the window.
struct CountSenders {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 4;
  static constexpr std::uint32_t kPerBlock = kThreads * kPerThread;
  PayloadTable payloads;
  std::uint32_t first_block[kMaxPayloads + 1];  // that works on payload p
  std::uint64_t first;
  std::uint64_t n;
  std::uint32_t* senders;  // [n]

  static std::uint32_t BlocksFor(std::size_t count) {
    return static_cast<std::uint32_t>((count + kPerBlock - 1) / kPerBlock);
  }

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    std::uint32_t p = 0;
    while (block.block() >= first_block[p + 1]) ++p;
    const std::uint32_t begin = (block.block() - first_block[p]) * kPerBlock + block.thread();
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::uint32_t i = begin + j * kThreads;
      if (i >= payloads.Count(p)) continue;
      const std::uint64_t offset = payloads.indices[p][i] - first;  // wraps before the window
      if (offset < n) block.AtomicAdd(&senders[offset], std::uint32_t{1});
    }
  }
};

struct DivideSums {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 4;
  static constexpr std::uint32_t kPerBlock = kThreads * kPerThread;
  std::size_t n;
  const std::uint32_t* senders;
  float* sums;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::size_t i = std::size_t{block.block()} * kPerBlock + j * kThreads + block.thread();
      if (i < n && senders[i] > 1) sums[i] /= static_cast<float>(senders[i]);
    }
  }
};

}  // namespace sparfuse::gpu
