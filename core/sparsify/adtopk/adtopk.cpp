// Selects by all-dimension top-k: every fibre of a tensor along one axis keeps its k = max(1,
// trunc(C * density)) elements of largest magnitude, C being the axis's extent; in turns with
// global top-k if interleaved.
//
// Source:      ADTopk, "All-dimension Top-k compression for high-performance data-parallel DNN
//              training", HPDC 2024, and its published code.
// Deviations:  stated in the descriptors.
#include "core/sparsify/adtopk/adtopk.hpp"

#include <algorithm>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "core/device/launch.hpp"
#include "core/sparsify/adtopk/fibre_device_kernels.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kWarpFibre = 1024;  // longest fibre that one warp selects from
constexpr std::size_t kFewMaxima = 320;   // largest k for which 256 threads give a narrow bound

bool Aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Tiles hold whole slices in shared memory. Contiguous fibres that keep much get a block each.
bool FitsTiles(const Fibres& fibres, std::size_t k) {
  if (fibres.length * fibres.inner > gpu::kTile || fibres.length > kWarpFibre) return false;
  return fibres.inner > 1 || fibres.length <= gpu::kThreadFibre || k <= gpu::kMostMaxima;
}

void SelectByTiles(const DeviceContext& context, gpu::FibreSource source, const Fibres& fibres) {
  const std::size_t slice = fibres.length * fibres.inner;
  std::size_t slices = gpu::kTile / slice;
  if (slices > 4) slices -= slices % 4;  // tiles begin at aligned addresses
  source.aligned &= slices * slice % 4 == 0;
  const auto launch = [&]<unsigned kPerLane>() {
    gpu::Launch(context.stream, (fibres.outer + slices - 1) / slices,
                gpu::SelectTiles<kPerLane>{source, static_cast<std::uint32_t>(slices)},
                context.only_if);
  };
  if (fibres.length <= 128) return launch.operator()<4>();
  if (fibres.length <= 512) return launch.operator()<16>();
  launch.operator()<32>();
}

template <bool kMarks>
void SelectByRows(const DeviceContext& context, gpu::FibreSource source, std::size_t rows) {
  source.aligned &= source.length % 4 == 0;
  using Short = gpu::SelectRows<kMarks, 256>;
  if (source.k <= kFewMaxima && source.length <= Short::kSegment) {
    gpu::Launch(context.stream, rows, Short{source}, context.only_if);
  } else {
    gpu::Launch(context.stream, rows, gpu::SelectRows<kMarks, 512>{source}, context.only_if);
  }
}

void MarkByColumns(const DeviceContext& context, const gpu::FibreSource& source,
                   const Fibres& fibres) {
  if (fibres.length <= gpu::kThreadFibre) {
    constexpr std::size_t kEach = gpu::SelectThinColumns::kThreads;
    gpu::Launch(context.stream, (fibres.count() + kEach - 1) / kEach,
                gpu::SelectThinColumns{source, fibres.count()}, context.only_if);
    return;
  }
  const auto launch = [&]<unsigned kPerLane>() {
    using Columns = gpu::SelectColumns<kPerLane>;
    gpu::Launch(context.stream, Columns::Blocks(fibres.outer, fibres.inner), Columns{source},
                context.only_if);
  };
  if (fibres.length <= 512) return launch.operator()<16>();
  launch.operator()<32>();
}

void MarkTransposed(const DeviceContext& context, gpu::FibreSource source, const Fibres& fibres) {
  auto* const turned = context.workspace->Get<float>(context.stream, kUseTransposed, source.n);
  gpu::Launch(context.stream, gpu::Transpose::Blocks(fibres.outer, fibres.length, fibres.inner),
              gpu::Transpose{source, turned}, context.only_if);
  source.gradient = turned;
  source.residual = nullptr;
  source.pending = false;
  source.aligned = true;
  SelectByRows<true>(context, source, fibres.count());
}

// SelectFibres on a device. Preconditions: 1 <= k < fibres.length; the slot has room. Cost: one
// launch and one read of x if fibres are contiguous or a slice of them has at most 8192 elements.
// Otherwise two launches; fibres of more than 1024 elements take four, and two more passes.
void SelectFibresOnDevice(const DeviceContext& context, const SelectSource& source,
                          const Fibres& fibres, std::size_t k, DeviceSlot& slot) {
  gpu::FibreSource from{};
  from.gradient = source.gradient.data;
  from.residual = source.residual.size == 0 ? nullptr : source.residual.data;
  from.pending = true;
  from.aligned = Aligned(from.gradient) && Aligned(from.residual);
  from.n = source.gradient.size;
  from.length = static_cast<std::uint32_t>(fibres.length);
  from.inner = static_cast<std::uint32_t>(fibres.inner);
  from.k = static_cast<std::uint32_t>(k);
  from.indices = slot.indices;
  from.values = slot.values;
  from.report = slot.report;
  if (FitsTiles(fibres, k)) return SelectByTiles(context, from, fibres);
  if (fibres.inner == 1) return SelectByRows<false>(context, from, fibres.count());
  const DeviceBitmap bitmap = ClearDeviceBitmap(context, from.n);
  from.bitmap = bitmap.bits;
  if (fibres.length <= kWarpFibre) {
    MarkByColumns(context, from, fibres);
  } else {
    MarkTransposed(context, from, fibres);
  }
  TakeBitmapOnDevice(context, source, bitmap, SetBits::kSent, Sum::kDone, slot);
}

