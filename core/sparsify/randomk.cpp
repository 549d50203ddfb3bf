// Random-k: keeps k = max(1, trunc(density * n)) elements, every set of k equally likely, the same
// set on every rank of a step.
//
// Source:      S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
// Deviations:  none known. Values are not scaled by n / k: error feedback keeps what is not sent.
#include "core/sparsify/randomk.hpp"

#include <algorithm>
#include <bit>

namespace sparfuse {

std::span<std::uint64_t> ClearBitmap(Workspace& workspace, std::size_t n) {
  const auto bitmap = WorkspaceArray<std::uint64_t>(workspace, kUseSample, (n + 63) / 64);
  std::fill(bitmap.begin(), bitmap.end(), std::uint64_t{0});
  return bitmap;
}

void MarkDistinct(const RandomStream& stream, std::size_t n, std::size_t count,
                  std::span<std::uint64_t> bitmap) {
  std::size_t marked = 0;
  for (std::uint64_t draw = 0; marked < count; ++draw) {
    const std::uint64_t i = stream.Below(n, draw);
    const std::uint64_t bit = std::uint64_t{1} << (i % 64);
    std::uint64_t& word = bitmap[i / 64];
    marked += static_cast<std::size_t>((word & bit) == 0);
    word |= bit;
  }
}

void TakeMarked(const SelectInput& input, std::span<const std::uint64_t> bitmap, bool inverted,
                Slot& slot) {
  std::size_t taken = 0;
  for (std::size_t w = 0; w < bitmap.size(); ++w) {
    std::uint64_t word = inverted ? ~bitmap[w] : bitmap[w];
    if (w + 1 == bitmap.size() && input.n % 64 != 0) {
      word &= (std::uint64_t{1} << (input.n % 64)) - 1;
    }
    for (; word != 0; word &= word - 1) {
      slot.indices.data[taken++] =
          static_cast<std::uint32_t>(w * 64 + static_cast<std::size_t>(std::countr_zero(word)));
    }
  }
  const float* const x = input.x();
  for (std::size_t i = 0; i < taken; ++i) slot.values.data[i] = x[slot.indices.data[i]];
  if (input.residual != nullptr) {
    for (std::size_t i = 0; i < taken; ++i) input.residual[slot.indices.data[i]] = 0.0f;
  }
  slot.count = taken;
}

void SelectRandom(const SelectContext& context, const SelectInput& input,
                  const RandomStream& stream, std::size_t k, Slot& slot) {
  const bool drawn_are_sent = k <= input.n / 2;
  const auto bitmap = ClearBitmap(*context.workspace, input.n);
  MarkDistinct(stream, input.n, drawn_are_sent ? k : input.n - k, bitmap);
  TakeMarked(input, bitmap, !drawn_are_sent, slot);
}

void SelectDrawn(const SelectContext& context, const SelectInput& input, const RandomStream& stream,
                 std::size_t count, Slot& slot) {
  const auto bitmap = ClearBitmap(*context.workspace, input.n);
  for (std::size_t draw = 0; draw < count; ++draw) {
    const std::uint64_t i = stream.Below(input.n, draw);
    bitmap[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  TakeMarked(input, bitmap, false, slot);
}

namespace {

class RandomK final : public Sparsifier {
 public:
  explicit RandomK(std::uint64_t seed) : seed_(seed) {}

  std::string_view name() const noexcept override { return "randomk"; }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* /*state*/, Slot& slot) const override {
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    const std::size_t k = KeptCount(input.n, density);
    RequireRoom(name(), info, slot, k);
    if (k == input.n) return SelectAll(context, input, info, slot);
    AddPending(context, input, info);
    SelectRandom(context, input, RandomStream(seed_, info.id, info.step), k, slot);
  }

 private:
  std::uint64_t seed_;
};

std::unique_ptr<Sparsifier> Make(const Options& /*resolved*/, std::uint64_t seed) {
  return std::make_unique<RandomK>(seed);
}

}  // namespace

SparsifierDescriptor RandomKDescriptor() {
  return {.name = "randomk",
          .paper = "Stich et al., NeurIPS 2018",
          .revision = 1,
          .exact_count = true,
          .index_shared = true,
          .selection_model = {},
          .contraction = KeptFraction,
          .deviations = "",
          .options = {},
          .make = Make};
}

}  // namespace sparfuse
