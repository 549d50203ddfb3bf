// The explicit table of core's sparsifiers.
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/options.hpp"
#include "core/sparsify/dgc.hpp"
#include "core/sparsify/randomk.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "core/sparsify/topk.hpp"

namespace sparfuse {

std::span<const SparsifierDescriptor> Sparsifiers() {
  static const std::vector<SparsifierDescriptor> table = {
      TopKDescriptor(),
      RandomKDescriptor(),
      DgcDescriptor(),
  };
  return table;
}

const SparsifierDescriptor& FindSparsifier(std::string_view name) {
  std::vector<std::string> known;
  for (const SparsifierDescriptor& descriptor : Sparsifiers()) {
    if (descriptor.name == name) return descriptor;
    known.emplace_back(descriptor.name);
  }
  SPARFUSE_THROW(kConfig,
                 "unknown sparsifier \"" + std::string(name) + "\"" + Suggestion(name, known));
}

}  // namespace sparfuse
