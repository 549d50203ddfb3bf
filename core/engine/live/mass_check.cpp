#include "core/engine/live/mass_check.hpp"

#include <cmath>
#include <limits>

#include "core/collective/collective.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse {
namespace {

constexpr int kTag = 0;  // no other messages are in transit between steps

std::vector<float> OnHost(std::span<const float> values, const Stream& stream) {
  std::vector<float> copy(values.size());
  if (stream.device.kind == DeviceKind::kHost) {
    copy.assign(values.begin(), values.end());
  } else {
    gpu::CopyAsync(stream, copy.data(), values.data(), values.size_bytes());
    gpu::Synchronize(stream);
  }
  return copy;
}

void SumOverRanks(ProgressLoop& loop, std::span<float> values) {
  ExchangeBuffers buffers;
  buffers.dense = values;
  const auto ring = CoreCollective("ring-allreduce");
  loop.RunBlocking([&](Communicator& world) { return ring->Run(world.host(), buffers, kTag); });
}

}  // namespace

void MassCheck::Begin(LiveEngine& engine) {
  balance_.assign(engine.layout().numel(), 0.0f);
  scale_.assign(engine.layout().numel(), 0.0f);
  AddResidual(engine, 1);
  active_ = true;
}

void MassCheck::AddResidual(LiveEngine& engine, float sign) {
  const std::span<const float> residual = engine.Residual({0, engine.layout().numel()});
  for (std::size_t i = 0; i < residual.size(); ++i) {
    balance_[i] += sign * residual[i];
    scale_[i] += std::fabs(residual[i]);
  }
}

void MassCheck::Announce(const LiveEngine& engine, std::size_t tensor,
                         std::span<const float> gradient) {
  const std::size_t begin = engine.layout().tensor(tensor).offset;
  const std::vector<float> values = OnHost(gradient, engine.compute_stream());
  for (std::size_t i = 0; i < values.size(); ++i) {
    balance_[begin + i] += values[i];
    scale_[begin + i] += std::fabs(values[i]);
  }
}

std::uint64_t MassCheck::Violations(LiveEngine& engine) {
  active_ = false;
  AddResidual(engine, -1);
  SumOverRanks(loop_, balance_);
  SumOverRanks(loop_, scale_);
  // Each of about 4 P additions rounds by half a unit of at most the sum of all magnitudes.
  const auto ranks = static_cast<float>(loop_.size());
  const float tolerance = 4 * (ranks + 1) * std::numeric_limits<float>::epsilon();
  std::uint64_t violations = 0;
  for (std::size_t t = 0; t < engine.layout().tensors(); ++t) {
    const TensorEntry& tensor = engine.layout().tensor(t);
    if (!tensor.feedback && !tensor.dense) continue;
    const DeviceSpan<const float> average = engine.AveragedOnDevice(t);
    const std::vector<float> applied = OnHost({average.data, average.size}, average.stream);
    for (std::size_t i = 0; i < applied.size(); ++i) {
      const std::size_t at = tensor.offset + i;
      const float error = std::fabs(balance_[at] - ranks * applied[i]);
      if (!(error <= tolerance * (scale_[at] + ranks * std::fabs(applied[i])))) ++violations;
    }
  }
  return violations;
}

}  // namespace sparfuse
