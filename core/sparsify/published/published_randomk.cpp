// Selects by random-k as published code does: the stream is keyed by the bytes of the tensor's name
// and the step.
//
// Source: S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
#include <cmath>

#include "core/base/random_stream.hpp"
#include "core/sparsify/published/published.hpp"
#include "core/sparsify/randomk/randomk.hpp"

namespace sparfuse {
namespace {

// Names with equal sums share a stream. Step t of one name is step t + 1 of a name whose sum is one
// less.
RandomStream StreamOf(const PublishedCall& call, std::uint64_t seed) {
  std::uint64_t sum = call.info.step;
  for (const char c : call.info.name) sum += static_cast<unsigned char>(c);
  return {seed, 0, sum};
}

std::unique_ptr<Sparsifier> MakeSaf(const Options& /*resolved*/, std::uint64_t seed) {
  return MakePublished("randomk@saf", [seed](const PublishedCall& call) {
    SelectRandom(call.context, call.input, call.info, StreamOf(call, seed), call.k,
                 Checked::kNothing, call.slot);
  });
}

std::unique_ptr<Sparsifier> MakeGraceDist(const Options& /*resolved*/, std::uint64_t seed) {
  return MakePublished("randomk@grace-dist", [seed](const PublishedCall& call) {
    SelectDrawn(call.context, call.input, call.info, StreamOf(call, seed), call.k, call.slot);
  });
}

// Returns the probability that an element is drawn at all, 1 - (1 - 1/n)^k.
double DrawnFraction(std::span<const std::int64_t> shape, double density) {
  const double one = OneElement(shape, density);
  const double k = KeptFraction(shape, density) / one;
  return -std::expm1(k * std::log1p(-one));
}

}  // namespace

std::vector<SparsifierDescriptor> PublishedRandomKDescriptors() {
  return {
      {.name = "randomk@saf",
       .paper = "Stich et al., NeurIPS 2018",
       .exact_count = true,
       .index_shared = true,
       .contraction = KeptFraction,
       .deviations =
           "As in the code of SAFusion, WFBP and GRACE: keyed by the sum of the bytes of the "
           "tensor's name and the step (here also by the seed), so that tensors whose names have "
           "equal sums select equal positions, and neighbouring sums repeat a step later.",
       .make = MakeSaf,
       .aliases = {"randomk@wfbp", "randomk@grace"}},
      {.name = "randomk@grace-dist",
       .paper = "Stich et al., NeurIPS 2018",
       .index_shared = true,
       .selection_model = {-0.006, 0.006},
       .contraction = DrawnFraction,
       .deviations =
           "As in GRACE's code for distributed PyTorch: k draws with replacement, keyed as in "
           "randomk@saf. There an element that is drawn twice is sent twice; here it is sent once, "
           "so that about density / 2 of the k are missing.",
       .make = MakeGraceDist},
  };
}

}  // namespace sparfuse
