// Runs the kernels that a profile times, on the host or on a device, with data made up for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

struct TimedSparsifier {
  const SparsifierDescriptor* descriptor = nullptr;
  std::unique_ptr<Sparsifier> sparsifier;
  std::vector<double> densities;
};

// Index-sorted entries of one rank, with values of 1.
using MadeUpPayload = std::vector<std::uint32_t>;

class TimedKernels {
 public:
  // Runs a kernel once; owns its data.
  using Body = std::function<void()>;

  virtual ~TimedKernels() = default;

  // Bytes that Read reads, more than caches hold: 128 MiB, on a device 256 MiB; and operations of
  // Multiply.
  virtual double read_bytes() const = 0;
  virtual double product_operations() const = 0;
  // A sum of squares (core/feedback/norm).
  virtual Body Read() = 0;
  // Multiplies square matrices in single precision: on the host with our own loop, 384 x 384
  // (host_product.hpp); on a card with cuBLAS, 4096 x 4096, without tensor cores.
  virtual Body Multiply() = 0;

  // The first n elements of the gradient into a flat one, checked; times a scale.
  virtual Body Pack(std::size_t n) = 0;
  virtual Body Scale(std::size_t n) = 0;
  // With error feedback, at one step after another.
  virtual Body Select(const TimedSparsifier& timed, const TimedShape& shape, double density) = 0;
  // Averages the payloads; their indices are below n.
  virtual Body Decompress(std::size_t n, const std::vector<MadeUpPayload>& payloads) = 0;

  // Seconds of one call: median of `repeats` batches that each last long enough for the clock.
  virtual Estimate Seconds(const Body& body, int repeats) const = 0;
};

// Normal random numbers.
std::vector<float> Gaussian(std::size_t n, std::uint64_t seed);

// `gradient` and `pool` outlive the result.
std::unique_ptr<TimedKernels> KernelsOnHost(std::span<const float> gradient, ThreadPool& pool);
// The rank's device; seconds are the stream's, by events.
std::unique_ptr<TimedKernels> KernelsOfRank(const Rank& rank, std::span<const float> gradient);

}  // namespace sparfuse::harness
