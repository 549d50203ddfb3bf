// Writes the calibration line that an experiment on a declared cluster needs.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::testing {

// The line "calibration = [...]
// ", which names all published numbers behind the cluster.
inline std::string CalibrationLine(const harness::ProfileFolders& profiles,
                                   const std::string& cluster) {
  std::set<std::string> names;
  for (const harness::ReferenceStep& step :
       harness::LoadDeclaredCluster(profiles, cluster).references) {
    for (const harness::CalibrationBar& bar : harness::BarsOf(step)) names.insert(bar.name());
  }
  return "calibration = " + nlohmann::json(names).dump() + "\n";
}

}  // namespace sparfuse::testing
