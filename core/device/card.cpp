#include "core/device/card.hpp"

#include <cstdlib>

#include "core/base/error.hpp"
#include "core/device/device.hpp"
#include "core/device/status.hpp"
#ifdef SPARFUSE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace sparfuse {
namespace {

constexpr int kNoDeviceStatus = 100;  // cudaErrorNoDevice

}  // namespace

std::string DottedVersion(int version) { return Concat(version / 1000, ".", version % 1000 / 10); }

std::string WhyNoCuda(const CudaVersionPair& versions, int status, const std::string& text,
                      int devices, const char* visible) {
  if (status == 0 && devices > 0) return "";
  const std::string runtime = DottedVersion(versions.runtime);
  if (versions.driver == 0) {
    return "there is no CUDA driver; the runtime of this build, " + runtime + ", needs one";
  }
  // Within a major version, a runtime runs on every driver.
  if (versions.driver / 1000 < versions.runtime / 1000) {
    return "the CUDA driver serves runtimes up to " + DottedVersion(versions.driver) +
           ", this build uses " + runtime + ": install a newer driver";
  }
  if (visible != nullptr && (status == 0 || status == kNoDeviceStatus)) {
    return "CUDA_VISIBLE_DEVICES=" + std::string(visible) + " leaves none (" + text + ")";
  }
  std::string why = "the driver reports none (" + text + ")";
  const std::string_view advice = gpu::MeaningOf(status).advice;
  if (status != kNoDeviceStatus && !advice.empty()) why += "; " + std::string(advice);
  return why;
}

#ifdef SPARFUSE_CUDA

CudaVersionPair CudaVersions() noexcept {
  CudaVersionPair versions;
  if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
  if (cudaRuntimeGetVersion(&versions.runtime) != cudaSuccess) versions.runtime = 0;
  return versions;
}

std::string WhyNoCuda() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  cudaGetLastError();  // clears the error, so that later calls do not report it
  return WhyNoCuda(CudaVersions(), static_cast<int>(status), cudaGetErrorString(status), devices,
                   std::getenv("CUDA_VISIBLE_DEVICES"));
}

Card CardOf(int index) {
  const std::string why = WhyNoCuda();
  if (!why.empty()) SPARFUSE_THROW(kUnsupported, "this machine has no CUDA device: ", why);
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, index);
  if (status != cudaSuccess) {
    cudaGetLastError();
    SPARFUSE_THROW(kUnsupported, "this machine has no CUDA device ", index, "; it has ",
                   CudaDeviceCount(), ": ", cudaGetErrorString(status));
  }
  Card card{index, properties.name, properties.major, properties.minor, properties.totalGlobalMem,
            ""};
  for (const char byte : properties.uuid.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    card.uuid += kDigits[static_cast<unsigned char>(byte) >> 4];
    card.uuid += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return card;
}

#else

CudaVersionPair CudaVersions() noexcept { return {}; }

std::string WhyNoCuda() { return "this build has no CUDA"; }

Card CardOf(int) { SPARFUSE_THROW(kUnsupported, "this machine has no CUDA device: ", WhyNoCuda()); }

#endif

}  // namespace sparfuse
