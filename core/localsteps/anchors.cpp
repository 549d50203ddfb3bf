#include "core/localsteps/anchors.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/device/runtime.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/localsteps/anchor_kernels.hpp"
#include "core/payload/accumulate.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 15;

template <class Body>
void ForChunks(std::size_t n, ThreadPool& pool, const Body& body) {
  pool.ParallelFor((n + kChunk - 1) / kChunk, [&](std::size_t chunk, int) {
    body(chunk * kChunk, std::min(n, (chunk + 1) * kChunk));
  });
}

// Calls the kernel for arrays of n elements, in the order of the stream.
template <class Kernel>
void LaunchElementwise(const Stream& stream, const Kernel& kernel) {
  gpu::Launch(stream, gpu::ElementwiseBlocks(kernel.quads), kernel);
}

}  // namespace

Anchors::Anchors(const GradientLayout& layout, const LocalSteps& steps, Device device)
    : layout_(layout),
      steps_(steps),
      device_(device),
      stream_{device, nullptr},
      anchor_(layout.numel(), device, "the anchor"),
      outer_(steps.has_state() ? layout.numel() : 0, device, "the outer state"),
      elastic_(steps.outer == OuterRule::kElastic ? layout.numel() : 0, device,
               "the elastic differences") {
  if (on_host() || steps.outer_clip <= 0) return;
  squares_ = Buffer<double>(layout.tensors(), device, "norms of the outer state");
  clip_ = Buffer<float>(1, device, "norms of the outer state");
}

void Anchors::RequireFits(const ParameterView& view, const char* what) const {
  if (view.size() != layout_.tensors()) {
    SPARFUSE_THROW(kInternal, what, " of ", view.size(), " tensors: expected ", layout_.tensors());
  }
  for (std::size_t t = 0; t < view.size(); ++t) {
    if (view[t].size() == layout_.tensor(t).numel) continue;
    SPARFUSE_THROW(kInternal, what, " of ", layout_.tensor(t).name, " have ", view[t].size(),
                   " elements: expected ", layout_.tensor(t).numel);
  }
}

void Anchors::Move(ParameterView parameters) {
  RequireFits(parameters, "parameters");
  parameters_ = std::move(parameters);
}

void Anchors::Begin(ParameterView parameters, const Stream& stream,
                    std::vector<ParameterView> inner) {
  assert(stream.device == device_);
  Move(std::move(parameters));
  for (const ParameterView& array : inner) RequireFits(array, "the inner optimizer's values");
  inner_ = std::move(inner);
  stream_ = stream;
  for (std::size_t t = 0; t < layout_.tensors(); ++t) {
    float* const anchor = anchor_.data() + layout_.tensor(t).offset;
    if (on_host()) {
      std::ranges::copy(parameters_[t], anchor);
    } else {
      gpu::CopyAsync(stream_, anchor, parameters_[t].data(), parameters_[t].size_bytes());
    }
  }
  if (on_host()) {
    std::ranges::fill(outer_.host(), 0.0f);
    return;
  }
  gpu::FillAsync(stream_, outer_.data(), 0, outer_.size() * sizeof(float));
  gpu::Synchronize(stream_);
}

std::span<const float> Anchors::Of(const Buffer<float>& values, Range range,
                                   std::vector<float>& copy) {
  if (values.size() == 0) return {};
  if (on_host()) return values.host().subspan(range.begin, range.size());
  copy.resize(range.size());
  gpu::CopyAsync(stream_, copy.data(), values.data() + range.begin, range.size() * sizeof(float));
  gpu::Synchronize(stream_);
  return copy;
}

template <class Body>
void Anchors::ForTensors(const ParameterView& view, Range range, const Body& body) {
  if (range.size() == 0) return;
  for (const std::size_t t : layout_.TensorsIn(range)) {
    const Range tensor = layout_.tensor(t).range();
    const std::size_t begin = std::max(tensor.begin, range.begin);
    const std::size_t end = std::min(tensor.end, range.end);
    if (begin < end) body(view[t].data() + (begin - tensor.begin), begin, end - begin);
  }
}

