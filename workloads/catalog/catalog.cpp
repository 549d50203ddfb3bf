#include "workloads/catalog/catalog.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/catalog/workload_tables.hpp"
#include "workloads/models/description.hpp"

namespace sparfuse::workloads {
namespace {

// The workload tables that were added in this process.
struct KnownTables {
  std::mutex mutex;
  std::map<std::string, WorkloadDescriptor, std::less<>> by_name;
};

KnownTables& Tables() {
  static KnownTables tables;
  return tables;
}

}  // namespace

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

std::vector<std::string> Families() {
  std::vector<std::string> families;
  for (const WorkloadDescriptor& workload : Workloads()) {
    const std::string family(workload.family());
    if (std::ranges::find(families, family) == families.end()) families.push_back(family);
  }
  return families;
}

void KnowTable(WorkloadDescriptor workload) {
  const std::lock_guard lock(Tables().mutex);
  std::string name = workload.name;
  Tables().by_name.try_emplace(std::move(name), std::move(workload));
}

const WorkloadDescriptor* FindTable(std::string_view name) {
  const std::lock_guard lock(Tables().mutex);
  const auto found = Tables().by_name.find(name);
  return found == Tables().by_name.end() ? nullptr : &found->second;
}

const WorkloadDescriptor& FindWorkload(std::string_view name) {
  if (IsTable(name)) {
    if (const WorkloadDescriptor* table = FindTable(name)) return *table;
    SPARFUSE_THROW(kConfig, "workload \"" + std::string(name) +
                                "\": this verb does not take tables; expected this workload only "
                                "in the cells of an experiment file");
  }
  std::vector<std::string> known;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (workload.name == name) return workload;
    known.push_back(workload.name);
  }
  SPARFUSE_THROW(kConfig,
                 "unknown workload \"" + std::string(name) + "\"" + Suggestion(name, known));
}

std::int64_t BroadcastBytesOf(std::string_view name) {
  const WorkloadDescriptor& workload = FindWorkload(name);
  return workload.table ? workload.table->broadcast_bytes : 0;
}

void CheckData(const WorkloadDescriptor& workload, const std::filesystem::path& data_directory) {
  const std::filesystem::path directory = ResolveDataDirectory(data_directory);
  for (const DataFileSpec& file : workload.data_files) CheckDataFile(directory, file);
}

std::size_t LayerTable::numel() const {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::size_t{0},
      [](std::size_t sum, const LayerTensor& tensor) { return sum + tensor.numel; });
}

double LayerTable::macs() const {
  return std::accumulate(tensors.begin(), tensors.end(), 0.0,
                         [](double sum, const LayerTensor& tensor) { return sum + tensor.macs; });
}

const LayerTable& LayersOf(std::string_view workload) {
  static std::mutex mutex;
  static std::map<std::string, LayerTable, std::less<>> tables;
  const WorkloadDescriptor& descriptor = FindWorkload(workload);
  if (descriptor.table) return descriptor.table->layers;
  const std::lock_guard lock(mutex);
  auto found = tables.find(workload);
  if (found == tables.end()) {
    found = tables.emplace(descriptor.name, Describe(descriptor.model).InReadyOrder()).first;
  }
  return found->second;
}

std::vector<double> BackwardWeights(std::string_view workload) {
  const auto& table = FindWorkload(workload).table;
  if (table && table->times && !table->times->backward_us.empty()) return table->times->backward_us;
  std::vector<double> weights;
  for (const LayerTensor& tensor : LayersOf(workload).tensors) weights.push_back(tensor.macs);
  return weights;
}

}  // namespace sparfuse::workloads
