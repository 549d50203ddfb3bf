#include "core/transport/nccl/handle.hpp"

#include <string>
#include <utility>

namespace sparfuse {

Error NcclError(const NcclApi& api, int result, std::string_view call, void* comm) {
  std::string what = std::string(call) + ": " + api.error_string(result);
  const char* last = api.last_error(comm);
  std::string_view detail = last == nullptr ? "" : last;
  while (!detail.empty() && (detail.back() == '\n' || detail.back() == ' ')) {
    detail.remove_suffix(1);
  }
  if (!detail.empty()) what.append(": ").append(detail);
  if (detail.find("Duplicate GPU detected") != std::string_view::npos) {
    return Error(FailureKind::kUnsupported, what.append(kShareACard));
  }
  if (detail.find("out of memory") != std::string_view::npos) {
    return Error(FailureKind::kOutOfMemory, what);
  }
  const bool of_others = result == kNcclRemoteError || result == kNcclSystemError;
  return Error(of_others ? FailureKind::kComm : FailureKind::kInternal, what);
}

void NcclHandle::Check(int result, std::string_view call) const {
  if (result != kNcclSuccess && result != kNcclInProgress) {
    throw NcclError(api_, result, call, comm_);
  }
}

void NcclHandle::Init(int ranks, const NcclUniqueId& id, int rank, int device) {
  Check(api_.comm_init(&comm_, ranks, &id, rank, device), "ncclCommInitRankConfig");
}

bool NcclHandle::Settled() {
  int state = kNcclSuccess;
  Check(api_.comm_async_error(comm_, &state), "ncclCommGetAsyncError");
  Check(state, "NCCL");
  return state != kNcclInProgress;
}

void NcclHandle::Group(std::string_view what, const std::function<void()>& body) {
  Check(api_.group_start(), "ncclGroupStart");
  try {
    body();
  } catch (...) {
    api_.group_end();  // groups are counted for the thread
    throw;
  }
  Check(api_.group_end(), what);
}

void NcclHandle::Abort() noexcept {
  if (void* comm = std::exchange(comm_, nullptr)) api_.comm_abort(comm);
}

void NcclHandle::Finalize() { Check(api_.comm_finalize(comm_), "ncclCommFinalize"); }

void NcclHandle::Destroy() {
  Check(api_.comm_destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

}  // namespace sparfuse
