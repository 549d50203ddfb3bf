// Words the results of a trace on a cluster for the verbs, and holds a trace in the place of a
// cluster's own numbers.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/clusters/profile_folders.hpp"
#include "harness/traces/trace_model.hpp"

namespace sparfuse::harness {

// Writes the traced step of a trial's folder in the form of torch.profiler, one file for each rank,
// into `out`, and returns their paths; none if the trial kept no spans.
std::vector<std::filesystem::path> WriteKineto(const std::filesystem::path& folder,
                                               const std::filesystem::path& out);

// The modelled dense step next to the traced one, the facts that came from the trace, and the
// missing ones.
std::string TraceSummary(const TracedModel& model, const TracedCluster& traced);
// The same as JSON: {source, host_bound, workers, step_seconds, step_is, modelled_step_seconds,
// off, forward_seconds, backward_seconds, spread, inputs, as_declared, corrections, notes}; null
// where a step has no time, or calibrates.
nlohmann::json TraceSummaryJson(const TracedModel& model, const TracedCluster& traced);

// A folder in the system's folder of temporary files, removed with this object.
class PassingFolder {
 public:
  PassingFolder();
  ~PassingFolder();
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A cluster with a trace's numbers in the place of its own, in files that go with this object.
struct TraceForAdvice {
  // Throws as ModelOfTrace and PlaceTrace.
  TraceForAdvice(const ProfileFolders& declared, const std::string& cluster,
                 const TraceImport& asked);

  PassingFolder folder;
  ProfileFolders profiles;
  std::string workload, summary;
  nlohmann::json record;  // TraceSummaryJson
};

}  // namespace sparfuse::harness
