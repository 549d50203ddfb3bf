#include "workloads/catalog/catalog.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {
namespace {

// The workload tables that were added in this process.
class KnownTables {
 public:
  void Add(WorkloadDescriptor workload) {
    const std::lock_guard lock(mutex_);
    std::string name = workload.name;
    tables_.try_emplace(std::move(name), std::move(workload));
  }
  const WorkloadDescriptor* Find(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const auto found = tables_.find(name);
    return found == tables_.end() ? nullptr : &found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, WorkloadDescriptor, std::less<>> tables_;
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

void KnowTable(WorkloadDescriptor workload) { Tables().Add(std::move(workload)); }

const WorkloadDescriptor* FindTable(std::string_view name) { return Tables().Find(name); }

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

}  // namespace sparfuse::workloads
