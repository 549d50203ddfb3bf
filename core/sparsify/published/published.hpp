// Describes sparsifiers as published implementations run them, "method@origin", if that differs
// from the canonical form. These forms yield the densities behind the published numbers, which
// often are not the target densities; each descriptor says the density that it yields. Their passes
// are simple, not tuned.
//
// Origins: saf, ssf, adtopk, oktopk, sidco, grace and grace-dist are the code published with
// SAFusion, SSFusion, ADTopk, Ok-Topk, SIDCo and GRACE (PyTorch and distributed back ends); wfbp is
// the WFBP code that SAFusion and SSFusion compare with, pool the compressor library of Cupcake.
//
// Differences beside the selection are not here. The error feedback decides whether a residual is
// kept and added: several of these implementations store one and never add it (SSFusion's gaussian,
// redsync, randomk and sidco), or have none (SSFusion's dgc).
//
// For an empty selection or a threshold that is not a number, the published code sends nothing,
// throws or never ends; here all forms then send an exact top-k. Density 1 sends everything.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// Returns the canonical forms, followed by the published ones.
std::vector<SparsifierDescriptor> AndPublished(std::vector<SparsifierDescriptor> canonical);

// The declarations below are for the files of the families.

std::vector<SparsifierDescriptor> PublishedGaussianDescriptors();
std::vector<SparsifierDescriptor> PublishedDgcDescriptors();
std::vector<SparsifierDescriptor> PublishedRedSyncDescriptors();
std::vector<SparsifierDescriptor> PublishedSidcoDescriptors();
std::vector<SparsifierDescriptor> PublishedThresholdDescriptors();
std::vector<SparsifierDescriptor> PublishedRandomKDescriptors();

enum class Comparison { kAtLeast, kAbove };

// The smallest key that |x| <comparison> threshold selects; for a NaN a key that no finite element
// reaches. Magnitudes are compared with the threshold rounded to float, so that magnitudes that
// equal it but for rounding count as equal.
std::uint32_t KeyFrom(Comparison comparison, double threshold);

// A walk multiplies a threshold by upper_factor while its count is above `upper`, and by
// lower_factor while its count is below `lower`; `rounds` times at most.
struct ThresholdWalk {
  double upper;
  double upper_factor;
  double lower;
  double lower_factor;
  int rounds;
};

struct Moments {
  double mean = 0;
  double variance = 0;  // unbiased
};

// One selection. Nothing is pending; x is finite and has more than k elements.
struct PublishedCall {
  std::string_view sparsifier;
  const SelectContext& context;
  SelectInput& input;
  const TensorInfo& info;
  double density;
  std::size_t k;
  Slot& slot;

  // n * density, unrounded.
  double Target() const { return static_cast<double>(input.n) * density; }
  // The moments of x and of |x|. The variance sums the squares of the differences from the mean, in
  // double precision, so that equal elements have no spread and a large mean does not swamp it.
  Moments Signed() const;
  Moments Magnitudes() const;
  // The number of elements with |x| <comparison> threshold; 0 for a NaN.
  std::size_t Count(Comparison comparison, double threshold) const;
  // The threshold at the end of a walk.
  double Refine(Comparison comparison, double threshold, const ThresholdWalk& walk) const;
  // Sends the elements with |x| <comparison> threshold, and returns their number. If there are
  // none, or too many for the slot, sends exact top-k instead.
  std::size_t Take(Comparison comparison, double threshold) const;
  // Sends the `count` largest. Throws Error{kConfig} if the slot has no room for them.
  void TakeLargest(std::size_t count) const;
  // Sends exact top-k because there is no threshold, and counts a fallback.
  void FallBack() const;
  // The k-th largest magnitude. Overwrites the slot.
  double KthMagnitude() const;
};

// Runs body(part, begin, end) over chunks of x and returns their parts, in order. The parts are
// valid until the next use of kUseChunkParts.
template <class Part, class Body>
std::span<const Part> ForChunks(const PublishedCall& call, const Body& body) {
  const std::size_t chunks = (call.input.n + kChunk - 1) / kChunk;
  const auto parts = WorkspaceArray<Part>(*call.context.workspace, kUseChunkParts, chunks);
  call.context.pool->ParallelFor(chunks, [&](std::size_t c, int) {
    parts[c] = {};
    body(parts[c], c * kChunk, std::min(call.input.n, (c + 1) * kChunk));
  });
  return parts;
}

// The sum of of(x) over all elements, in double precision; the same for every size of the pool.
double SumOver(const PublishedCall& call, const auto& of) {
  double total = 0;
  const auto add = [&](double& part, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) part += of(static_cast<double>(call.input.x()[i]));
  };
  for (const double part : ForChunks<double>(call, add)) total += part;
  return total;
}

// Makes a sparsifier that adds the residual, then sends everything if k = n, else calls `rule`.
std::unique_ptr<Sparsifier> MakePublished(std::string_view name,
                                          std::function<void(const PublishedCall&)> rule);

}  // namespace sparfuse
