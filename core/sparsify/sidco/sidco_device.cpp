#include "core/sparsify/sidco/sidco_device.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/sparsify/sidco/sidco_kernels.hpp"

namespace sparfuse {
namespace {

gpu::SidcoSettings SettingsOf(const SidcoOptions& options, double density) {
  return {options.fit, static_cast<std::uint32_t>(options.stages), options.first_ratio, density};
}

// Of the last step, or of this one alone, behind what its kernels tell one another.
struct Words {
  gpu::SidcoStep* step;
  SidcoMemory* memory;
};
Words WordsOf(const DeviceContext& context, const SidcoDeviceState* state) {
  struct Both {
    gpu::SidcoStep step;
    SidcoMemory memory;
  };
  auto* const both = context.workspace->Get<Both>(context.stream, kUseStep, 1);
  return {&both->step, state == nullptr ? &both->memory : state->memory.data()};
}

void LaunchAdapt(const DeviceContext& context, const DeviceScan& scan, const Words& words,
                 double density) {
  gpu::Launch(context.stream, 1,
              gpu::SidcoAdapt{density, scan.input.n, static_cast<std::uint32_t>(scan.k),
                              static_cast<std::uint32_t>(scan.capacity), words.memory, words.step,
                              scan.control},
              scan.active());
}

}  // namespace

void SelectSidcoOnDevice(const DeviceContext& context, const DeviceInput& input,
                         const TensorInfo& info, const SidcoOptions& options, double density,
                         std::size_t k, SidcoDeviceState* state, const DeviceSlot& slot) {
  const Words words = WordsOf(context, state);
  const gpu::SidcoSettings settings = SettingsOf(options, density);
  WarmWords* const warm = state == nullptr ? nullptr : state->bound.data();
  const std::size_t sampled =
      input.n < kFitSampledFrom ? 0 : std::min(input.n / kFitSampledShare, kFitMostSampled);

  DeviceScan scan = PrepareScan(context, input, info, k, slot, Correcting(input.n, k, warm));
  gpu::Launch(context.stream, 1,
              gpu::SidcoBegin{settings, state != nullptr, words.memory, words.step,
                              gpu::SourceOf(input), RandomStream(0, info.id, info.step),
                              static_cast<std::uint32_t>(sampled / kLine)},
              scan.active());
  CollectAndMeasureOnDevice<true>(
      context, scan, gpu::AimAtFit{settings, words.memory, words.step, CorrectionOf(scan)},
      settings.Measured(), &words.step->tails);
  RecollectOnDevice(context, scan);
  SendReaching(context, scan, slot);
  if (options.adaptive && state != nullptr) LaunchAdapt(context, scan, words, density);
}

void SelectSidcoPaperOnDevice(const DeviceContext& context, const DeviceInput& input,
                              const TensorInfo& info, const SidcoOptions& options, double density,
                              std::size_t k, SidcoDeviceState* state, const DeviceSlot& slot) {
  const Words words = WordsOf(context, state);
  const gpu::SidcoSettings settings = SettingsOf(options, density);
  int most = options.stages;
  if (options.adaptive && state != nullptr) {
    const int adapted = static_cast<int>(std::ceil(-std::log2(density)));
    state->most_stages = std::clamp(adapted, state->most_stages, kMaxStages);
    most = std::max(most, state->most_stages);
  }
  DeviceInput x = input;
  for (int stage = 0; stage < most; ++stage) {
    DeviceContext pass = context;
    ScanOptions of_pass = NothingCollected();
    if (stage > 0) {
      pass.only_if = &words.step->wanted[stage];
    } else {
      of_pass.own = words.step->wanted;
      of_pass.own_size = std::size(words.step->wanted);
    }
    DeviceScan scan = PrepareScan(pass, x, info, k, slot, of_pass);
    if (stage == 0) {
      gpu::Launch(context.stream, 1,
                  gpu::SidcoPaperBegin{settings, state != nullptr, words.memory, words.step},
                  scan.active());
    }
    const gpu::FitStage fit{settings, stage, words.memory, words.step};
    CollectAndMeasureOnDevice<true>(pass, scan, fit, settings.Measured(), &words.step->tails);
    x = scan.input;
  }
  DeviceScan scan =
      PrepareScan(context, x, info, k, slot, Reaching(input.n, k, &words.step->key, slot));
  CollectOnDevice(context, scan);
  SendReaching(context, scan, slot);
  if (options.adaptive && state != nullptr) LaunchAdapt(context, scan, words, density);
}

}  // namespace sparfuse
