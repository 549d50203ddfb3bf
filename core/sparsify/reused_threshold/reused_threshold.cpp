#include "core/sparsify/reused_threshold/reused_threshold.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/sparsify/reused_threshold/reused_threshold_kernels.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {
namespace {

struct ReusedState final : SparsifierState {
  std::unique_ptr<SparsifierState> inner;
  std::uint64_t calls = 0;
  std::uint32_t threshold = 0;  // a key; 0: unknown
  double density = 0;           // the density of the threshold
  std::size_t aim = 0;          // the selection stands if half to twice as many reach the threshold

  void Exchange(StateNumbers& numbers) override {
    if (inner) inner->Exchange(numbers);
    numbers(calls);
    numbers(threshold);
    numbers(density);
    numbers(aim);
  }
};

struct ReusedDeviceState final : SparsifierState {
  ReusedDeviceState(std::unique_ptr<SparsifierState> of, Device device)
      : inner(std::move(of)), words(1, device, "a reused threshold") {}
  std::unique_ptr<SparsifierState> inner;
  std::uint64_t calls = 0;  // all calls, for the host does not know which are wanted
  double density = 0;       // the density of the threshold
  Buffer<ReusedWords> words;
};

class ReusedThreshold final : public Sparsifier {
 public:
  ReusedThreshold(std::unique_ptr<Sparsifier> inner, int period)
      : inner_(std::move(inner)), period_(static_cast<std::uint64_t>(period)) {}

  std::string_view name() const noexcept override { return inner_->name(); }

  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    auto state = std::make_unique<ReusedState>();
    state->inner = inner_->MakeState(n);
    return state;
  }

