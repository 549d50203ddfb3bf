// Packs parameters and moves anchors in kernels (anchors.hpp), by the arithmetic of local steps on
// one element, which is the same on the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/device/quads.hpp"
#include "core/localsteps/local_steps.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// An element that the outer rule moves.
struct OuterElement {
  float anchor = 0;
  float outer = 0;  // the outer state, of rules that have one
  float parameter = 0;
};

SPARFUSE_HOST_DEVICE float PackedElement(PackSource source, float anchor, float parameter) {
  if (source == PackSource::kParameters) return parameter;
  return source == PackSource::kDifference ? anchor - parameter : parameter - anchor;
}

// The parts of kMomentum's rule, and the step that ends every rule but kElastic's.
SPARFUSE_HOST_DEVICE float GrownMomentum(const LocalSteps& steps, float average, float outer) {
  if (steps.penalty != 1) average = average / steps.penalty;
  return steps.momentum * outer + average;
}
SPARFUSE_HOST_DEVICE void MixParameter(const LocalSteps& steps, OuterElement& of) {
  if (steps.mix == 0) {
    of.parameter = of.anchor;
  } else if (steps.mix != 1) {
    of.parameter = of.anchor + steps.mix * (of.parameter - of.anchor);
  }
}
// What outer_clip scales the outer state with. squares: the sum of its squares.
SPARFUSE_HOST_DEVICE float OuterClipFactor(const LocalSteps& steps, double squares) {
  const double norm = std::sqrt(squares);
  const double most = steps.outer_clip;
  return norm > most ? static_cast<float>(most / norm) : 1.0f;
}
SPARFUSE_HOST_DEVICE void MoveByMomentum(const LocalSteps& steps, OuterElement& of) {
  of.anchor = of.anchor - steps.rate * of.outer;
  MixParameter(steps, of);
}

// Applies the outer rule (OuterRule). average: over ranks; with kElastic the sum. elastic: the
// value that this rank sent, with kElastic alone.
SPARFUSE_HOST_DEVICE void StepElement(const LocalSteps& steps, float average, float elastic,
                                      OuterElement& of) {
  switch (steps.outer) {
    case OuterRule::kAverage:
      of.anchor = average;
      return MixParameter(steps, of);
    case OuterRule::kSgd:
      if (steps.penalty != 1) average = average / steps.penalty;
      of.anchor = of.anchor - steps.rate * average;
      return MixParameter(steps, of);
    case OuterRule::kMomentum:
      of.outer = GrownMomentum(steps, average, of.outer);
      return MoveByMomentum(steps, of);
    case OuterRule::kNesterov:
      if (steps.penalty != 1) average = average / steps.penalty;
      of.outer = steps.momentum * of.outer + average;
      of.anchor = of.anchor - steps.rate * (average + steps.momentum * of.outer);
      return MixParameter(steps, of);
    case OuterRule::kElastic:
      of.parameter = of.parameter - steps.rate * elastic;
      of.anchor = of.anchor + steps.rate * average;
      return;
  }
}

namespace gpu {

// to = the source's function of anchor and parameters; kept, unless null, gets it too.
struct PackParameters {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  PackSource source;
  const float* anchor;
  const float* parameters;
  float* to;
  float* kept;
  std::uint32_t* not_finite;  // raised to the NotFiniteCode of the first such element

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      const Float4 a = quads.Load(anchor, q), w = quads.Load(parameters, q);
      Float4 packed;
      for (unsigned v = 0; v < 4; ++v) {
        packed.v[v] = PackedElement(source, a.v[v], w.v[v]);
        if (packed.v[v] - packed.v[v] == 0.0f) continue;
        block.AtomicMax(not_finite, NotFiniteCode(static_cast<std::uint32_t>(quads.At(q, v))));
      }
      quads.Store(to, q, packed);
      if (kept != nullptr) quads.Store(kept, q, packed);
    }
  }
};

// What an outer rule moves.
struct OuterArrays {
  float* anchor;
  float* outer;  // null without state
  float* parameters;

  // Calls move(v, OuterElement&) for each element v of group q.
  template <class Move>
  SPARFUSE_DEVICE void ForElements(const Quads& quads, std::uint32_t q, const Move& move) const {
    Float4 a = quads.Load(anchor, q), w = quads.Load(parameters, q);
    Float4 b = outer == nullptr ? Float4{} : quads.Load(outer, q);
    for (unsigned v = 0; v < 4; ++v) {
      OuterElement of{a.v[v], b.v[v], w.v[v]};
      move(v, of);
      a.v[v] = of.anchor;
      b.v[v] = of.outer;
      w.v[v] = of.parameter;
    }
    quads.Store(anchor, q, a);
    if (outer != nullptr) quads.Store(outer, q, b);
    quads.Store(parameters, q, w);
  }
};

struct StepAnchor {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  LocalSteps steps;
  const float* sum;
  float factor;          // of sum
  const float* elastic;  // null except for kElastic
  OuterArrays moved;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      const Float4 sums = quads.Load(sum, q);
      const Float4 sent = elastic == nullptr ? Float4{} : quads.Load(elastic, q);
      moved.ForElements(quads, q, [&](unsigned v, OuterElement& of) {
        StepElement(steps, sums.v[v] * factor, sent.v[v], of);
      });
    }
  }
};

// outer = momentum outer + the average, of kMomentum with outer_clip.
struct GrowMomentum {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  LocalSteps steps;
  const float* sum;
  float scale;
  float* outer;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      const Float4 sums = quads.Load(sum, q);
      Float4 b = quads.Load(outer, q);
      for (unsigned v = 0; v < 4; ++v) b.v[v] = GrownMomentum(steps, sums.v[v] * scale, b.v[v]);
      quads.Store(outer, q, b);
    }
  }
};

// *factor = OuterClipFactor of the sums of squares of the ranges received together, in order.
struct ClipOuter {
  static constexpr int kThreads = kWarp;
  LocalSteps steps;
  const double* squares;
  std::size_t ranges;
  float* factor;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0) return;
    double sum = 0;
    for (std::size_t r = 0; r < ranges; ++r) sum += squares[r];
    *factor = OuterClipFactor(steps, sum);
  }
};

struct MoveClippedAnchor {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  LocalSteps steps;
  const float* factor;  // of the outer state
  OuterArrays moved;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const float clip = *factor;
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      moved.ForElements(quads, q, [&](unsigned, OuterElement& of) {
        of.outer *= clip;
        MoveByMomentum(steps, of);
      });
    }
  }
};

struct SwapElements {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  float* one;
  float* other;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      const Float4 x = quads.Load(one, q), y = quads.Load(other, q);
      quads.Store(one, q, y);
      quads.Store(other, q, x);
    }
  }
};

}  // namespace gpu
}  // namespace sparfuse
