// Selects by random-k: keeps k = max(1, trunc(density * n)) elements, every set of k equally
// likely, the same set on every rank of a step.
//
// Source:      S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
// Deviations:  none known. Values are not scaled by n / k: error feedback keeps the rest.
#include "core/sparsify/randomk/randomk.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "core/base/cpu.hpp"
#include "core/device/launch.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/randomk/randomk_kernels.hpp"
#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

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

void TakeBitmap(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                std::span<const std::uint64_t> bitmap, bool inverted, Checked checked, Slot& slot) {
  constexpr std::size_t kWordBits = 64;
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  const std::size_t chunk_size = ChunkSize(input.n);
  const std::size_t chunks = (input.n + chunk_size - 1) / chunk_size;
  const auto word_at = [&](std::size_t w) {
    const std::uint64_t word = inverted ? ~bitmap[w] : bitmap[w];
    const bool cut = w + 1 == bitmap.size() && input.n % kWordBits != 0;
    return cut ? word & ((std::uint64_t{1} << (input.n % kWordBits)) - 1) : word;
  };
  // starts[c]: the place in the slot of chunk c's elements. A chunk begins with a word. A single
  // thread takes the chunks in order and need not count.
  const auto starts = WorkspaceArray<std::size_t>(*context.workspace, kUseChunkParts, chunks + 1);
  starts[0] = 0;
  if (context.pool->threads() > 1) {
    context.pool->ParallelFor(chunks, [&](std::size_t c, int) {
      const std::size_t last = std::min(input.n, (c + 1) * chunk_size);
      std::size_t count = 0;
      for (std::size_t w = c * chunk_size / kWordBits; w * kWordBits < last; ++w) {
        count += static_cast<std::size_t>(std::popcount(word_at(w)));
      }
      starts[c + 1] = count;
    });
    for (std::size_t c = 0; c < chunks; ++c) starts[c + 1] += starts[c];
  }
  const auto workers = static_cast<std::size_t>(context.pool->threads());
  const auto offsets =
      WorkspaceArray<std::uint16_t>(*context.workspace, kUseOffsets, 2 * workers * kOffsetRoom);
  float* const residual = input.pending ? input.residual : nullptr;
  const float* const from = input.pending ? input.gradient : input.x();
  const float* const x = input.x();
  const bool all = checked == Checked::kAll || residual != nullptr;
  std::atomic<bool> finite{true};
  context.pool->ParallelFor(chunks, [&](std::size_t c, int worker) {
    std::uint16_t* at = offsets.data() + static_cast<std::size_t>(worker) * 2 * kOffsetRoom;
    std::uint16_t* next_at = at + kOffsetRoom;
    std::size_t taken = starts[c];
    std::uint32_t largest = 0;
    const std::size_t end = std::min(input.n, (c + 1) * chunk_size);
    // Finds the positions of a block that are taken. Prefetches their lines unless x is read whole.
    const auto find = [&](std::size_t begin, std::uint16_t* found) {
      std::uint64_t words[kBlock / kWordBits];
      const std::size_t size = std::min(kBlock, end - begin);
      const std::size_t word_count = (size + kWordBits - 1) / kWordBits;
      for (std::size_t w = 0; w < word_count; ++w) words[w] = word_at(begin / kWordBits + w);
      const std::size_t count = kernels.positions(words, word_count, found);
      for (std::size_t j = 0; !all && j < count; ++j) __builtin_prefetch(x + begin + found[j]);
      return count;
    };
    std::size_t next_count = find(c * chunk_size, next_at);
    for (std::size_t begin = c * chunk_size; begin < end; begin += kBlock) {
      const std::size_t size = std::min(kBlock, end - begin);
      if (all) {  // this brings the block into L1
        largest = std::max(
            largest,
            kernels.add(from + begin, residual == nullptr ? nullptr : residual + begin, size));
      }
      const std::size_t count = next_count;
      std::swap(at, next_at);
      if (begin + size < end) next_count = find(begin + size, next_at);
      float* const values = slot.values.data + taken;
      largest =
          std::max(largest, kernels.gather(x + begin, at, count, static_cast<std::uint32_t>(begin),
                                           slot.indices.data + taken, values));
      if (input.residual != nullptr) {
        kernels.clear(at, values, count, 0, input.residual + begin);
      }
      taken += count;
    }
    if (context.pool->threads() == 1) starts[c + 1] = taken;
    if (largest >= kInfinityKey) finite.store(false, std::memory_order_relaxed);
  });
  slot.count = starts[chunks];
  input.pending = false;
  if (finite || checked == Checked::kNothing) return;
  for (std::size_t i = 0; i < slot.count && input.residual != nullptr; ++i) {
    input.residual[slot.indices.data[i]] = slot.values.data[i];
  }
  ThrowNotFinite(input, info);
}

