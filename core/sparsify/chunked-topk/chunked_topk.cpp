// Selects by top-k in chunks: keeps the elements of largest magnitude of each run of `chunk`
// elements of a tensor, so that no index within a chunk needs more than 12 bits.
//
// Source:      A. Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo", arXiv
//              2508.15706.
// Deviations:  a tensor is cut as it lies in memory; the shipped code cuts matrices into tiles.
//              Ties go to the lower index, so the result is unique.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>

#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

class ChunkedTopK final : public ScanSparsifier {
 public:
  explicit ChunkedTopK(std::size_t chunk) : chunk_(chunk) {}

  std::string_view name() const noexcept override { return "chunked-topk"; }

  std::size_t Count(std::size_t n, std::span<const std::int64_t> /*shape*/,
                    double density) const override {
    const std::size_t rest = n % chunk_;
    return n / chunk_ * KeptCount(chunk_, density) + (rest > 0 ? KeptCount(rest, density) : 0);
  }

  std::size_t chunk() const noexcept override { return chunk_; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    AddPending(context, input, info);
    const std::size_t n = input.n;
    const float* const x = input.x();
    const std::size_t whole = KeptCount(chunk_, aim.density);  // of a whole chunk
    const auto order = WorkspaceArray<std::uint32_t>(*context.workspace, kUseBlockOrder, n);
    context.pool->ParallelFor((n + chunk_ - 1) / chunk_, [&](std::size_t c, int) {
      const std::size_t begin = c * chunk_;
      const std::size_t size = std::min(chunk_, n - begin);
      const std::size_t k = KeptCount(size, aim.density);
      const auto indices = order.subspan(begin, size);
      std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
      std::nth_element(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(k - 1),
                       indices.end(), [x](std::uint32_t a, std::uint32_t b) {
                         const float one = std::fabs(x[a]), other = std::fabs(x[b]);
                         return one != other ? one > other : a < b;
                       });
      std::sort(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(k));
      for (std::size_t i = 0; i < k; ++i) {
        slot.indices.data[c * whole + i] = indices[i];
        slot.values.data[c * whole + i] = x[indices[i]];
        if (input.residual != nullptr) input.residual[indices[i]] = 0;
      }
    });
    slot.count = aim.k;
  }

 private:
  std::size_t chunk_;
};

// The kept part of a chunk is smallest if truncation takes most from density * size: in a chunk
// that keeps one element instead of nearly two, or two instead of nearly three.
double ContractionOfChunks(std::span<const std::int64_t> shape, double density) {
  const double kept = KeptFraction(shape, density);
  return kept >= 1 ? 1.0 : density / 2;
}

}  // namespace

SparsifierDescriptor ChunkedTopKDescriptor() {
  return {.name = "chunked-topk",
          .paper = "Sarfi et al., SparseLoCo, arXiv 2508.15706",
          .exact_count = true,
          .contraction = ContractionOfChunks,
          .deviations =
              "A tensor is cut as it lies in memory; the shipped code cuts matrices into tiles.",
          .options = {WholeOption(
              "chunk", 4096, 1, 65536,
              "elements of a chunk; the first chunk begins at a tensor's first element")},
          .make = [](const Options& resolved, std::uint64_t) -> std::unique_ptr<Sparsifier> {
            return std::make_unique<ChunkedTopK>(
                static_cast<std::size_t>(IntOption(resolved, "chunk")));
          }};
}

}  // namespace sparfuse
