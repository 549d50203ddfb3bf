#include "core/device/compile_kernel.hpp"
#include "tests/bench/cards/gpu_limit_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::bench::SumAbsOnCard)
SPARFUSE_KERNEL(sparfuse::bench::AddOnCard)
