// Selects by all-dimension top-k and by a kept threshold in turns. An exact top-k refreshes the
// threshold, and does so more rarely the steadier the threshold is.
//
// Source:      ADTopk, HPDC 2024 ("efficient threshold estimation"), and its published code.
// Deviations:  stated in the descriptor.
//
// With K = max(1, trunc(n * density)); phases A and B alternate tensor by tensor, A first:
//   A          all-dimension top-k.
//   B          with a threshold and a period tau of the tensor's own.
//     the first `warmup`   exact top-K; threshold = the smallest magnitude that top-K kept.
//     last quarter of training_steps, the threshold being steady: as phase A.
//     tau phases B after the last exact one, a refresh: exact top-K, whose smallest magnitude is
//                          the new threshold. With d = |old - new| and e = new / 10: d < e/2
//                          lengthens tau by 2, d < e by 1 (steady); d > 2e shortens tau by 2,
//                          d > e by 1 (not steady). tau stays within 5 to 1000.
//     else                 |x| >= threshold; a refresh instead if fewer than K/2 or more than 2K
//                          elements reach the threshold.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "core/device/launch.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "core/sparsify/adtopk/kept_threshold_kernels.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {
namespace {

constexpr std::uint64_t kReferenceWarmUp = 15;  // steps

struct ThresholdOptions {
  FibreAxis axis;
  std::int64_t tau;
  std::uint64_t warmup;          // B phases
  std::uint64_t training_steps;  // 0: unknown
  bool reference;
};

struct ThresholdState final : SparsifierState {
  std::unique_ptr<SparsifierState> topk;
  bool estimates = false;  // the next phase is B
  std::uint64_t steps = 0;
  std::uint64_t estimated = 0;   // number of B phases
  std::int64_t since_exact = 0;  // number of B phases
  std::int64_t tau = 0;
  float threshold = 0;
  bool has_threshold = false;
  bool steady = false;

  void Exchange(StateNumbers& numbers) override {
    numbers(estimates);
    numbers(steps);
    numbers(estimated);
    numbers(since_exact);
    numbers(tau);
    numbers(threshold);
    numbers(has_threshold);
    numbers(steady);
  }
};

// The host's part of the state of a selection on a device.
struct DeviceThresholdState final : SparsifierState {
  explicit DeviceThresholdState(Device device) : kept(1, device, "a kept threshold") {}

  std::unique_ptr<SparsifierState> topk;
  Buffer<KeptThreshold> kept;
  bool estimates = false;
  std::uint64_t steps = 0;
  std::uint64_t estimated = 0;
};

float SmallestKept(const Slot& slot) {
  float smallest = std::abs(slot.values.data[0]);
  for (std::size_t i = 1; i < slot.count; ++i) {
    smallest = std::min(smallest, std::abs(slot.values.data[i]));
  }
  return smallest;
}

// Decides the phase on the device: kept->all_dimension, or kept->estimates and its kind.
void BeginPhaseOnDevice(const DeviceContext& context, KeptThreshold* kept, bool warming,
                        bool ending) {
  gpu::Launch(context.stream, 1, gpu::BeginPhase{kept, warming, ending}, context.only_if);
}

// Does nothing unless kept->estimates. Sends the elements that reach the threshold if they are k/2
// to 2k and the phase is not an exact one. Else sends the k largest and learns the threshold.
void SendByThreshold(const DeviceContext& context, const DeviceInput& input, const TensorInfo& info,
                     std::size_t k, KeptThreshold* kept, bool warming, DeviceSlot& slot) {
  const Stream& stream = context.stream;
  DeviceContext wanted = context;
  wanted.only_if = &kept->estimates;
  // A bound that more than 2k elements reach shows whether too many reach the threshold.
  DeviceScan scan =
      PrepareScan(wanted, input, info, k, slot, {.wanted = std::min(input.n, 2 * k + 1)});
  const auto count = static_cast<std::uint32_t>(k);
  gpu::Launch(stream, 1, gpu::ChooseReaching{kept, scan.control, count}, scan.active());
  CollectOnDevice(wanted, scan);
  SendReaching(wanted, scan, slot);
  const std::size_t blocks = std::clamp<std::size_t>(k / (8 * gpu::FindSmallest::kThreads), 1, 256);
  gpu::Launch(stream, blocks, gpu::FindSmallest{scan.control, slot.values, slot.report, kept},
              scan.active());
  gpu::Launch(stream, 1, gpu::LearnThreshold{scan.control, kept, slot.report, warming},
              scan.active());
}

class AdTopKThreshold final : public Sparsifier {
 public:
  explicit AdTopKThreshold(const ThresholdOptions& options)
      : options_(options),
        all_dimension_(MakeAdTopK(options.axis)),
        topk_(TopKDescriptor().make({}, 0)),
        shared_tau_(options.tau) {}

