// Adds bundles to the store: `sparfuse merge`.
#include "harness/bundle/merge.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/base/error.hpp"
#include "harness/cli/bundle/bundles.hpp"

namespace sparfuse::harness {

using nlohmann::json;

int MergeVerb(Program& program, const std::vector<std::filesystem::path>& files) {
  const Store& store = program.store();
  const std::vector<TrialRow> rows = program.Rows();
  const StoreLock lock(store.results());
  json merged = json::array();
  bool any_refused = false;
  for (const auto& file : files) {
    MergeSummary summary;
    std::optional<Bundle> bundle;
    try {
      bundle.emplace(file);
    } catch (const Error& error) {
      summary.refused.push_back(error.what());
    }
    if (bundle) summary = Merge(store, lock, *bundle, rows);
    any_refused = any_refused || !summary.refused.empty();
    for (const std::string& why : summary.refused) fmt::print(stderr, "refused: {}\n", why);
    if (!program.json()) {
      fmt::print("{}: {} trial(s) added, {} already here, {} annotation(s) added, {} refused\n",
                 file.string(), summary.added.size(), summary.present, summary.annotations,
                 summary.refused.size());
    }
    merged.push_back({{"file", file.string()},
                      {"added", summary.added},
                      {"present", summary.present},
                      {"annotations", summary.annotations},
                      {"refused", summary.refused}});
  }
  std::vector<std::string> problems;
  store.OpenIndex(lock, problems);
  for (const std::string& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
  if (program.json()) PrintJson(merged);
  return any_refused ? kTrialFailed : kDone;
}

}  // namespace sparfuse::harness
