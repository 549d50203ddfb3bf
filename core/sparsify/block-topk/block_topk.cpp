// Selects by block top-k: keeps the blocks of neighbouring elements with the largest L2 norms.
//
// Source:      J. Fei, C.-Y. Ho, A. N. Sahu, M. Canini, A. Sapio, "Efficient sparse collective
//              communication and its application to accelerate distributed deep learning",
//              SIGCOMM 2021 (block top-k, for OmniReduce).
// Deviations:  stated in the descriptor. Ties go to the lower block, so the result is unique.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <numeric>

#include "core/base/cpu.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

std::size_t Blocks(std::size_t n, std::size_t block) { return (n + block - 1) / block; }

// A block's elements, from its first one on, and their place in the slot.
struct Run {
  std::uint32_t block = 0;
  std::uint32_t size = 0;
  std::size_t at = 0;  // in the slot
};

class BlockTopK final : public ScanSparsifier {
 public:
  explicit BlockTopK(std::size_t block) : block_(block) {}

  std::string_view name() const noexcept override { return "block-topk"; }
  std::size_t block() const noexcept override { return block_; }

  std::size_t Count(std::size_t n, std::span<const std::int64_t> /*shape*/,
                    double density) const override {
    return BlockTopKCount(n, block_, density);
  }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    const std::span<const double> energies = Energies(context, input, info);
    Take(context, input, Largest(context, energies, input.n, aim.k / block_), slot);
    slot.count = aim.k;
  }

 private:
  // Returns the sum of squares of every block. Adds the pending gradient and checks x in cache.
  std::span<const double> Energies(const SelectContext& context, SelectInput& input,
                                   const TensorInfo& info) const {
    const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
    const auto energies =
        WorkspaceArray<double>(*context.workspace, kUseEnergies, Blocks(input.n, block_));
    const std::size_t chunk = Blocks(ChunkSize(input.n), block_) * block_;
    const std::size_t piece = std::max<std::size_t>(1, kBlock / block_) * block_;
    float* const residual = input.pending ? input.residual : nullptr;
    const float* const from = input.pending ? input.gradient : input.x();
    const float* const x = input.x();
    std::atomic<bool> finite{true};
    context.pool->ParallelFor((input.n + chunk - 1) / chunk, [&](std::size_t c, int) {
      std::uint32_t largest = 0;
      const std::size_t end = std::min(input.n, (c + 1) * chunk);
      for (std::size_t begin = c * chunk; begin < end; begin += piece) {
        const std::size_t size = std::min(piece, end - begin);
        if (residual != nullptr) kernels.add(from + begin, residual + begin, size);
        for (std::size_t at = begin; at < begin + size; at += block_) {
          energies[at / block_] =
              Energy(kernels, x + at, std::min(block_, begin + size - at), &largest);
        }
      }
      if (largest >= kInfinityKey) finite.store(false, std::memory_order_relaxed);
    });
    input.pending = false;
    if (!finite) ThrowNotFinite(input, info);
    return energies;
  }

  static double Energy(const SelectKernels& kernels, const float* x, std::size_t n,
                       std::uint32_t* largest) {
    double energy = 0;
    for (std::size_t at = 0; at < n; at += kBlock) {
      BlockSums sums;
      kernels.measure(x + at, std::min(kBlock, n - at), kWantSquares, &sums);
      energy += sums.sum_squares;
      *largest = std::max(*largest, sums.max_key);
    }
    return energy;
  }

  // Returns the upper half of an energy. Keys keep the order of energies, except that close
  // energies share a key.
  static std::uint32_t KeyOf(double energy) {
    return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(energy) >> 32);
  }

  // Returns the first `many` blocks by (energy descending, number ascending), in the order of their
  // numbers. Precondition: there are more than `many` blocks.
  std::span<const Run> Largest(const SelectContext& context, std::span<const double> energies,
                               std::size_t n, std::size_t many) const {
    Workspace& workspace = *context.workspace;
    const auto keys = WorkspaceArray<std::uint32_t>(workspace, kUseKeys, energies.size());
    std::ranges::transform(energies, keys.begin(), KeyOf);
    const Cut cut = FindCut(SelectKernelsFor(ActiveIsa()), keys, many, 0, 31);
    // Chooses the blocks above the cut, and the first blocks at the cut, by energy and number.
    const auto at_cut = WorkspaceArray<std::uint32_t>(workspace, kUseBlockOrder, energies.size());
    std::size_t above = 0;
    std::size_t equal = 0;
    for (std::size_t b = 0; b < keys.size(); ++b) {
      at_cut[equal] = static_cast<std::uint32_t>(b);
      equal += static_cast<std::size_t>(keys[b] == cut.key);
      above += static_cast<std::size_t>(keys[b] > cut.key);
    }
    const auto first = at_cut.first(many - above);
    const auto larger = [&](std::uint32_t a, std::uint32_t b) {
      return energies[a] != energies[b] ? energies[a] > energies[b] : a < b;
    };
    if (first.size() < equal) {
      std::ranges::nth_element(at_cut.first(equal), first.end(), larger);
      std::ranges::sort(first);
    }
    const auto runs = WorkspaceArray<Run>(workspace, kUseChunkParts, many + 1);
    std::size_t used = 0;
    std::size_t missing = 0;
    std::uint32_t next = kNoKey;  // the largest block not chosen
    auto tie = first.begin();
    for (std::uint32_t b = 0; b < keys.size(); ++b) {
      const bool tied = tie != first.end() && *tie == b;
      if (keys[b] <= cut.key && !tied) {
        if (next == kNoKey || larger(b, next)) next = b;
        continue;
      }
      if (tied) ++tie;
      const std::size_t size = std::min(block_, n - b * block_);
      runs[used++] = {b, static_cast<std::uint32_t>(size), 0};
      missing += block_ - size;
    }
    const std::span<Run> chosen = runs.first(used + (missing > 0 ? 1 : 0));
    if (missing > 0) {
      // The shorter last block is chosen: the next largest block fills up the count.
      runs[used] = {next, static_cast<std::uint32_t>(missing), 0};
      std::ranges::sort(chosen, {}, &Run::block);
    }
    std::size_t at = 0;
    for (Run& run : chosen) {
      run.at = at;
      at += run.size;
    }
    return chosen;
  }

  void Take(const SelectContext& context, const SelectInput& input, std::span<const Run> runs,
            Slot& slot) const {
    const std::size_t together = std::max<std::size_t>(1, kChunk / block_);
    context.pool->ParallelFor((runs.size() + together - 1) / together, [&](std::size_t c, int) {
      const std::size_t end = std::min(runs.size(), (c + 1) * together);
      for (std::size_t r = c * together; r < end; ++r) {
        const Run& run = runs[r];
        const std::size_t first = run.block * block_;
        std::iota(slot.indices.data + run.at, slot.indices.data + run.at + run.size,
                  static_cast<std::uint32_t>(first));
        std::copy_n(input.x() + first, run.size, slot.values.data + run.at);
        if (input.residual != nullptr) std::fill_n(input.residual + first, run.size, 0.0f);
      }
    });
  }

  std::size_t block_;
};