bool Anchors::Pack(std::size_t tensor, PackSource source, std::size_t array, std::span<float> to,
                   ThreadPool& pool) {
  if (source == PackSource::kInnerState) return CopyFinite(Inner(array)[tensor], to, pool);
  const std::span<const float> parameters = parameters_[tensor];
  if (source == PackSource::kParameters) return CopyFinite(parameters, to, pool);
  assert(source != PackSource::kGradient);
  const std::size_t offset = layout_.tensor(tensor).offset;
  const float* const anchor = anchor_.data() + offset;
  float* const kept = source == PackSource::kElastic ? elastic_.data() + offset : nullptr;
  std::atomic<bool> finite{true};
  ForChunks(to.size(), pool, [&](std::size_t begin, std::size_t end) {
    bool all = true;
    for (std::size_t i = begin; i < end; ++i) {
      to[i] = PackedElement(source, anchor[i], parameters[i]);
      all &= std::isfinite(to[i]);
    }
    if (kept != nullptr) std::copy(to.begin() + begin, to.begin() + end, kept + begin);
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

void Anchors::Step(Range range, std::span<const float> sum, float scale, bool last,
                   ThreadPool& pool) {
  assert(sum.size() == range.size());
  if (steps_.outer_clip > 0) {
    Grow(range, sum, scale, pool);
    if (last) MoveClipped(pool);
    return;
  }
  const float factor = steps_.outer == OuterRule::kElastic ? 1.0f : scale;
  ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
    const float* const sums = sum.data() + (begin - range.begin);
    float* const anchor = anchor_.data() + begin;
    float* const outer = outer_.size() > 0 ? outer_.data() + begin : nullptr;
    const float* const elastic = elastic_.size() > 0 ? elastic_.data() + begin : nullptr;
    ForChunks(count, pool, [&](std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i) {
        OuterElement of{anchor[i], outer == nullptr ? 0.0f : outer[i], parameters[i]};
        StepElement(steps_, sums[i] * factor, elastic == nullptr ? 0.0f : elastic[i], of);
        anchor[i] = of.anchor;
        if (outer != nullptr) outer[i] = of.outer;
        parameters[i] = of.parameter;
      }
    });
  });
}

void Anchors::Grow(Range range, std::span<const float> sum, float scale, ThreadPool& pool) {
  grown_.push_back(range);
  float* const outer = outer_.data() + range.begin;
  ForChunks(sum.size(), pool, [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      outer[i] = GrownMomentum(steps_, sum[i] * scale, outer[i]);
    }
  });
}

// Sums squares in the order of the ranges, whatever the pool's size.
void Anchors::MoveClipped(ThreadPool& pool) {
  double squares = 0;
  for (const Range& range : grown_)
    squares += SumSquares(outer_.host().subspan(range.begin, range.size()), pool);
  const float factor = OuterClipFactor(steps_, squares);
  for (const Range& range : grown_) {
    ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
      float* const anchor = anchor_.data() + begin;
      float* const outer = outer_.data() + begin;
      ForChunks(count, pool, [&](std::size_t first, std::size_t end) {
        for (std::size_t i = first; i < end; ++i) {
          OuterElement of{anchor[i], outer[i] * factor, parameters[i]};
          MoveByMomentum(steps_, of);
          anchor[i] = of.anchor;
          outer[i] = of.outer;
          parameters[i] = of.parameter;
        }
      });
    });
  }
  grown_.clear();
}

void Anchors::PackOnDevice(std::size_t tensor, PackSource source, std::size_t array, float* to,
                           std::uint32_t* not_finite) {
  const std::span<float> parameters = parameters_[tensor];
  const std::size_t n = parameters.size();
  if (source == PackSource::kParameters || source == PackSource::kInnerState) {
    const float* const from =
        source == PackSource::kParameters ? parameters.data() : Inner(array)[tensor].data();
    return CopyFiniteOnDevice(stream_, {from, n, stream_}, {to, n, stream_}, not_finite);
  }
  assert(source != PackSource::kGradient);
  const std::size_t offset = layout_.tensor(tensor).offset;
  const float* const anchor = anchor_.data() + offset;
  float* const kept = source == PackSource::kElastic ? elastic_.data() + offset : nullptr;
  LaunchElementwise(
      stream_, gpu::PackParameters{gpu::QuadsOf(n, anchor, parameters.data(), to, kept), source,
                                   anchor, parameters.data(), to, kept, not_finite});
}

