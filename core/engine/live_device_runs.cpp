// Whole tensors on a device, which quantizers code on the host.
#include "core/engine/live_engine.hpp"

namespace sparfuse {

void LiveEngine::EnqueueRun(Selection& selection, DeviceLane& lane) {
  const Stream& stream = lane.stream;
  const std::size_t n = selection.source.size;
  const Buffer<float> source(n);
  const Buffer<float> residual(selection.residual.size);
  const Buffer<std::byte> run(selection.run.size());
  const std::size_t kept = residual.size() * sizeof(float);
  gpu::CopyAsync(stream, source.data(), selection.source.data, n * sizeof(float));
  gpu::CopyAsync(stream, residual.data(), selection.residual.data, kept);
  gpu::Synchronize(stream);
  const QuantizeContext context{&pool_, &lane.staging, rank()};
  config_.runs->Encode(context, {{source.data(), n, {}}, residual.view()}, selection.info,
                       run.host());
  gpu::CopyAsync(stream, selection.run.data(), run.data(), run.size());
  gpu::CopyAsync(stream, selection.residual.data, residual.data(), kept);
  if (selection.velocity.size > 0 && config_.feedback.momentum.masking) {
    gpu::FillAsync(stream, selection.velocity.data, 0, selection.velocity.size * sizeof(float));
  }
  gpu::Synchronize(stream);
}

void LiveEngine::ApplyRunsOnDevice(const ExchangeState& exchange, DeviceLane& lane) {
  const Stream& stream = lane.stream;
  const auto& runs = exchange.device.runs;
  std::vector<Buffer<std::byte>> copies;
  for (const std::byte* run : runs) {
    copies.emplace_back(exchange.run_bytes);
    gpu::CopyAsync(stream, copies.back().data(), run, exchange.run_bytes);
  }
  gpu::Synchronize(stream);
  const float scale = 1.0f / static_cast<float>(workers());
  std::size_t from = 0;
  std::vector<std::span<const std::byte>> parts(runs.size());
  for (const Selection* part : exchange.parts) {
    if (!part->is_run) continue;
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
      parts[rank] = copies[rank].host().subspan(from, part->run.size());
    }
    const Buffer<float> sum(part->range.size());
    AccumulateQuantized(*config_.runs, parts, scale, sum.host(), pool_);
    device_->touched.Forget(part->range);
    gpu::CopyAsync(stream, averaged_.data() + part->range.begin, sum.data(),
                   sum.size() * sizeof(float));
    gpu::Synchronize(stream);
    from += part->run.size();
  }
}

}  // namespace sparfuse
