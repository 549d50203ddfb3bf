// Shows what this machine can run, what would disturb a measurement, and the state of a launch's
// hosts: `sparfuse doctor`.
#include "harness/machine/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/cli/verbs.hpp"
#include "harness/records/record.hpp"
#include "harness/run/live/hosts/preflight.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/ship/shipping.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

const char* NameOfLevel(Finding::Level level) {
  switch (level) {
    case Finding::Level::kGood:
      return "ok";
    case Finding::Level::kNote:
      return "note";
    case Finding::Level::kWarning:
      return "warning";
    case Finding::Level::kError:
      return "error";
  }
  return "error";
}

json AsJson(const std::vector<Finding>& findings) {
  json list = json::array();
  for (const auto& finding : findings) {
    list.push_back({{"what", finding.what},
                    {"level", NameOfLevel(finding.level)},
                    {"message", finding.message}});
  }
  return list;
}

void Print(const std::vector<Finding>& findings) {
  for (const auto& finding : findings)
    fmt::print("{:8} {:24} {}\n", NameOfLevel(finding.level), finding.what, finding.message);
}

int ExamineHosts(Program& program, const DoctorRequest& request) {
  const RunOptions options = program.OptionsOfRuns(request.launch);
  PreflightRequest asked;
  asked.method = options.launch;
  asked.worker = options.worker;
  asked.results = program.store().results();
  asked.ranks = request.ranks;
  const Interruption interruption;
  std::optional<Shipping> shipping;
  if (options.ship) {
    shipping.emplace(options.launch, Collect(options.worker, {}, {}), Interruption::flag());
    asked.worker = shipping->worker();
    asked.environment = shipping->environment();
    asked.shared = false;
  }
  const Preflight preflight = RunPreflight(asked, Interruption::flag());
  const std::vector<Finding> findings = JudgePreflight(preflight, asked);
  if (program.json()) {
    json ranks = json::array();
    for (const HostFacts& rank : preflight.ranks) ranks.push_back(WriteRecord(rank));
    PrintJson({{"ranks", ranks}, {"findings", AsJson(findings)}});
  } else {
    fmt::print("{}\n", TableOfHosts(preflight));
    Print(findings);
  }
  const bool fail =
      std::ranges::find(findings, Finding::Level::kError, &Finding::level) != findings.end();
  return fail ? kTrialFailed : kDone;
}

}  // namespace

int DoctorVerb(Program& program, const DoctorRequest& request) {
  if (!request.launch.launch.empty() || !request.launch.hostfile.empty())
    return ExamineHosts(program, request);
  const auto findings =
      Examine({program.root(), program.store().results(), program.worker(), program.Python()});
  if (program.json()) {
    PrintJson(AsJson(findings));
  } else {
    Print(findings);
  }
  return kDone;
}

}  // namespace sparfuse::harness
