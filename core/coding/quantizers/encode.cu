#include "core/coding/quantizers/encode_kernels.hpp"
#include "core/device/compile_kernel.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::EncodeWhole<false>)
SPARFUSE_KERNEL(sparfuse::gpu::EncodeWhole<true>)
SPARFUSE_KERNEL(sparfuse::gpu::MeasureBlocks<false>)
SPARFUSE_KERNEL(sparfuse::gpu::MeasureBlocks<true>)
SPARFUSE_KERNEL(sparfuse::gpu::ChainBlocks<false>)
SPARFUSE_KERNEL(sparfuse::gpu::ChainBlocks<true>)
SPARFUSE_KERNEL(sparfuse::gpu::KeepBesideSigns)
SPARFUSE_KERNEL(sparfuse::gpu::EncodeBuckets)
SPARFUSE_KERNEL(sparfuse::gpu::EncodeLevels)
SPARFUSE_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeFp32>)
SPARFUSE_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeFp16>)
SPARFUSE_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeQsgd>)
SPARFUSE_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeSign>)