class AdTopK final : public Sparsifier {
 public:
  explicit AdTopK(FibreAxis axis) : axis_(axis), topk_(TopKDescriptor().make({}, 0)) {}

  std::string_view name() const noexcept override { return "adtopk"; }

  // Only a tensor of one fibre needs a state.
  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    return topk_->MakeState(n);
  }

  std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                    double density) const override {
    return AllDimensionCount(n, shape, density, axis_);
  }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    const Fibres fibres = FibresFor(source, info);
    if (fibres.count() == 1) {
      return topk_->Select(context, source, density, info, state, slot);
    }
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    CheckShape(source, info);
    const std::size_t k = KeptCount(fibres.length, density);
    RequireRoom(name(), info, slot.capacity, k * fibres.count());
    if (k == fibres.length) return SelectAll(context, input, info, slot);
    SelectFibres(context, input, info, fibres, k, slot);
  }

  bool SelectsOnDevice() const noexcept override { return true; }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const override {
    return topk_->MakeDeviceState(n, device);
  }

  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    const Fibres fibres = FibresFor(source, info);
    if (fibres.count() == 1) {
      return topk_->SelectOnDevice(context, source, density, info, state, slot);
    }
    CheckSelectArguments(name(), source, density, info);
    CheckShape(source, info);
    const std::size_t k = KeptCount(fibres.length, density);
    const DeviceInput input =
        BeginSelectOnDevice(name(), context, source, density, info, slot, k * fibres.count());
    if (k == fibres.length) return SelectAllOnDevice(context, input, slot);
    SelectFibresOnDevice(context, source, fibres, k, slot);
  }

 private:
  static bool ShapeFits(const SelectSource& source, const TensorInfo& info) {
    return info.shape.empty() || ElementsOf(info.shape) == source.gradient.size;
  }
  void CheckShape(const SelectSource& source, const TensorInfo& info) const {
    SPARFUSE_REQUIRE(ShapeFits(source, info), name(), ": tensor \"", info.name,
                     "\": ", source.gradient.size,
                     " elements; expected the elements of its shape, ", ElementsOf(info.shape));
  }
  // None if the shape does not fit.
  Fibres FibresFor(const SelectSource& source, const TensorInfo& info) const {
    if (!ShapeFits(source, info)) return {.outer = 0};
    return FibresOf(source.gradient.size, info.shape, axis_);
  }

  FibreAxis axis_;
  std::unique_ptr<Sparsifier> topk_;
};

struct InterleavedState final : SparsifierState {
  std::unique_ptr<SparsifierState> topk;  // serves both phases: only one-fibre tensors use it twice
  bool global = false;                    // the next phase is global
  std::optional<bool> stays;              // whether the name excludes the tensor from global phases

  void Exchange(StateNumbers& numbers) override { numbers(global); }
};

class AdTopKInterleaved final : public Sparsifier {
 public:
  AdTopKInterleaved(FibreAxis axis, const std::string& always)
      : all_dimension_(MakeAdTopK(axis)), topk_(TopKDescriptor().make({}, 0)), axis_(axis) {
    if (always.empty()) return;
    constexpr std::size_t kLongest = 1000;
    SPARFUSE_REQUIRE(always.size() <= kLongest,
                     "sparsifier adtopk-interleaved: always_all_dimension has ", always.size(),
                     " characters: expected at most ", kLongest);
    always_.emplace(always,
                    "sparsifier adtopk-interleaved: always_all_dimension = \"" + always + "\"");
  }