void Anchors::GrowOnDevice(Range range, const float* sum, float scale, DeviceWorkspace& workspace) {
  if (range.size() == 0) return;
  float* const outer = outer_.data() + range.begin;
  LaunchElementwise(stream_, gpu::GrowMomentum{gpu::QuadsOf(range.size(), sum, outer), steps_, sum,
                                               scale, outer});
  assert(grown_.size() < squares_.size());
  SumSquaresOnDevice(stream_, workspace, {outer, range.size(), stream_},
                     squares_.data() + grown_.size());
  grown_.push_back(range);
}

void Anchors::MoveClippedOnDevice() {
  gpu::Launch(stream_, 1, gpu::ClipOuter{steps_, squares_.data(), grown_.size(), clip_.data()});
  for (const Range& range : grown_) {
    ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
      float* const anchor = anchor_.data() + begin;
      float* const outer = outer_.data() + begin;
      LaunchElementwise(stream_,
                        gpu::MoveClippedAnchor{gpu::QuadsOf(count, anchor, outer, parameters),
                                               steps_,
                                               clip_.data(),
                                               {anchor, outer, parameters}});
    });
  }
  grown_.clear();
}

void Anchors::StepOnDevice(Range range, const float* sum, float scale, bool last,
                           DeviceWorkspace& workspace) {
  if (steps_.outer_clip > 0) {
    GrowOnDevice(range, sum, scale, workspace);
    if (last) MoveClippedOnDevice();
    return;
  }
  const float factor = steps_.outer == OuterRule::kElastic ? 1.0f : scale;
  ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
    const float* const sums = sum + (begin - range.begin);
    float* const anchor = anchor_.data() + begin;
    float* const outer = outer_.size() > 0 ? outer_.data() + begin : nullptr;
    const float* const elastic = elastic_.size() > 0 ? elastic_.data() + begin : nullptr;
    LaunchElementwise(stream_,
                      gpu::StepAnchor{gpu::QuadsOf(count, sums, anchor, outer, elastic, parameters),
                                      steps_,
                                      sums,
                                      factor,
                                      elastic,
                                      {anchor, outer, parameters}});
  });
}

void Anchors::AverageInner(Range range, std::size_t array, const float* sum, float scale,
                           ThreadPool& pool) {
  ForTensors(Inner(array), range, [&](float* values, std::size_t begin, std::size_t count) {
    const float* const sums = sum + (begin - range.begin);
    if (on_host()) return ScaleDense({sums, count}, scale, {values, count}, pool);
    ScaleDenseOnDevice(stream_, {sums, count, stream_}, scale, {values, count, stream_});
  });
}

void Anchors::ResetInner(Range range) {
  for (const ParameterView& array : inner_) {
    ForTensors(array, range, [&](float* values, std::size_t, std::size_t count) {
      if (on_host()) {
        std::fill_n(values, count, 0.0f);
      } else {
        gpu::FillAsync(stream_, values, 0, count * sizeof(float));
      }
    });
  }
  for (const std::size_t t : layout_.TensorsIn(range)) renewed_.push_back(t);
}

void Anchors::Restart(Range range) {
  ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
    const float* const anchor = anchor_.data() + begin;
    if (on_host()) {
      std::copy_n(anchor, count, parameters);
    } else {
      gpu::CopyAsync(stream_, parameters, anchor, count * sizeof(float));
    }
  });
}

void Anchors::Swap() {
  for (std::size_t t = 0; t < layout_.tensors(); ++t) {
    const std::span<float> parameters = parameters_[t];
    float* const anchor = anchor_.data() + layout_.tensor(t).offset;
    if (on_host()) {
      std::ranges::swap_ranges(parameters, std::span(anchor, parameters.size()));
    } else if (!parameters.empty()) {
      LaunchElementwise(
          stream_, gpu::SwapElements{gpu::QuadsOf(parameters.size(), parameters.data(), anchor),
                                     parameters.data(), anchor});
    }
  }
  if (!on_host()) gpu::Synchronize(stream_);
}

}  // namespace sparfuse
