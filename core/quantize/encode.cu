#include "core/device/cuda/cuda_launch.cuh"
#include "core/quantize/encode_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::EncodeWhole<false>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::EncodeWhole<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::MeasureBlocks<false>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::MeasureBlocks<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ChainBlocks<false>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ChainBlocks<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::KeepBesideSigns)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::EncodeBuckets)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::EncodeLevels)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeFp32>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeFp16>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeQsgd>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AccumulateEncoded<sparfuse::gpu::DecodeSign>)