  std::string_view name() const noexcept override { return "adtopk-interleaved"; }

  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    auto state = std::make_unique<InterleavedState>();
    state->topk = topk_->MakeState(n);
    return state;
  }

  std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                    double density) const override {
    return std::max(KeptCount(n, density), AllDimensionCount(n, shape, density, axis_));
  }

  // Without a state every step counts as the first.
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    auto* own = static_cast<InterleavedState*>(state);
    NextPhase(own, info).Select(context, source, density, info,
                                own == nullptr ? nullptr : own->topk.get(), slot);
  }

  bool SelectsOnDevice() const noexcept override { return true; }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const override {
    auto state = std::make_unique<InterleavedState>();
    state->topk = topk_->MakeDeviceState(n, device);
    return state;
  }

  // The host decides the phases.
  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    auto* own = static_cast<InterleavedState*>(state);
    if (own != nullptr && !IsWanted(context)) return;
    NextPhase(own, info).SelectOnDevice(context, source, density, info,
                                        own == nullptr ? nullptr : own->topk.get(), slot);
  }

 private:
  const Sparsifier& NextPhase(InterleavedState* own, const TensorInfo& info) const {
    if (own == nullptr) return *all_dimension_;
    if (!own->stays.has_value()) {
      own->stays = always_ && always_->FoundIn(info.name);
    }
    const bool global = own->global && !*own->stays;
    own->global = !own->global;
    return global ? *topk_ : *all_dimension_;
  }

  std::unique_ptr<Sparsifier> all_dimension_;
  std::unique_ptr<Sparsifier> topk_;
  FibreAxis axis_;
  std::optional<Expression> always_;
};

}  // namespace

std::unique_ptr<Sparsifier> MakeAdTopK(FibreAxis axis) { return std::make_unique<AdTopK>(axis); }

std::size_t AllDimensionCount(std::size_t n, std::span<const std::int64_t> shape, double density,
                              FibreAxis axis) {
  const Fibres fibres = FibresOf(n, shape, axis);
  return fibres.count() * KeptCount(fibres.length, density);
}

double AllDimensionContraction(std::size_t n, std::span<const std::int64_t> shape, double density,
                               FibreAxis axis) {
  const Fibres fibres = FibresOf(n, shape, axis);
  return static_cast<double>(KeptCount(fibres.length, density)) /
         static_cast<double>(fibres.length);
}

OptionSpec AxisOption() {
  return {.name = "axis",
          .fallback = std::string("1"),
          .choices = {"1", "0", "longest"},
          .meaning =
              "axis along which a tensor is cut into fibres; longest: 0 if the first extent is "
              "larger than the second, else 1"};
}

FibreAxis AxisOf(std::string_view axis) {
  if (axis == "longest") return FibreAxis::kLongest;
  return axis == "0" ? FibreAxis::kFirst : FibreAxis::kSecond;
}

double SmallerContraction(std::span<const std::int64_t> shape, double density) {
  const std::size_t n = ElementsOf(shape);
  return std::min(AllDimensionContraction(n, shape, density, FibreAxis::kFirst),
                  AllDimensionContraction(n, shape, density, FibreAxis::kSecond));
}

SparsifierDescriptor AdTopKDescriptor() {
  return {.name = "adtopk",
          .paper = "ADTopk, HPDC 2024",
          .exact_count = true,
          .contraction = SmallerContraction,
          .deviations =
              "A tensor of one dimension, and a fused buffer, is one fibre: exact top-k of it. The "
              "published code takes axis 1 in the library, 0 for LSTMs, the longest in its proofs.",
          .options = {AxisOption()},
          .make = [](const Options& resolved,
                     std::uint64_t) { return MakeAdTopK(AxisOf(StringOption(resolved, "axis"))); },
          .aliases = {"allchanneltopk", "alldimensiontopk"}};
}

SparsifierDescriptor AdTopKInterleavedDescriptor() {
  return {.name = "adtopk-interleaved",
          .paper = "ADTopk, HPDC 2024",
          // Measured over both phases of the matrices and kernels of ResNet-50, VGG-16 and
          // BERT-base at density 0.01 (by the test AdTopKInterleaved.SelectionModelHolds).
          .selection_model = {-0.066, 0.107},
          .contraction =
              [](std::span<const std::int64_t> shape, double density) {
                return std::min(KeptFraction(shape, density), SmallerContraction(shape, density));
              },
          .deviations =
              "A tensor of one dimension, and a fused buffer, is one fibre: exact top-k in both "
              "phases. "
              "The published code exempts every name with \"fc\" in it from the global phase, the "
              "default of always_all_dimension only layers named fc.",
          .options = {AxisOption(),
                      {.name = "always_all_dimension",
                       .fallback = std::string(R"((^|\.)fc\.)"),
                       .meaning = "regular expression; tensors whose names it matches have no "
                                  "global phase; empty: all tensors have one"}},
          .make = [](const Options& resolved, std::uint64_t) -> std::unique_ptr<Sparsifier> {
            return std::make_unique<AdTopKInterleaved>(
                AxisOf(StringOption(resolved, "axis")),
                StringOption(resolved, "always_all_dimension"));
          },
          .aliases = {"adtopk_i", "adtopk-i", "actopk"}};
}

}  // namespace sparfuse
