#include "workloads/models/layers.hpp"

#include <map>
#include <mutex>
#include <numeric>

#include "workloads/catalog/catalog.hpp"
#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

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