void SelectRandom(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const RandomStream& stream, std::size_t k, Checked checked, Slot& slot) {
  const bool drawn_are_sent = k <= input.n / 2;
  const auto bitmap = ClearBitmap(*context.workspace, input.n);
  MarkDistinct(stream, input.n, drawn_are_sent ? k : input.n - k, bitmap);
  TakeBitmap(context, input, info, bitmap, !drawn_are_sent, checked, slot);
}

void SelectDrawn(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                 const RandomStream& stream, std::size_t count, Slot& slot) {
  const auto bitmap = ClearBitmap(*context.workspace, input.n);
  for (std::size_t draw = 0; draw < count; ++draw) {
    const std::uint64_t i = stream.Below(input.n, draw);
    bitmap[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  TakeBitmap(context, input, info, bitmap, false, Checked::kNothing, slot);
}

namespace {

constexpr double kRest = 8192;  // draws of one block in its first round
constexpr unsigned kMaxRounds = kBitmapScratchWords;

class RandomK final : public ScanSparsifier {
 public:
  RandomK(Checked checked, std::uint64_t seed) : checked_(checked), seed_(seed) {}

  std::string_view name() const noexcept override { return "randomk"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    SelectRandom(context, input, info, RandomStream(seed_, info.id, info.step), aim.k, checked_,
                 slot);
  }

  // Draws positions in rounds, then sends the elements at these positions.
  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* /*state*/,
                      DeviceSlot& slot) const override {
    const std::size_t n = source.gradient.size;
    const std::size_t k = KeptCount(n, density);
    CheckSelectOnDevice(name(), context, source, density, info, slot, k);
    const bool drawn_are_sent = k <= n / 2;
    const std::size_t count = drawn_are_sent ? k : n - k;
    const DeviceBitmap bitmap = ClearDeviceBitmap(context, n);
    const gpu::Draws draws{RandomStream(seed_, info.id, info.step), n,
                           static_cast<std::uint32_t>(count), bitmap.bits, bitmap.words};
    // Runs rounds of the whole device while they have enough work. A draw hits a marked position
    // with a probability of at most count / n: that share of a round's draws is repeated.
    unsigned round = 0;
    auto missing = static_cast<double>(count);
    for (; missing > kRest && round < kMaxRounds; ++round) {
      const auto blocks =
          static_cast<std::size_t>(missing) / (gpu::DrawRound::kThreads * gpu::DrawRound::kDraws) +
          1;
      gpu::Launch(context.stream, blocks, gpu::DrawRound{draws, round}, context.only_if);
      missing *= static_cast<double>(count) / static_cast<double>(n);
    }
    if (count > 0) {
      gpu::Launch(context.stream, 1, gpu::DrawRest{draws, round}, context.only_if);
    }
    TakeBitmapOnDevice(context, source, bitmap, drawn_are_sent ? SetBits::kSent : SetBits::kKept,
                       Sum::kPending, slot);
  }

  bool SelectsOnDevice() const noexcept override { return true; }

 private:
  Checked checked_;
  std::uint64_t seed_;
};

std::unique_ptr<Sparsifier> Make(const Options& resolved, std::uint64_t seed) {
  const bool all = BoolOption(resolved, "check_unsent");
  return std::make_unique<RandomK>(all ? Checked::kAll : Checked::kSent, seed);
}

}  // namespace

SparsifierDescriptor RandomKDescriptor() {
  return {
      .name = "randomk",
      .paper = "Stich et al., NeurIPS 2018",
      .exact_count = true,
      .index_shared = true,
      .contraction = KeptFraction,
      .options = {FlagOption("check_unsent", false,
                             "without error feedback also refuse a NaN or an infinity among the "
                             "elements that are not sent, which takes a read of the whole tensor")},
      .make = Make,
      .refuses_unsent = false};
}

}  // namespace sparfuse
