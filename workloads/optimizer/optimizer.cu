#include "core/device/compile_kernel.hpp"
#include "workloads/optimizer/optimizer_kernel.hpp"

SPARFUSE_KERNEL(sparfuse::OptimizerKernel<sparfuse::SgdRule>)
SPARFUSE_KERNEL(sparfuse::OptimizerKernel<sparfuse::AdamRule>)
