#include "core/device/matrix_product.hpp"

#include <string>

#include "core/base/error.hpp"

namespace sparfuse {

std::unique_ptr<MatrixMultiplier> MakeMatrixMultiplier(Device device) {
  if (device.kind != DeviceKind::kCuda) {
    SPARFUSE_THROW(kInternal, "products of matrices: expected a CUDA device");
  }
#ifdef SPARFUSE_CUDA
  return internal::MakeCublasMultiplier(device);
#else
  SPARFUSE_THROW(kUnsupported, "products of matrices on cuda:" + std::to_string(device.index) +
                                   ": this build has no CUDA (sparfuse doctor)");
#endif
}

}  // namespace sparfuse
