// Sends all elements that are not 0, and nothing of a tensor that is all 0.
//
// Source:      Z. Wang et al., Zen, OSDI 2025 (sparse tensors by nature: indices and values of the
//              nonzero elements).
// Deviations:  none known.
//
// The density does not choose the elements. It is the expected fraction of nonzero elements, for
// plans and models; at density 1 all elements are sent. If the slot lacks room for all, the k
// largest magnitudes are sent.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/base/cpu.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

constexpr std::uint32_t kSmallestKey = 1;  // key of the smallest denormal; 0 and -0 have key 0

// Each part's folder bears its name (SourceFolderOf, harness/catalog/revisions.hpp).
static_assert(kNonzeros == "nonzeros");

class Nonzeros final : public ScanSparsifier {
 public:
  std::string_view name() const noexcept override { return kNonzeros; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    const std::size_t chunks = (input.n + ChunkSize(input.n) - 1) / ChunkSize(input.n);
    // begins[c]: the place in the slot of chunk c's elements. A single thread takes the chunks in
    // order and finds it on the way, if the slot holds any number.
    const auto begins = WorkspaceArray<std::size_t>(*context.workspace, kUseChunkParts, chunks + 1);
    begins[0] = 0;
    const bool counted = context.pool->threads() > 1 || slot.capacity < input.n;
    if (counted) {
      AddPending(context, input, info);
      CountChunks(context, input, begins);
      if (begins[chunks] > slot.capacity) {
        ++context.counters->overflows;
        SelectLargest(context, input, info, aim.k, 0, slot);
        return;
      }
    }
    Take(context, input, info, begins, counted, slot);
  }

 private:
  static void CountChunks(const SelectContext& context, const SelectInput& input,
                          std::span<std::size_t> begins) {
    const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
    const std::size_t size = ChunkSize(input.n);
    context.pool->ParallelFor(begins.size() - 1, [&](std::size_t c, int) {
      std::uint32_t keys[kCountedKeys];
      std::fill(std::begin(keys), std::end(keys), kInfinityKey);
      keys[0] = kSmallestKey;
      std::size_t counts[kCountedKeys] = {};
      const std::size_t begin = c * size;
      kernels.count_reaching(input.x() + begin, std::min(size, input.n - begin), keys, counts);
      begins[c + 1] = counts[0];
    });
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
  }

  // Moves the nonzero elements from x, or the residual, into the slot. A block with an element that
  // is not finite stays in the residual, so that the error can name it.
  static void Take(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   std::span<std::size_t> begins, bool counted, Slot& slot) {
    const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
    const std::size_t chunk = ChunkSize(input.n);
    const auto workers = static_cast<std::size_t>(context.pool->threads());
    const auto offsets =
        WorkspaceArray<std::uint16_t>(*context.workspace, kUseOffsets, workers * kOffsetRoom);
    float* const pending = input.pending ? input.residual : nullptr;
    const float* const from = input.pending ? input.gradient : input.x();
    const float* const x = input.x();
    std::atomic<bool> finite{true};
    context.pool->ParallelFor(begins.size() - 1, [&](std::size_t c, int worker) {
      std::uint16_t* const found = offsets.data() + static_cast<std::size_t>(worker) * kOffsetRoom;
      std::size_t taken = begins[c];
      const std::size_t end = std::min(input.n, (c + 1) * chunk);
      for (std::size_t begin = c * chunk; begin < end; begin += kBlock) {
        const std::size_t size = std::min(kBlock, end - begin);
        const std::size_t count =
            kernels.scan(from + begin, pending == nullptr ? nullptr : pending + begin,
                         pending == nullptr ? nullptr : pending + begin, size, kSmallestKey, found);
        if (count == 0) continue;
        float* const values = slot.values.data + taken;
        const std::uint32_t largest =
            kernels.gather(x + begin, found, count, static_cast<std::uint32_t>(begin),
                           slot.indices.data + taken, values);
        if (largest >= kInfinityKey) finite.store(false, std::memory_order_relaxed);
        if (input.residual != nullptr && largest < kInfinityKey) {
          kernels.clear(found, values, count, 0, input.residual + begin);
        }
        taken += count;
      }
      if (!counted) begins[c + 1] = taken;
    });
    input.pending = false;
    if (!finite) ThrowNotFinite(input, info);
    slot.count = begins.back();
    context.counters->candidates += slot.count;
  }
};

double Everything(std::span<const std::int64_t> /*shape*/, double /*density*/) { return 1; }

}  // namespace

SparsifierDescriptor NonzerosDescriptor() {
  return {.name = kNonzeros,
          .paper = "Wang et al., Zen, OSDI 2025",
          // The density predicts the count. Between batches of 256 to 4,096 words of a text, drawn
          // as runs of 1 to 64, the number of different words deviates by 2 to 6 %.
          .selection_model = {0, 0.04},
          .contraction = Everything,
          .deviations =
              "The count follows the data. The density is the expected part of nonzero elements, "
              "for plans and models. It selects nothing, with two exceptions: density 1 sends "
              "zeros, too, and an overflow of the slot sends an exact top-k.",
          .make = MakePlain<Nonzeros>,
          .unbounded_count = true};
}

}  // namespace sparfuse
