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

OverlapModel OverlapOf(const WorkloadDescriptor& workload) {
  constexpr OverlapModel kConvolutions{.theta = 0.067, .skew = 0.30};  // digits-resnet
  constexpr OverlapModel kAttention{.theta = 0.042, .skew = 0.53};     // text-gpt
  constexpr OverlapModel kRecurrent{
      .theta = 0.139, .skew = 1.6, .grains = 4};                 // text-lstm; four gates
  constexpr OverlapModel kNgrams{.theta = 0.605, .skew = 0.65};  // text-trigram
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
    for (std::vector<WorkloadDescriptor> more : {RecordedWorkloads(), PaperWorkloads()}) {
      all.insert(all.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
    }
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
