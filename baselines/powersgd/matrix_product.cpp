#include "baselines/powersgd/matrix_product.hpp"

#include <string>

#include "core/base/error.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse {
namespace {

class LoopMultiplier final : public MatrixMultiplier {
 public:
  void Multiply(const Stream& stream, const MatrixProduct& product) override {
    gpu::internal::Enqueue(stream, [=] {
      const MatrixProduct& p = product;
      for (std::size_t j = 0; j < p.n; ++j) {
        for (std::size_t i = 0; i < p.m; ++i) {
          double sum = 0;
          for (std::size_t l = 0; l < p.k; ++l) {
            const float a = p.transpose_a ? p.a[i * p.a_stride + l] : p.a[l * p.a_stride + i];
            const float b = p.transpose_b ? p.b[l * p.b_stride + j] : p.b[j * p.b_stride + l];
            sum += static_cast<double>(a) * static_cast<double>(b);
          }
          p.c[j * p.c_stride + i] = static_cast<float>(sum);
        }
      }
    });
  }
};

}  // namespace

std::unique_ptr<MatrixMultiplier> MakeMatrixMultiplier(Device device) {
  if (device.kind == DeviceKind::kEmulated) return std::make_unique<LoopMultiplier>();
  if (device.kind == DeviceKind::kHost) {
    SPARFUSE_THROW(kInternal, "products of matrices on the host: expected a device");
  }
#ifdef SPARFUSE_CUDA
  return internal::MakeCublasMultiplier(device);
#else
  SPARFUSE_THROW(kUnsupported, "products of matrices on cuda:" + std::to_string(device.index) +
                                   ": this build has no CUDA (sparfuse doctor)");
#endif
}

}  // namespace sparfuse
