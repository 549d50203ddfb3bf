// Reads what sparfuse's own fingerprints measured of links, in the form of other programs' logs.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "harness/clusters/imported/link_log.hpp"
#include "harness/clusters/measured/fingerprint_file.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

LinkLog LogOf(const std::string& file, const std::string& sha256, const char* program,
              LinkOperation operation, int ranks, int nodes) {
  LinkLog log;
  log.file = file;
  log.sha256 = sha256;
  log.program = program;
  log.operation = operation;
  log.ranks = ranks;
  log.nodes = nodes;
  return log;
}

// Of a curve [[bytes, seconds], ...]. A message of no bytes takes as long as one of a byte.
void AddCurve(const json& curve, LinkLog& log) {
  for (const json& point : curve) {
    log.samples.push_back({std::max(1.0, point.at(0).get<double>()), point.at(1)});
  }
}

}  // namespace

std::vector<LinkLog> ReadFingerprintLogs(const std::string& file) {
  const std::string sha256 = Sha256Hex(ReadFile(file));
  std::vector<LinkLog> logs;
  for (const json& outcome : ReadProfiles(file)) {
    const int ranks = outcome.at("config").at("workers");
    const json& profile = outcome.at("profile");
    if (!IsFingerprint(outcome) || ranks < 2 || !profile.contains("link")) continue;
    const int per_node = outcome.at("config").at("ranks_per_node");
    const int nodes = (ranks + per_node - 1) / per_node;
    logs.push_back(
        LogOf(file, sha256, "fingerprint's ring", LinkOperation::kSendReceive, ranks, nodes));
    AddCurve(profile.at("link").at("round_seconds"), logs.back());
    if (profile.contains("node_link")) {
      logs.push_back(LogOf(file, sha256, "fingerprint's ring of a node",
                           LinkOperation::kSendReceive, per_node, 1));
      AddCurve(profile.at("node_link").at("round_seconds"), logs.back());
    }
    if (!profile.contains("native_all_reduce")) continue;
    logs.push_back(
        LogOf(file, sha256, "fingerprint's all-reduce", LinkOperation::kAllReduce, ranks, nodes));
    AddCurve(profile.at("native_all_reduce"), logs.back());
  }
  if (logs.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: expected a fingerprint of two ranks or more, which "
                                        "`sparfuse system fingerprint` writes",
                                        file));
  }
  return logs;
}

}  // namespace sparfuse::harness