  std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                    double density) const override {
    return inner_->Count(n, shape, density);
  }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    auto* const own = static_cast<ReusedState*>(state);
    if (own == nullptr || density == 1) {
      SparsifierState* const inner_state = own == nullptr ? nullptr : own->inner.get();
      return inner_->Select(context, source, density, info, inner_state, slot);
    }
    const bool due = own->calls++ % period_ == 0;
    if (due || own->threshold == 0 || own->density != density) {
      return Estimate(context, source, density, info, *own, slot);
    }
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    if (SelectReaching(context, input, info, *own, slot)) return;
    --context.counters->selections;  // `inner` counts it again
    if (input.residual == nullptr) return Estimate(context, source, density, info, *own, slot);
    // The pass has left x in the residual: `inner` selects from it, and its selection is cleared.
    const SelectSource x{{input.residual, input.n, source.residual.stream}, {}};
    Estimate(context, x, density, info, *own, slot);
    for (std::size_t i = 0; i < slot.count; ++i) input.residual[slot.indices.data[i]] = 0.0f;
  }

  bool SelectsOnDevice() const noexcept override { return inner_->SelectsOnDevice(); }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const override {
    return std::make_unique<ReusedDeviceState>(inner_->MakeDeviceState(n, device), device);
  }

  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    auto* const own = static_cast<ReusedDeviceState*>(state);
    if (own == nullptr || density == 1) {
      SparsifierState* const inner_state = own == nullptr ? nullptr : own->inner.get();
      return inner_->SelectOnDevice(context, source, density, info, inner_state, slot);
    }
    const bool due = own->calls++ % period_ == 0;
    if (due || own->density != density) {
      EstimateOnDevice(context, source, density, info, *own, slot);
    } else {
      ReuseOnDevice(context, source, density, info, *own, slot);
    }
  }

 private:
  void Estimate(const SelectContext& context, const SelectSource& source, double density,
                const TensorInfo& info, ReusedState& own, Slot& slot) const {
    inner_->Select(context, source, density, info, own.inner.get(), slot);
    own.threshold = slot.count == 0 ? 0 : kAbsMask;
    for (std::size_t i = 0; i < slot.count; ++i) {
      own.threshold = std::min(own.threshold, KeyOf(slot.values.data[i]));
    }
    own.density = density;
    const std::size_t count = inner_->Count(source.gradient.size, info.shape, density);
    const bool near = 2 * slot.count >= count && slot.count <= 2 * count;
    own.aim = near ? count : slot.count;
  }

  // Returns false, with the slot unchanged and nothing pending, if too few or too many elements
  // reach the threshold.
  static bool SelectReaching(const SelectContext& context, SelectInput& input,
                             const TensorInfo& info, const ReusedState& own, Slot& slot) {
    const std::size_t most = std::min({2 * own.aim, slot.capacity, input.n});
    const Candidates reaching = Collect(context, input, info, own.threshold, kFineShift, most);
    if (reaching.stored && 2 * reaching.count >= own.aim) {
      TakeFirst(input, reaching, reaching.count, slot);
      return true;
    }
    const bool overflow = reaching.count > slot.capacity;
    ++(overflow ? context.counters->overflows : context.counters->fallbacks);
    return false;
  }

  // Lets `inner` select, and learns the threshold of its selection.
  //   residual  the place of x after the pass, or null. If given, the elements that `inner` sent
  //             are cleared in it.
  void EstimateOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                        const TensorInfo& info, ReusedDeviceState& own, DeviceSlot& slot,
                        float* residual = nullptr) const {
    inner_->SelectOnDevice(context, source, density, info, own.inner.get(), slot);
    own.density = density;
    const std::size_t count = inner_->Count(source.gradient.size, info.shape, density);
    const std::size_t blocks =
        std::clamp<std::size_t>(slot.capacity / 4096, 1, gpu::LearnReused::kMostBlocks);
    gpu::Launch(
        context.stream, blocks,
        gpu::LearnReused{own.words.data(), count, slot.indices, slot.values, slot.report, residual},
        context.only_if);
  }

  // Sends the elements that reach the threshold. If they are too few or too many, `inner` selects.
  void ReuseOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                     const TensorInfo& info, ReusedDeviceState& own, DeviceSlot& slot) const {
    const std::size_t count = inner_->Count(source.gradient.size, info.shape, density);
    const DeviceInput input =
        BeginSelectOnDevice(name(), context, source, density, info, slot, count);
    ReusedWords* const words = own.words.data();
    DeviceScan scan = PrepareScan(context, input, info, count, slot,
                                  {.capacity = std::min(input.n, slot.capacity),
                                   .own = &words->again,
                                   .own_size = 1,
                                   .bound = &words->key});
    CollectOnDevice(context, scan);
    gpu::Launch(context.stream, 1,
                gpu::ReuseGuard{scan.control, words, static_cast<std::uint32_t>(scan.capacity),
                                static_cast<std::uint32_t>(slot.capacity), slot.report},
                scan.active());
    Send(context, scan, slot);

    // The pass has left x in the residual, if there is one: `inner` selects from it, and its
    // selection is cleared.
    DeviceContext again = context;
    again.only_if = &words->again;
    const SelectSource x{{input.residual, input.n, source.residual.stream}, {}};
    EstimateOnDevice(again, input.residual == nullptr ? source : x, density, info, own, slot,
                     input.residual);
  }

  std::unique_ptr<Sparsifier> inner_;
  std::uint64_t period_;
};

}  // namespace

int ThresholdPeriod(const SparsifierDescriptor& sparsifier, std::int64_t given) {
  const std::string period = Concat("threshold_period = ", given);
  SPARFUSE_REQUIRE(given >= 0 && given <= std::numeric_limits<int>::max(), period,
                   ": expected a number of steps, or 0 for the default");
  SPARFUSE_REQUIRE(given <= 1 || sparsifier.reusable_threshold, period, " with sparsifier \"",
                   sparsifier.name,
                   "\", which finds no threshold that could be reused: expected 1");
  if (given > 0) return static_cast<int>(given);
  return sparsifier.reusable_threshold && !sparsifier.exact_count ? kThresholdPeriod : 1;
}

std::unique_ptr<Sparsifier> ReuseThreshold(std::unique_ptr<Sparsifier> inner, int period) {
  SPARFUSE_REQUIRE(period >= 1, "reuse of the threshold of ", inner->name(), ": period = ", period,
                   ": expected at least 1");
  if (period == 1) return inner;
  return std::make_unique<ReusedThreshold>(std::move(inner), period);
}

}  // namespace sparfuse
