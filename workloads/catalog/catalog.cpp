#include "workloads/catalog/catalog.hpp"

#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {

double OverlapOf(const WorkloadDescriptor& workload) {
  constexpr double kConvolutions = 0.067;  // digits-resnet
  constexpr double kAttention = 0.042;     // text-gpt
  constexpr double kRecurrent = 0.139;     // text-lstm
  const std::string_view family = workload.family();
  if (family == LstmSize::kFamily) return kRecurrent;
  const bool attends = family == GptSize::kFamily || family == BertSize::kFamily ||
                       family == VitSize::kFamily || family == TransformerSize::kFamily;
  return attends ? kAttention : kConvolutions;
}

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
