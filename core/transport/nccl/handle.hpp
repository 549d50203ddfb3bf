// Drives one ncclComm without blocking, and explains NCCL's errors.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/nccl/api.hpp"

namespace sparfuse {

// The Error of a result that is neither success nor "in progress":
//   CALL: NCCL's name of the result: NCCL's last message Two ranks on one card are kUnsupported
//   with advice on alternatives. A card out of memory is kOutOfMemory, trouble with another rank or
//   the network kComm, the rest kInternal. comm: may be null.
Error NcclError(const NcclApi& api, int result, std::string_view call, void* comm);

// Advice how several ranks can share a card, which NCCL does not allow: the end of an error's
// message.
inline constexpr std::string_view kShareACard =
    "; NCCL gives every rank a card of its own: start at most as many ranks as there are cards, or "
    "stage messages through host memory with transport = \"mpi\", device = \"cuda\"";

class NcclHandle {
 public:
  explicit NcclHandle(const NcclApi& api) : api_(api) {}
  ~NcclHandle() { Abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Starts to make the communicator, which callers may use once Settled().
  void Init(int ranks, const NcclUniqueId& id, int rank, int device) {
    Check(api_.comm_init(&comm_, ranks, &id, rank, device), "ncclCommInitRankConfig");
  }

  // False while NCCL is busy with the last call. Throws NcclError if this rank's NCCL found an
  // error, also in its work on the device.
  bool Settled() {
    int state = kNcclSuccess;
    Check(api_.comm_async_error(comm_, &state), "ncclCommGetAsyncError");
    Check(state, "NCCL");
    return state != kNcclInProgress;
  }

  // Calls `body`, which calls NCCL with comm(), as one group. Precondition: Settled().
  void Group(std::string_view what, const std::function<void()>& body) {
    Check(api_.group_start(), "ncclGroupStart");
    try {
      body();
    } catch (...) {
      api_.group_end();  // groups are counted for the thread
      throw;
    }
    Check(api_.group_end(), what);
  }
  void Check(int result, std::string_view call) const {
    if (result != kNcclSuccess && result != kNcclInProgress) {
      throw NcclError(api_, result, call, comm_);
    }
  }
  void* comm() const { return comm_; }

  // Ends all work on the device at once; a second call does nothing.
  void Abort() noexcept {
    if (void* comm = std::exchange(comm_, nullptr)) api_.comm_abort(comm);
  }
  // The orderly end: Finalize, then, once Settled(), Destroy.
  void Finalize() { Check(api_.comm_finalize(comm_), "ncclCommFinalize"); }
  void Destroy() { Check(api_.comm_destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy"); }

 private:
  const NcclApi& api_;
  void* comm_ = nullptr;
};

}  // namespace sparfuse
