#include "core/device/compile_kernel.hpp"
#include "workloads/optimizer/optimizer_kernel.hpp"

SPARFUSE_KERNEL(sparfuse::workloads::OptimizerKernel<sparfuse::workloads::SgdRule>)
SPARFUSE_KERNEL(sparfuse::workloads::OptimizerKernel<sparfuse::workloads::SignRule>)
SPARFUSE_KERNEL(sparfuse::workloads::OptimizerKernel<sparfuse::workloads::AdamRule>)
SPARFUSE_KERNEL(sparfuse::workloads::OptimizerKernel<sparfuse::workloads::AdamL2Rule>)
