// Multiplies matrices on CUDA devices with cuBLAS.
#include <cublas_v2.h>

#include <string>

#include "core/base/error.hpp"
#include "core/device/matrix_product.hpp"
#include "core/device/status.hpp"

namespace sparfuse {
namespace {

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string what =
      Concat(call, ": ", cublasGetStatusString(status), " (cuBLAS ", static_cast<int>(status), ")");
  if (status == CUBLAS_STATUS_ALLOC_FAILED) SPARFUSE_THROW(kOutOfMemory, what);
  SPARFUSE_THROW(kInternal, what);
}

void UseDevice(int index) {
  const cudaError_t status = cudaSetDevice(index);
  gpu::CheckStatus(status, "cudaSetDevice", cudaGetErrorString(status));
}

// cuBLAS's recommendation for compute capability 9; more than for lower ones.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

class CublasMultiplier final : public MatrixMultiplier {
 public:
  explicit CublasMultiplier(Device device)
      : device_(device), workspace_(kWorkspaceBytes, device, "cuBLAS") {
    UseDevice(device.index);
    Check(cublasCreate(&handle_), "cublasCreate");
  }
  ~CublasMultiplier() override { cublasDestroy(handle_); }
  CublasMultiplier(const CublasMultiplier&) = delete;
  CublasMultiplier& operator=(const CublasMultiplier&) = delete;

  void Multiply(const Stream& stream, const MatrixProduct& product) override {
    UseDevice(device_.index);
    Check(cublasSetStream(handle_, static_cast<cudaStream_t>(stream.native)), "cublasSetStream");
    // The workspace must be set after the stream: setting a stream resets it.
    Check(cublasSetWorkspace(handle_, workspace_.data(), workspace_.size()), "cublasSetWorkspace");
    const float one = 1;
    const float zero = 0;
    Check(cublasSgemm(handle_, Operation(product.transpose_a), Operation(product.transpose_b),
                      static_cast<int>(product.m), static_cast<int>(product.n),
                      static_cast<int>(product.k), &one, product.a,
                      static_cast<int>(product.a_stride), product.b,
                      static_cast<int>(product.b_stride), &zero, product.c,
                      static_cast<int>(product.c_stride)),
          "cublasSgemm");
  }

 private:
  static cublasOperation_t Operation(bool transpose) {
    return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  }

  Device device_;
  Buffer<std::byte> workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

std::unique_ptr<MatrixMultiplier> MakeMatrixMultiplier(Device device) {
  if (device.kind != DeviceKind::kCuda) {
    SPARFUSE_THROW(kInternal, "products of matrices: expected a CUDA device");
  }
  return std::make_unique<CublasMultiplier>(device);
}

}  // namespace sparfuse
