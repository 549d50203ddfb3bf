#include "core/device/compile_kernel.hpp"
#include "core/localsteps/anchor_kernels.hpp"
#include "core/localsteps/sender_rules_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::PackParameters)
SPARFUSE_KERNEL(sparfuse::gpu::StepAnchor)
SPARFUSE_KERNEL(sparfuse::gpu::GrowMomentum)
SPARFUSE_KERNEL(sparfuse::gpu::ClipOuter)
SPARFUSE_KERNEL(sparfuse::gpu::MoveClippedAnchor)
SPARFUSE_KERNEL(sparfuse::gpu::SwapElements)
SPARFUSE_KERNEL(sparfuse::gpu::NormsOfTensors)
SPARFUSE_KERNEL(sparfuse::gpu::FactorsOfMedians)
SPARFUSE_KERNEL(sparfuse::gpu::ScaleTensors)
SPARFUSE_KERNEL(sparfuse::gpu::CountSenders)
SPARFUSE_KERNEL(sparfuse::gpu::DivideSums)
