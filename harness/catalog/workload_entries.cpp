#include "harness/catalog/workload_entries.hpp"

#include <algorithm>

#include "workloads/catalog/catalog.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::harness {

std::vector<CatalogWorkload> WorkloadEntries() {
  std::vector<CatalogWorkload> entries;
  const auto recipe_options = workloads::RecipeOptions(workloads::Recipe{});
  for (const auto& from : workloads::Workloads()) {
    CatalogWorkload entry;
    entry.name = from.name;
    entry.summary = from.summary;
    entry.revision = from.revision;
    entry.family = from.family();
    entry.kind_of_data = from.kind_of_data;
    entry.small = from.small;
    entry.unit = from.unit;
    entry.metric = from.metric;
    entry.higher_is_better = from.higher_is_better;
    entry.batch_per_worker = static_cast<int>(from.batch_per_worker);
    for (const auto& option : from.options) {
      const bool of_recipe =
          std::any_of(recipe_options.begin(), recipe_options.end(),
                      [&](const OptionSpec& known) { return known.name == option.name; });
      (of_recipe ? entry.recipe : entry.options).push_back(option);
    }
    // What one dense worker needs to the target, twice: sparse methods may take longer.
    entry.convergence.steps = static_cast<int>(2 * from.target_steps);
    entry.convergence.evaluate_every =
        static_cast<int>(std::max<std::uint64_t>(1, from.target_steps / 20));
    entry.convergence.target = from.target;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sparfuse::harness
