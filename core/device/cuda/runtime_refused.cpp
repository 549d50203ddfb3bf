// Refuses CUDA devices in a build without CUDA.
#ifndef SPARFUSE_CUDA

#include "core/device/backend.hpp"

namespace sparfuse::gpu {

Backend& CudaBackend() {
  SPARFUSE_THROW(kUnsupported, "a CUDA device: this build has no CUDA (sparfuse doctor)");
}

void SetReleaseCached(ReleaseCached) noexcept {}

}  // namespace sparfuse::gpu

namespace sparfuse {

int CudaDeviceCount() noexcept { return 0; }
const char* CudaBuildInfo() noexcept { return ""; }

}  // namespace sparfuse

#endif
