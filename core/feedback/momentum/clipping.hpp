// Clips a worker's own gradient by its norm, before momentum and residual.
#pragma once

#include <span>

#include "core/base/thread_pool.hpp"

namespace sparfuse {

// min(1, max_norm / (|gradient| + 1e-6)), the norm accumulated in double: what the gradient is to
// be multiplied with. 1 for a gradient that is not finite, which is the selection's to refuse.
//
// A limit c on the norm of the average of P workers' gradients is a limit of c / sqrt(P) on each
// (Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.2). Throws Error{kConfig}
// unless max_norm > 0. The result does not depend on the pool's size.
float ClipFactor(std::span<const float> gradient, double max_norm, ThreadPool& pool);

}  // namespace sparfuse