  std::string_view name() const noexcept override { return "adtopk-threshold"; }

  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    auto state = std::make_unique<ThresholdState>();
    state->topk = topk_->MakeState(n);
    state->tau = options_.tau;
    return state;
  }

  // The published rule does not bound the number of elements above its threshold.
  std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                    double density) const override {
    if (options_.reference) return n;
    return std::max(std::min(n, 2 * KeptCount(n, density)),
                    AllDimensionCount(n, shape, density, options_.axis));
  }

  // Without a state every step counts as the first.
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    auto* own = static_cast<ThresholdState*>(state);
    const Step step{context, source, density, info, own, slot};
    if (own == nullptr) return AllDimension(step);
    ++own->steps;
    own->estimates = !own->estimates;
    if (own->estimates || density == 1) return AllDimension(step);
    if (options_.reference) return SelectAsPublished(step);
    SelectEstimated(step);
  }

  // The published rule reads the selection's count before it decides, so it is staged.
  bool SelectsOnDevice() const noexcept override { return !options_.reference; }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const override {
    if (options_.reference) return MakeState(n);
    auto state = std::make_unique<DeviceThresholdState>(device);
    state->topk = topk_->MakeDeviceState(n, device);
    const gpu::GpuStream stream(device);
    const KeptThreshold first{.tau = static_cast<std::int32_t>(options_.tau)};
    gpu::CopyAsync(stream.view(), state->kept.data(), &first, sizeof(first));
    gpu::Synchronize(stream.view());
    return state;
  }

  // The host decides the phases; the device runs a threshold phase.
  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    if (options_.reference) {
      return SelectStaged(*this, context, source, density, info, state, slot);
    }
    auto* own = static_cast<DeviceThresholdState*>(state);
    if (own == nullptr) {
      return all_dimension_->SelectOnDevice(context, source, density, info, nullptr, slot);
    }
    if (!IsWanted(context)) return;
    DeviceContext wanted = context;
    wanted.only_if = nullptr;
    ++own->steps;
    own->estimates = !own->estimates;
    if (own->estimates || density == 1) {
      return all_dimension_->SelectOnDevice(wanted, source, density, info, own->topk.get(), slot);
    }
    const std::size_t k = KeptCount(std::max<std::size_t>(source.gradient.size, 1), density);
    const DeviceInput input = BeginSelectOnDevice(name(), wanted, source, density, info, slot, k);
    const bool warming = own->estimated++ < options_.warmup;
    const bool ending = options_.training_steps > 0 && 4 * own->steps > 3 * options_.training_steps;
    BeginPhaseOnDevice(wanted, own->kept.data(), warming, ending);
    if (ending) {
      wanted.only_if = &own->kept.data()->all_dimension;
      all_dimension_->SelectOnDevice(wanted, source, density, info, own->topk.get(), slot);
    }
    SendByThreshold(wanted, input, info, k, own->kept.data(), warming, slot);
  }

 private:
  struct Step {
    const SelectContext& context;
    const SelectSource& source;
    double density;
    const TensorInfo& info;
    ThresholdState* own;
    Slot& slot;
  };

  void AllDimension(const Step& s) const {
    all_dimension_->Select(s.context, s.source, s.density, s.info,
                           s.own == nullptr ? nullptr : s.own->topk.get(), s.slot);
  }

  // Selects by exact top-K. Returns the previous threshold.
  float SelectExactly(const Step& s) const {
    topk_->Select(s.context, s.source, s.density, s.info, s.own->topk.get(), s.slot);
    return Learn(s);
  }

  static float Learn(const Step& s) {
    const float old = s.own->threshold;
    s.own->threshold = SmallestKept(s.slot);
    s.own->has_threshold = true;
    s.own->since_exact = 0;
    return old;
  }

  void SelectEstimated(const Step& s) const {
    ThresholdState& own = *s.own;
    ++own.since_exact;
    if (own.estimated++ < options_.warmup) {
      SelectExactly(s);
    } else if (options_.training_steps > 0 && 4 * own.steps > 3 * options_.training_steps &&
               own.steady) {
      AllDimension(s);
    } else if (own.since_exact >= own.tau) {
      Adapt(own, SelectExactly(s));
    } else if (!SelectByThreshold(s)) {
      Adapt(own, Learn(s));
    }
  }

  static void Adapt(ThresholdState& own, float old) {
    AdaptPeriod(old, own.threshold, &own.tau, &own.steady);
  }

  // Returns false if the count was out of bounds; the selection is then an exact top-K.
  bool SelectByThreshold(const Step& s) const {
    SelectInput input = BeginSelect(name(), s.context, s.source, s.density, s.info, s.slot);
    const std::size_t k = KeptCount(input.n, s.density);
    RequireRoom(name(), s.info, s.slot.capacity, k);
    const auto key = std::bit_cast<std::uint32_t>(s.own->threshold);
    const Candidates kept =
        Collect(s.context, input, s.info, key, kFineShift, CandidateCapacity(input.n, k));
    const bool fits = kept.stored && kept.count <= s.slot.capacity;
    if (fits && 2 * kept.count >= k && kept.count <= 2 * k) {
      TakeFirst(input, kept, kept.count, s.slot);
      return true;
    }
    ++s.context.counters->fallbacks;
    if (kept.count >= k) {
      SelectLargestAmong(s.context, input, s.info, kept, k, s.slot);
    } else {
      SelectLargest(s.context, input, s.info, k, 0, s.slot);
    }
    return false;
  }

  // Runs phase B as the published code does. t is the step, all tensors share one tau, the
  // tolerance is the old threshold itself, and x is compared instead of |x|.
  void SelectAsPublished(const Step& s) const {
    ThresholdState& own = *s.own;
    const std::uint64_t t = s.info.step;
    const std::int64_t tau = shared_tau_.load();
    if (t < kReferenceWarmUp || !own.has_threshold) {
      SelectExactly(s);
    } else if (4 * t > 3 * options_.training_steps && own.steady) {
      AllDimension(s);
    } else if (t % static_cast<std::uint64_t>(tau) == 0) {
      const float old = SelectExactly(s);
      const float change = std::abs(old - own.threshold);
      if (change < old) {
        shared_tau_ = tau + 1;
        own.steady = true;
      } else if (change > old) {
        shared_tau_ = std::max(tau - 1, kMinTau);
        own.steady = false;
      }
    } else {
      SelectAbove(s);
    }
  }

  void SelectAbove(const Step& s) const {
    SelectInput input = BeginSelect(name(), s.context, s.source, s.density, s.info, s.slot);
    const std::size_t k = KeptCount(input.n, s.density);
    RequireRoom(name(), s.info, s.slot.capacity, k);
    AddPending(s.context, input, s.info);
    const float* const x = input.x();
    const auto above = [&](float v) { return v > s.own->threshold; };
    const auto count = static_cast<std::size_t>(std::count_if(x, x + input.n, above));
    if (count == 0 || count > s.slot.capacity) {
      ++(count == 0 ? s.context.counters->fallbacks : s.context.counters->overflows);
      SelectLargest(s.context, input, s.info, k, 0, s.slot);
      return;
    }
    s.slot.count = 0;
    for (std::size_t i = 0; i < input.n; ++i) {
      if (!above(x[i])) continue;
      s.slot.indices.data[s.slot.count] = static_cast<std::uint32_t>(i);
      s.slot.values.data[s.slot.count++] = x[i];
      if (input.residual != nullptr) input.residual[i] = 0.0f;
    }
  }

  ThresholdOptions options_;
  std::unique_ptr<Sparsifier> all_dimension_;
  std::unique_ptr<Sparsifier> topk_;
  mutable std::atomic<std::int64_t> shared_tau_;  // as published only
};

