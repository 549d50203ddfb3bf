// Implements api.hpp over the NCCL that this build is linked with.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>

#include "core/transport/nccl/api.hpp"

namespace sparfuse {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclUniqueId));
static_assert(ncclSuccess == static_cast<int>(kNcclSuccess) &&
              ncclUnhandledCudaError == static_cast<int>(kNcclUnhandledCudaError) &&
              ncclSystemError == static_cast<int>(kNcclSystemError) &&
              ncclInternalError == static_cast<int>(kNcclInternalError) &&
              ncclInvalidArgument == static_cast<int>(kNcclInvalidArgument) &&
              ncclInvalidUsage == static_cast<int>(kNcclInvalidUsage) &&
              ncclRemoteError == static_cast<int>(kNcclRemoteError) &&
              ncclInProgress == static_cast<int>(kNcclInProgress));

ncclComm_t Comm(void* comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t OfCuda(void* stream) { return static_cast<cudaStream_t>(stream); }

int GetUniqueId(NcclUniqueId* id) {
  ncclUniqueId made;
  const int result = ncclGetUniqueId(&made);
  std::memcpy(id->data(), &made, sizeof made);
  return result;
}

int CommInit(void** comm, int ranks, const NcclUniqueId* id, int rank, int device) {
  // NCCL takes the calling thread's device.
  if (cudaSetDevice(device) != cudaSuccess) return ncclUnhandledCudaError;
  ncclUniqueId given;
  std::memcpy(&given, id->data(), sizeof given);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t made = nullptr;
  const int result = ncclCommInitRankConfig(&made, ranks, given, rank, &config);
  *comm = made;
  return result;
}

int CommAsyncError(void* comm, int* state) {
  ncclResult_t now = ncclSuccess;
  const int result = ncclCommGetAsyncError(Comm(comm), &now);
  *state = now;
  return result;
}

const NcclApi kApi{
    .get_version = [](int* version) -> int { return ncclGetVersion(version); },
    .get_unique_id = &GetUniqueId,
    .comm_init = &CommInit,
    .comm_async_error = &CommAsyncError,
    .comm_finalize = [](void* comm) -> int { return ncclCommFinalize(Comm(comm)); },
    .comm_destroy = [](void* comm) -> int { return ncclCommDestroy(Comm(comm)); },
    .comm_abort = [](void* comm) -> int { return ncclCommAbort(Comm(comm)); },
    .error_string =
        [](int result) { return ncclGetErrorString(static_cast<ncclResult_t>(result)); },
    .last_error = [](void* comm) { return ncclGetLastError(Comm(comm)); },
    .group_start = []() -> int { return ncclGroupStart(); },
    .group_end = []() -> int { return ncclGroupEnd(); },
    .send = [](const void* data, std::size_t bytes, int peer, void* comm, void* stream) -> int {
      return ncclSend(data, bytes, ncclUint8, peer, Comm(comm), OfCuda(stream));
    },
    .receive = [](void* data, std::size_t bytes, int peer, void* comm, void* stream) -> int {
      return ncclRecv(data, bytes, ncclUint8, peer, Comm(comm), OfCuda(stream));
    },
    .all_reduce_sum = [](float* data, std::size_t count, void* comm, void* stream) -> int {
      return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, Comm(comm), OfCuda(stream));
    },
    .all_gather = [](const void* own, void* all, std::size_t bytes, void* comm, void* stream)
        -> int { return ncclAllGather(own, all, bytes, ncclUint8, Comm(comm), OfCuda(stream)); },
};

}  // namespace

const NcclApi& LinkedNccl() { return kApi; }

}  // namespace sparfuse
