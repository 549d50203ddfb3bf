// Calls a trial bad, so that readers leave it out: `sparfuse annotate`.
#include <fmt/format.h>

#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

using nlohmann::json;

int AnnotateVerb(Program& program, const std::string& trial, const std::string& reason) {
  const StoreLock lock(program.store().results());
  const json annotation = program.store().Annotate(lock, trial, reason);
  fmt::print("{} is left out from now on: {}\n", trial, reason);
  if (program.json()) PrintJson(annotation);
  return kDone;
}

}  // namespace sparfuse::harness