std::int64_t FirstTau(const Options& resolved) {
  const std::int64_t tau = IntOption(resolved, "tau0");
  if (tau > 0) return tau;
  const std::string& type = StringOption(resolved, "train_type");
  if (type == "vgg") return 10;
  return type == "lstm" || type == "bert" ? 20 : 5;
}

std::unique_ptr<Sparsifier> Make(const Options& resolved, std::uint64_t /*seed*/) {
  return std::make_unique<AdTopKThreshold>(
      ThresholdOptions{AxisOf(StringOption(resolved, "axis")), FirstTau(resolved),
                       static_cast<std::uint64_t>(IntOption(resolved, "warmup")),
                       static_cast<std::uint64_t>(IntOption(resolved, "training_steps")),
                       StringOption(resolved, "compat") == "reference"});
}

}  // namespace

SparsifierDescriptor AdTopKThresholdDescriptor() {
  return {
      .name = "adtopk-threshold",
      .paper = "ADTopk, HPDC 2024",
      // Measured after the warm-up, over both phases.
      .selection_model = {-0.701, 0.338},
      // Holds for the default form; the published rule promises nothing.
      .contraction =
          [](std::span<const std::int64_t> shape, double density) {
            return std::min(KeptFraction(shape, density) / 2, SmallerContraction(shape, density));
          },
      .deviations =
          "The published code shares tau among all tensors, tolerates a change of the whole "
          "threshold instead of a tenth, and compares x instead of |x|, which sends no negative "
          "value; here each tensor has its tau, counted in its own threshold phases since the last "
          "exact one, and a count outside [K/2, 2K] becomes an exact top-k that refreshes the "
          "threshold. compat = \"reference\" is the published rule, except that an empty selection "
          "becomes an exact top-k. A tensor of one dimension is one fibre in the all-dimension "
          "phase.",
      .options =
          {AxisOption(),
           ChoiceOption(
               "train_type", "other", {"resnet", "vgg", "lstm", "bert", "other"},
               "kind of model; sets the first tau: resnet and other 5, vgg 10, lstm and bert "
               "20"),
           WholeOption("tau0", 0, 0, kMaxTau, "first tau, in threshold phases; 0: from train_type"),
           WholeOption("warmup", 15, 1, 1e9,
                       "first threshold phases of a tensor, which are exact top-k"),
           WholeOption("training_steps", 0, 0, 1e12,
                       "steps of the whole training; in its last quarter a tensor with a steady "
                       "threshold keeps to all-dimension top-k; 0: unknown, so it never does"),
           ChoiceOption(
               "compat", "none", {"none", "reference"},
               "reference: the rule of the published code, step by step; training_steps = 0 then "
               "makes a tensor with a steady threshold keep to all-dimension top-k from then on")},
      .make = Make,
      .aliases = {"adtopk_thr"}};
}

}  // namespace sparfuse
