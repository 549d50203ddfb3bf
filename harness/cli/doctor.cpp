// Says what this machine can run and what would disturb a measurement: `sparfuse doctor`.
#include "harness/machine/doctor.hpp"

#include <fmt/format.h>

#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

using nlohmann::json;

int DoctorVerb(Program& program) {
  const auto findings =
      Examine({program.root(), program.store().results(), program.worker(), program.Python()});
  json list = json::array();
  for (const auto& finding : findings) {
    const char* level = finding.level == Finding::Level::kGood   ? "ok"
                        : finding.level == Finding::Level::kNote ? "note"
                                                                 : "warning";
    list.push_back({{"what", finding.what}, {"level", level}, {"message", finding.message}});
    if (!program.json()) fmt::print("{:8} {:24} {}\n", level, finding.what, finding.message);
  }
  if (program.json()) PrintJson(list);
  return kDone;
}

}  // namespace sparfuse::harness
