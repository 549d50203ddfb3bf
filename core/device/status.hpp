// Maps the numbers of cudaError_t to their meaning for a trial. They are plain numbers, so that
// tests check the mapping, and inject faults, without CUDA.
#pragma once

#include <string_view>

#include "core/base/error.hpp"

namespace sparfuse::gpu {

inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemoryStatus = 2;
inline constexpr int kNotReadyStatus = 600;

struct StatusMeaning {
  FailureKind kind = FailureKind::kInternal;
  bool sticky = false;  // no later call of this process on the device can succeed
  std::string_view advice = "";
};
StatusMeaning MeaningOf(int status);

// Throws the Error of a status that is not kSuccess:
//   CALL: TEXT (CUDA error STATUS); ADVICE
// A `what` that is not empty precedes it: "cannot allocate 4 MB of cuda:0 for the residual".
void CheckStatus(int status, std::string_view call, std::string_view text,
                 std::string_view what = "");

// The status that the environment variable SPARFUSE_GPU_FAULT wants a call to return, or kSuccess.
//   SPARFUSE_GPU_FAULT=CALL:NTH:STATUS   the NTH (from 1) CALL of this process, one of "allocate",
//                                        "launch", "copy", "synchronize", returns STATUS; if that
//                                        is sticky, so do all calls after it.
// Throws Error{kConfig} for anything else.
int InjectedStatus(std::string_view call);

// For tests: from now on acts as if the variable had this value ("" for none); counts restart at 0.
void InjectFault(std::string_view fault);

}  // namespace sparfuse::gpu
