#include "core/device/compile_kernel.hpp"
#include "core/localsteps/sender_rules_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::NormsOfTensors)
SPARFUSE_KERNEL(sparfuse::gpu::FactorsOfMedians)
SPARFUSE_KERNEL(sparfuse::gpu::ScaleTensors)
SPARFUSE_KERNEL(sparfuse::gpu::CountSenders)
SPARFUSE_KERNEL(sparfuse::gpu::DivideSums)
