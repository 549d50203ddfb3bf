#include "harness/run/plan/joined_blocks.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "harness/catalog/revisions.hpp"
#include "harness/files/canonical.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Whether `cell` may be divided by `reference`: they differ in the method alone, and `reference` is
// dense or equally sparse.
bool IsReferenceOf(const Cell& reference, const Cell& cell) {
  const CellConfig& a = reference.config;
  const CellConfig& b = cell.config;
  return (a.sparsifier == "none" || (a.sparsifier == b.sparsifier && a.density == b.density)) &&
         CanonicalWithout(reference.json, MethodKeys()) ==
             CanonicalWithout(cell.json, MethodKeys());
}

// The blocks in which each cell was tried with its parts' current revisions, on the system on which
// its launches run.
class Tried {
 public:
  Tried(const PlanContext& context, const std::vector<TrialRow>& rows)
      : context_(context), rows_(rows) {}

  bool Has(const Cell& cell, int block) {
    if (const auto [at, is_new] = seen_.insert(cell.config_hash); is_new) {
      const json revisions = RevisionsOf(context_.catalog, cell.config);
      const std::string system_hash = HashOf(context_.SystemOf(cell.config));
      for (const TrialRow& row : rows_) {
        if (row.config_hash == cell.config_hash && row.system_hash == system_hash &&
            row.revisions == revisions)
          blocks_.emplace(row.config_hash, row.block);
      }
    }
    return blocks_.contains({cell.config_hash, block});
  }

 private:
  const PlanContext& context_;
  const std::vector<TrialRow>& rows_;
  std::set<std::string> seen_;
  std::set<std::pair<std::string, int>> blocks_;
};

void OpenBlocksOf(Tried& tried, Part& part) {
  const std::set<std::string> methods = DenominatorsOf(part);
  for (Cell& cell : part.cells) {
    if (!cell.joined || cell.config.modelled()) continue;
    std::vector<Cell*> references;
    for (Cell& other : part.cells) {
      if (&other != &cell && methods.contains(other.config.method) && IsReferenceOf(other, cell))
        references.push_back(&other);
    }
    int first = 0;
    while (!tried.Has(cell, first) &&
           std::any_of(references.begin(), references.end(),
                       [&](const Cell* reference) { return tried.Has(*reference, first); }))
      first += part.blocks;
    cell.first_blocks = {first};
    for (Cell* reference : references) {
      std::vector<int>& known = reference->first_blocks;
      if (std::find(known.begin(), known.end(), first) == known.end()) known.push_back(first);
    }
  }
}

}  // namespace

void OpenBlocks(const PlanContext& context, const std::vector<TrialRow>& rows,
                std::vector<Experiment>& experiments) {
  Tried tried(context, rows);
  for (Experiment& experiment : experiments) {
    for (Part& part : experiment.parts) OpenBlocksOf(tried, part);
  }
}

}  // namespace sparfuse::harness
