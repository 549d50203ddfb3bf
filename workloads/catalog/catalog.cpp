#include "workloads/catalog/catalog.hpp"

#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {

std::span<const WorkloadDescriptor> Workloads() {
  static const std::vector<WorkloadDescriptor> table = [] {
    std::vector<WorkloadDescriptor> all = TrainedWorkloads();
    std::vector<WorkloadDescriptor> papers = PaperWorkloads();
    all.insert(all.end(), std::make_move_iterator(papers.begin()),
               std::make_move_iterator(papers.end()));
    return all;
  }();
  return table;
}

const WorkloadDescriptor& FindWorkload(std::string_view name) {
  std::vector<std::string> known;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (workload.name == name) return workload;
    known.push_back(workload.name);
  }
  SPARFUSE_THROW(kConfig,
                 "unknown workload \"" + std::string(name) + "\"" + Suggestion(name, known));
}

void CheckData(const WorkloadDescriptor& workload, const std::filesystem::path& data_directory) {
  const std::filesystem::path directory = ResolveDataDirectory(data_directory);
  for (const DataFileSpec& file : workload.data_files) CheckDataFile(directory, file);
}

}  // namespace sparfuse::workloads
