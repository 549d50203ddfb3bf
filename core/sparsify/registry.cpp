// Holds the explicit table of core's sparsifiers.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/published/published.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

std::span<const SparsifierDescriptor> Sparsifiers() {
  static const std::vector<SparsifierDescriptor> table = AndPublished({
      TopKDescriptor(),
      BlockTopKDescriptor(),
      ChunkedTopKDescriptor(),
      RandomKDescriptor(),
      DgcDescriptor(),
      GaussianKDescriptor(),
      GaussianKPaperDescriptor(),
      SidcoDescriptor(),
      SidcoPaperDescriptor(),
      RedSyncDescriptor(),
      MsTopKDescriptor(),
      ThresholdDescriptor(),
      NonzerosDescriptor(),
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
  SPARFUSE_THROW(kConfig, "unknown sparsifier \"", name, "\"", Suggestion(name, known));
}

}  // namespace sparfuse
