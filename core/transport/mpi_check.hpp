// Turns MPI's error codes into Errors. MPI's communicators return errors instead of aborting.
#pragma once

#include <mpi.h>

#include <array>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse {

[[noreturn]] inline void ThrowMpi(int code, const std::string& call) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  SPARFUSE_THROW(kComm, call + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

inline void CheckMpi(int code, const char* call) {
  if (code != MPI_SUCCESS) ThrowMpi(code, call);
}

}  // namespace sparfuse
