#include "workloads/catalog/catalog.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {

double NaturalSparsity::Density(double samples) const {
  auto next = std::ranges::find_if(measured, [&](const auto& at) { return samples <= at.first; });
  next = std::clamp(next, measured.begin() + 1, measured.end() - 1);
  const auto& [from, low] = *(next - 1);
  const auto& [to, high] = *next;
  const double way = std::log(samples / from) / std::log(to / from);
  return std::min(1.0, low * std::pow(high / low, way));
}

double OverlapOf(const WorkloadDescriptor& workload) {
  constexpr double kConvolutions = 0.067;  // digits-resnet
  constexpr double kAttention = 0.042;     // text-gpt
  constexpr double kRecurrent = 0.139;     // text-lstm
  constexpr double kNgrams = 0.605;        // text-trigram
  const std::string_view family = workload.family();
  if (family == LstmSize::kFamily) return kRecurrent;
  if (family == NgramSize::kFamily) return kNgrams;
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
