// Makes the index of the store again from its trials: `sparfuse index --rebuild`.
#include <fmt/format.h>

#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

int IndexVerb(Program& program) {
  std::vector<std::string> problems;
  const StoreLock lock(program.store().results());
  program.store().RebuildIndex(lock, problems);
  for (const auto& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
  fmt::print("{}: {} trial(s)\n", program.store().index_path().string(),
             program.store().ReadRows().size());
  return kDone;
}

}  // namespace sparfuse::harness
