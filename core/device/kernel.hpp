// Defines the form of kernels, which are written once for CUDA and for tests' emulated device.
//
// A kernel is a functor over one thread of a block. Its members are its arguments:
//
//   struct CountAbove {
//     static constexpr int kThreads = 256;      // of a block, a multiple of 32
//     struct Shared { std::uint32_t bins[64]; };  // of a block, undefined at first
//     const float* x;
//     ...
//     SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const { ... }
//   };
//
// If the threads share nothing, there is no Shared, and the operator takes a NoShared.
//
// The block is a CudaBlock<kThreads> (cuda_block.cuh) or EmulatedBlock<kThreads>
// (emulated_launch.hpp).
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
#include <string_view>

#ifdef __CUDACC__
#define SPARFUSE_DEVICE __device__ __forceinline__
#define SPARFUSE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SPARFUSE_DEVICE inline
#define SPARFUSE_HOST_DEVICE inline
#endif

namespace sparfuse::gpu {

struct NoShared {};

template <class Kernel>
struct SharedOfKernel {
  using Type = NoShared;
};
template <class Kernel>
requires requires { typename Kernel::Shared; }
struct SharedOfKernel<Kernel> {
  using Type = typename Kernel::Shared;
};
template <class Kernel>
using SharedOf = typename SharedOfKernel<Kernel>::Type;

// The kernel's name in errors: its kName, or else that of its type, without namespaces and template
// arguments.
template <class Kernel>
constexpr std::string_view NameOf() {
  if constexpr (requires { Kernel::kName; }) {
    return Kernel::kName;
  } else {
    std::string_view name = __PRETTY_FUNCTION__;
    name.remove_prefix(name.find("Kernel = ") + std::string_view("Kernel = ").size());
    name = name.substr(0, name.find_first_of("<;]"));
    return name.substr(name.rfind(':') + 1);
  }
}

// Four floats that a thread loads or stores at once. 16-byte aligned.
struct alignas(16) Float4 {
  float v[4];
};
struct alignas(16) Uint4 {
  std::uint32_t v[4];
};

inline constexpr int kWarp = 32;

}  // namespace sparfuse::gpu
