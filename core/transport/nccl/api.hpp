// Tabulates the calls of NCCL that the transport makes. All code above the table can thus be built
// and tested without NCCL (tests/support/devices/fake_nccl.hpp), which needs a driver and a card
// for each rank.
//
// Communicators are ncclComm_t, streams cudaStream_t, results ncclResult_t. All communicators are
// non-blocking (ncclConfig_t::blocking = 0): a call may return kNcclInProgress. Until
// comm_async_error returns another state, callers may not use the communicator or give work to its
// streams. Only comm_abort and comm_destroy block.
#pragma once

#include <array>
#include <cstddef>

namespace sparfuse {

using NcclUniqueId = std::array<char, 128>;

enum NcclResult : int {  // of NCCL 2.x
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

struct NcclApi {
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclUniqueId* id);
  // `device`: of CUDA, of this rank.
  int (*comm_init)(void** comm, int ranks, const NcclUniqueId* id, int rank, int device);
  int (*comm_async_error)(void* comm, int* state);
  int (*comm_finalize)(void* comm);
  int (*comm_destroy)(void* comm);
  int (*comm_abort)(void* comm);
  const char* (*error_string)(int result);
  const char* (*last_error)(void* comm);

  // The calls in between are launched as one, and progress together.
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* data, std::size_t bytes, int peer, void* comm, void* stream);
  int (*receive)(void* data, std::size_t bytes, int peer, void* comm, void* stream);
  // In place.
  int (*all_reduce_sum)(float* data, std::size_t count, void* comm, void* stream);
  // bytes: of each rank. all: [ranks * bytes]; own may be this rank's place in it.
  int (*all_gather)(const void* own, void* all, std::size_t bytes, void* comm, void* stream);
};

// The NCCL that this build is linked with. Throws Error{kUnsupported} in a build without CUDA.
const NcclApi& LinkedNccl();

}  // namespace sparfuse
