#include "core/sparsify/dgc/dgc_device.hpp"

#include <cmath>

#include "core/sparsify/dgc/dgc_kernels.hpp"
#include "core/sparsify/scan_device/collect_with_measure.hpp"

namespace sparfuse {
namespace {

gpu::DgcRule RuleOf(const DeviceInput& input, double density, const TensorInfo& info,
                    const DgcOptions& options, std::uint64_t seed, const DeviceSlot& slot) {
  const std::size_t n = input.n;
  const std::size_t k = CeilProduct(n, density);
  const DgcSample sample = PlanDgcSample(n, density, options.sample_ratio);
  const RandomStream stream(seed, info.id, info.step);
  const bool all = sample.samples == n;
  const bool strided = all || options.strided;
  const std::uint64_t start = all || !strided ? 0 : stream.Below(sample.stride, 0);
  const std::size_t taken =
      strided ? (n - start + sample.stride - 1) / sample.stride : sample.samples;
  gpu::DgcRule rule{.k = 0,
                    .rank = 0,
                    .samples = 0,
                    .stride = 0,
                    .start = 0,
                    .strided = strided,
                    .corrected = !all,
                    .resample = options.resample,
                    .exact_trim = options.exact_trim,
                    .most = 0,
                    .max_iterations = options.max_iterations,
                    .upper_bound = options.upper_bound,
                    .lower_bound = options.lower_bound,
                    .stream = stream};
  rule.k = static_cast<std::uint32_t>(k);
  rule.rank = static_cast<std::uint32_t>(std::min(CeilProduct(sample.samples, density), taken));
  rule.samples = static_cast<std::uint32_t>(taken);
  rule.stride = static_cast<std::uint32_t>(sample.stride);
  rule.start = static_cast<std::uint32_t>(start);
  rule.most = static_cast<std::uint32_t>(std::min(slot.capacity, CandidateCapacity(n, k)));
  return rule;
}

// Candidates that tell, as a rule, what the rule comes to.
std::size_t WantedBy(const gpu::DgcRule& rule, std::size_t n) {
  const double least = 1 + 6 / std::sqrt(static_cast<double>(rule.rank));
  const double wanted = std::max(least, rule.upper_bound) * static_cast<double>(rule.k) + 1;
  return wanted < static_cast<double>(n) ? static_cast<std::size_t>(wanted) : n;
}

}  // namespace

void SelectDgcOnDevice(const DeviceContext& context, const DeviceInput& input, double density,
                       const TensorInfo& info, const DgcOptions& options, std::uint64_t seed,
                       WarmWords* warm, const DeviceSlot& slot) {
  const Stream& stream = context.stream;
  const gpu::DgcRule rule = RuleOf(input, density, info, options, seed, slot);
  if (input.n <= kOneBlock) {
    const gpu::DeviceSource source = gpu::SourceOf(input);
    const gpu::SendTarget target = gpu::TargetOf(input, slot);
    if (input.n <= kOneBlock / 4) {
      gpu::Launch(stream, 1, gpu::DgcOfSmall<256>{rule, source, target}, context.only_if);
    } else {
      gpu::Launch(stream, 1, gpu::DgcOfSmall<1024>{rule, source, target}, context.only_if);
    }
    return;
  }

  const std::size_t wanted = WantedBy(rule, input.n);
  auto* const words = context.workspace->Get<gpu::DgcWords>(stream, kUseStep, 1);
  DeviceScan scan = PrepareScan(context, input, info, rule.k, slot,
                                {.wanted = wanted,
                                 .warm = warm,
                                 .capacity = CandidateCapacity(input.n, wanted),
                                 .own = reinterpret_cast<std::uint32_t*>(words),
                                 .own_size = sizeof(*words) / sizeof(std::uint32_t)});
  scan.warm = nullptr;  // learns here
  if (!rule.strided) {
    constexpr std::size_t kAtOnce = gpu::DgcFromRandom::kEach * gpu::DgcFromRandom::kThreads;
    const std::size_t lists = std::clamp<std::size_t>(rule.samples / kAtOnce, 1, kMostSpans);
    gpu::Launch(stream, lists,
                gpu::DgcFromRandom{rule, gpu::SourceOf(input), scan.control, words, scan.list},
                scan.active());
  }
  CollectOnDevice(context, scan);
  const std::size_t blocks = gpu::LookingBlocks(scan.capacity);
  gpu::Launch(stream, 2 * blocks,
              gpu::DgcDecide{rule, scan.control, words, gpu::CandidatesOf(scan), scan.list,
                             slot.report, warm, static_cast<std::uint32_t>(wanted)},
              scan.active());
  const std::size_t spans = std::min(kExactSpans, scan.plan.chunks);
  gpu::Launch(stream, (gpu::kKeyDigits + 1) * spans + 1,
              gpu::DgcFromAll{rule, scan.input.x(), input.n, static_cast<std::uint32_t>(spans),
                              scan.control, words, slot.report},
              &words->slow);
  RecollectOnDevice(context, scan);
  SendReaching(context, scan, slot);
}

}  // namespace sparfuse