// The m largest of B blocks hold at least m / B of the energy, m / B = ceil(k / b) / ceil(n / b).
// That is above k / (n + b - 1): above k / 2n for every block size b below n, and 1 for the others.
double Contraction(std::span<const std::int64_t> shape, double density) {
  const double kept = KeptFraction(shape, density);
  return kept >= 1 ? 1.0 : kept / 2;
}

}  // namespace

std::size_t BlockTopKCount(std::size_t n, std::size_t block, double density) {
  return std::min(n, Blocks(KeptCount(n, density), block) * block);
}

SparsifierDescriptor BlockTopKDescriptor() {
  return {
      .name = "block-topk",
      .paper = "Fei et al., OmniReduce, SIGCOMM 2021",
      .exact_count = true,
      .contraction = Contraction,
      .deviations =
          "The count is exact: if the last, shorter block is among the largest, the next largest "
          "block gives as many of its first elements as the last block lacks.",
      .options = {WholeOption(
          "block", 256, 1, 65536,
          "elements of a block; the first block begins at a tensor's first element")},
      .make = [](const Options& resolved, std::uint64_t) -> std::unique_ptr<Sparsifier> {
        return std::make_unique<BlockTopK>(static_cast<std::size_t>(IntOption(resolved, "block")));
      }};
}

}  // namespace sparfuse
