#include "workloads/workload.hpp"

namespace sparfuse::workloads {

std::vector<std::span<float>> TrainingWorkload::State() {
  std::vector<std::span<float>> state;
  for (const DeviceSpan<float>& part : DeviceState()) state.push_back(part.host());
  return state;
}

}  // namespace sparfuse::workloads
