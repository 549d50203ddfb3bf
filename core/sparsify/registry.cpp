// The explicit table of core's sparsifiers.
#include <algorithm>
#include <string>
#include <vector>

#include "core/adtopk/adtopk.hpp"
#include "core/error.hpp"
#include "core/options.hpp"
#include "core/sparsify/dgc.hpp"
#include "core/sparsify/gaussiank.hpp"
#include "core/sparsify/mstopk.hpp"
#include "core/sparsify/randomk.hpp"
#include "core/sparsify/redsync.hpp"
#include "core/sparsify/shipped.hpp"
#include "core/sparsify/sidco.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "core/sparsify/threshold.hpp"
#include "core/sparsify/topk.hpp"

namespace sparfuse {

std::span<const SparsifierDescriptor> Sparsifiers() {
  static const std::vector<SparsifierDescriptor> table = AndShipped({
      TopKDescriptor(),
      RandomKDescriptor(),
      DgcDescriptor(),
      GaussianKDescriptor(),
      GaussianKPaperDescriptor(),
      SidcoDescriptor(),
      SidcoPaperDescriptor(),
      RedSyncDescriptor(),
      MsTopKDescriptor(),
      ThresholdDescriptor(),
      AdTopKDescriptor(),
      AdTopKInterleavedDescriptor(),
      AdTopKThresholdDescriptor(),
  });
  return table;
}

const SparsifierDescriptor& FindSparsifier(std::string_view name) {
  std::vector<std::string> known;
  for (const SparsifierDescriptor& descriptor : Sparsifiers()) {
    if (descriptor.name == name) return descriptor;
    if (std::ranges::find(descriptor.aliases, name) != descriptor.aliases.end()) return descriptor;
    known.emplace_back(descriptor.name);
    known.insert(known.end(), descriptor.aliases.begin(), descriptor.aliases.end());
  }
  SPARFUSE_THROW(kConfig,
                 "unknown sparsifier \"" + std::string(name) + "\"" + Suggestion(name, known));
}

}  // namespace sparfuse
