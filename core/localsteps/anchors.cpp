#include "core/localsteps/anchors.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 15;

template <class Body>
void ForChunks(std::size_t n, ThreadPool& pool, const Body& body) {
  pool.ParallelFor((n + kChunk - 1) / kChunk, [&](std::size_t chunk, int) {
    body(chunk * kChunk, std::min(n, (chunk + 1) * kChunk));
  });
}

struct StepArrays {
  const float* sum;
  float* anchor;
  float* outer;          // null without state
  const float* elastic;  // null except for kElastic
  float* parameters;
};

float Mixed(const LocalSteps& steps, float anchor, float own) {
  if (steps.mix == 0) return anchor;
  return steps.mix == 1 ? own : anchor + steps.mix * (own - anchor);
}

void StepElement(const LocalSteps& steps, float average, std::size_t i, const StepArrays& of) {
  float& a = of.anchor[i];
  switch (steps.outer) {
    case OuterRule::kAverage:
      a = average;
      break;
    case OuterRule::kSgd:
      a = a - steps.rate * average;
      break;
    case OuterRule::kMomentum: {
      float& b = of.outer[i] = steps.momentum * of.outer[i] + average;
      a = a - steps.rate * b;
      break;
    }
    case OuterRule::kNesterov: {
      float& b = of.outer[i] = steps.momentum * of.outer[i] + average;
      a = a - steps.rate * (average + steps.momentum * b);
      break;
    }
    case OuterRule::kElastic:  // applied to a sum, not an average
      of.parameters[i] = of.parameters[i] - steps.rate * of.elastic[i];
      a = a + steps.rate * average;
      return;
  }
  of.parameters[i] = Mixed(steps, a, of.parameters[i]);
}

}  // namespace

Anchors::Anchors(const GradientLayout& layout, const LocalSteps& steps)
    : layout_(layout),
      steps_(steps),
      anchor_(layout.numel()),
      outer_(steps.has_state() ? layout.numel() : 0),
      elastic_(steps.outer == OuterRule::kElastic ? layout.numel() : 0) {}

void Anchors::Move(ParameterView parameters) {
  if (parameters.size() != layout_.tensors()) {
    SPARFUSE_THROW(kInternal, "parameters of " + std::to_string(parameters.size()) +
                                  " tensors: expected " + std::to_string(layout_.tensors()));
  }
  for (std::size_t t = 0; t < parameters.size(); ++t) {
    if (parameters[t].size() == layout_.tensor(t).numel) continue;
    SPARFUSE_THROW(kInternal, "parameters of " + layout_.tensor(t).name + " have " +
                                  std::to_string(parameters[t].size()) + " elements: expected " +
                                  std::to_string(layout_.tensor(t).numel));
  }
  parameters_ = std::move(parameters);
}

void Anchors::Begin(ParameterView parameters) {
  Move(std::move(parameters));
  for (std::size_t t = 0; t < layout_.tensors(); ++t) {
    std::ranges::copy(parameters_[t], anchor_.data() + layout_.tensor(t).offset);
  }
  std::ranges::fill(outer_.host(), 0.0f);
}

template <class Body>
void Anchors::ForTensors(Range range, const Body& body) {
  if (range.size() == 0) return;
  for (const std::size_t t : layout_.TensorsIn(range)) {
    const Range tensor = layout_.tensor(t).range();
    const std::size_t begin = std::max(tensor.begin, range.begin);
    const std::size_t end = std::min(tensor.end, range.end);
    if (begin < end) body(parameters_[t].data() + (begin - tensor.begin), begin, end - begin);
  }
}

bool Anchors::Pack(std::size_t tensor, PackSource source, std::span<float> to, ThreadPool& pool) {
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
      to[i] = kept == nullptr ? anchor[i] - parameters[i] : parameters[i] - anchor[i];
      all &= std::isfinite(to[i]);
    }
    if (kept != nullptr) std::copy(to.begin() + begin, to.begin() + end, kept + begin);
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

void Anchors::Step(Range range, std::span<const float> sum, float scale, ThreadPool& pool) {
  assert(sum.size() == range.size());
  ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
    const StepArrays of{sum.data() + (begin - range.begin), anchor_.data() + begin,
                        outer_.size() > 0 ? outer_.data() + begin : nullptr,
                        elastic_.size() > 0 ? elastic_.data() + begin : nullptr, parameters};
    const float factor = steps_.outer == OuterRule::kElastic ? 1.0f : scale;
    ForChunks(count, pool, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) StepElement(steps_, of.sum[i] * factor, i, of);
    });
  });
}

void Anchors::Restart(Range range) {
  ForTensors(range, [&](float* parameters, std::size_t begin, std::size_t count) {
    std::copy_n(anchor_.data() + begin, count, parameters);
  });
}

void Anchors::Swap() {
  for (std::size_t t = 0; t < layout_.tensors(); ++t) {
    std::ranges::swap_ranges(parameters_[t], std::span(anchor_.data() + layout_.tensor(t).offset,
                                                       parameters_[t].size()));
  }
}

}  // namespace sparfuse
