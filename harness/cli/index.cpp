// Keeps the store in order: `sparfuse index`.
#include <fmt/format.h>

#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

int IndexVerb(Program& program, const IndexRequest& request) {
  const Store& store = program.store();
  const StoreLock lock(store.results());
  if (request.empty_trash) {
    const auto deleted = store.trash().Empty(std::chrono::hours(0));
    for (const auto& folder : deleted) fmt::print("deleted {}\n", folder.string());
    if (deleted.empty()) fmt::print("{}: nothing to delete\n", store.trash().folder().string());
  }
  if (request.rebuild) {
    std::vector<std::string> problems;
    store.RebuildIndex(lock, problems);
    for (const auto& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
    fmt::print("{}: {} trial(s)\n", store.index_path().string(), store.ReadRows().size());
  }
  return kDone;
}

}  // namespace sparfuse::harness
