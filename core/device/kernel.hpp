// Defines the form of kernels, which are written once for CUDA and for tests' emulated device.
//
// A kernel is a functor over one thread of a block. Its members are its arguments:
//
//   struct CountAbove {
//     static constexpr int kThreads = 256;      // of a block, a multiple of 32
//     struct Shared { std::uint32_t bins[64]; };  // of a block, undefined at first
//     const float* x;
//     ...
//     template <class Block>
//     SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const { ... }
//   };
//
// Block is CudaBlock<kThreads> (cuda_block.cuh) or EmulatedBlock<kThreads> (emulated_launch.hpp).
// Both have
//
//   kThreads, kWarps                        of this block
//   thread(), lane(), warp()                of the calling thread
//   block(), blocks()                       of the grid
//   Sync()                                  barrier of the block; all its threads call it
//   SyncWarp()                              of the warp
//   Ballot(bool) -> u32                     over a warp; all 32 lanes call it
//   Shuffle(v, lane), ShuffleUp(v, distance), ShuffleXor(v, mask)
//                                           over a warp; lanes without a source get their own v
//   Sum(v), Max(v)                          over the block, to every thread; barriers inside
//   ExclusiveSum(v, &total)                 likewise: the sum over the threads before this one
//   AtomicAdd(p, v), AtomicMax(p, v), AtomicOr(p, v) -> before
//                                           u32 or u64, in global or shared memory, relaxed
//   LoadAcquire(p), StoreRelease(p, v)      between blocks: earlier writes are visible as well
//   LoadRelaxed(p), StoreRelaxed(p, v)      relaxed: only this word is communicated, no other
//                                           memory is ordered
//   LoadStreaming(p)                        a load of data that is not read again soon
//   Pause()                                 in a loop that waits for a block of lower number
//
// Blocks start in the order of their numbers, so a block may wait for those before it. Sums are of
// integers, or of floating-point numbers in an order that the block's size alone decides: results
// do not depend on the schedule. There is no atomic addition of floating-point numbers.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SPARFUSE_DEVICE __device__ __forceinline__
#define SPARFUSE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SPARFUSE_DEVICE inline
#define SPARFUSE_HOST_DEVICE inline
#endif

namespace sparfuse::gpu {

// The Shared of a kernel whose threads share nothing.
struct NoShared {};

// Four floats that a thread loads or stores at once. 16-byte aligned.
struct alignas(16) Float4 {
  float v[4];
};
struct alignas(16) Uint4 {
  std::uint32_t v[4];
};

inline constexpr int kWarp = 32;

}  // namespace sparfuse::gpu
