// Holds the one explicit table of collectives, and finds a collective by its name.
#include <array>
#include <string>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {

std::span<const Collective> Collectives() {
  static const std::array kCollectives{RingAllReduce(), NativeAllReduce(), SparseAllGather(),
                                       NcclAllGather()};
  return kCollectives;
}

const Collective& FindCollective(std::string_view name) {
  std::vector<std::string> known;
  for (const Collective& collective : Collectives()) {
    if (collective.name == name) return collective;
    known.emplace_back(collective.name);
  }
  SPARFUSE_THROW(kConfig,
                 "no collective named \"" + std::string(name) + "\"" + Suggestion(name, known));
}

}  // namespace sparfuse
