#include "harness/worker/rank/card.hpp"

#include <cstdlib>

#include "core/base/error.hpp"
#include "core/device/backend.hpp"
#include "core/device/card.hpp"

namespace sparfuse::harness {

int LocalRank(int rank) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return rank;
}

Device ChooseDevice(Place place, int local_rank) {
  if (place == Place::kCpu) {
    return {gpu::HasEmulatedDevice() ? DeviceKind::kEmulated : DeviceKind::kHost, 0};
  }
  const std::string why = WhyNoCuda();
  if (!why.empty()) SPARFUSE_THROW(kUnsupported, "this machine has no CUDA device: " + why);
  return {DeviceKind::kCuda, local_rank % CudaDeviceCount()};
}

}  // namespace sparfuse::harness
