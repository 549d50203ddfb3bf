#include "harness/worker/card.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "core/error.hpp"
#include "core/tensor/card.hpp"

namespace sparfuse {
namespace {

std::optional<int> FromEnvironment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return std::nullopt;
}

}  // namespace

int LocalRank(int rank) {
  return FromEnvironment({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}).value_or(rank);
}

Device ChooseDevice(const nlohmann::json& config, int local_rank) {
  if (config.value("device", "cpu") == "cpu") {
    const bool emulated = std::getenv("SPARFUSE_EMULATED_DEVICE") != nullptr;
    return {emulated ? DeviceKind::kEmulated : DeviceKind::kHost, 0};
  }
  const std::string why = WhyNoCuda();
  if (!why.empty()) SPARFUSE_THROW(kUnsupported, "this machine has no CUDA device: " + why);
  const int cards = CudaDeviceCount();
  const int ranks =
      FromEnvironment({"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_TASKS_PER_NODE"}).value_or(1);
  if (config.at("transport") == "nccl" && ranks > cards) {
    SPARFUSE_THROW(kUnsupported,
                   fmt::format("transport = \"nccl\" with {} ranks on a host of {} card(s): NCCL "
                               "refuses two ranks on one card; expected transport = \"mpi\", which "
                               "goes through host memory, or no more ranks than cards",
                               ranks, cards));
  }
  return {DeviceKind::kCuda, local_rank % cards};
}

}  // namespace sparfuse
