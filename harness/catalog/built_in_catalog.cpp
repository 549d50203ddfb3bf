// Joins the registries of core and baselines; the workloads' join beside it is in
// workload_entries.cpp.
#include "baselines/registry.hpp"
#include "core/base/options.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/workload_entries.hpp"

namespace sparfuse::harness {

Catalog BuiltInCatalog() {
  Catalog catalog;
  for (const auto& from : Strategies()) {
    CatalogStrategy entry;
    entry.name = from.name;
    entry.summary = from.summary;
    entry.source = from.source;
    entry.revision = from.revision;
    entry.deviations = from.deviations;
    entry.options = from.options;
    entry.sparse = from.sparsified != Sparsified::kNever;
    entry.ahead = from.sparsified == Sparsified::kAhead;
    entry.from_fused = from.sparsified == Sparsified::kBehind;
    catalog.strategies.push_back(std::move(entry));
  }
  for (const auto& from : Planners()) {
    CatalogPlanner entry;
    entry.name = from.name;
    entry.summary = from.summary;
    entry.source = from.source;
    entry.revision = from.revision;
    entry.deviations = from.deviations;
    entry.options = from.options;
    entry.ahead_only = from.ahead_only;
    catalog.planners.push_back(std::move(entry));
  }
  for (const auto& from : Sparsifiers()) {
    CatalogSparsifier entry;
    entry.name = from.name;
    entry.source = from.paper;
    entry.summary = from.exact_count ? "keeps exactly k elements" : "keeps about k elements";
    if (from.index_shared) entry.summary += ", the same on every rank";
    const Options defaults = ResolveOptions(from.name, from.options, {});
    entry.on_device = from.make(defaults, 1)->SelectsOnDevice();
    entry.revision = from.revision;
    entry.deviations = from.deviations;
    entry.options = from.options;
    catalog.sparsifiers.push_back(std::move(entry));
  }
  for (const auto& from : Collectives()) {
    CatalogCollective entry;
    entry.name = from.name;
    entry.source = from.source;
    entry.revision = from.revision;
    entry.sparse = from.payload == PayloadKind::kSparse;
    entry.native = from.native;
    entry.transports.assign(from.backends.begin(), from.backends.end());
    entry.summary = entry.sparse ? "sparse payloads of unequal length" : "dense sum";
    if (entry.native) entry.summary += ", the backend's own, counted by formula";
    catalog.collectives.push_back(std::move(entry));
  }
  catalog.workloads = WorkloadEntries();
  for (const auto& file : MethodFiles()) {
    Method method = ParseMethodFile(file.path, file.toml);
    CheckMethod(catalog, method);
    catalog.methods.push_back(std::move(method));
  }
  return catalog;
}

}  // namespace sparfuse::harness
