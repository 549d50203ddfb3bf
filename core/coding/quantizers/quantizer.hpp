// Declares Quantizer, which encodes a whole tensor in fewer bits: fixed-size bytes in place of
// float32.
//
// Like a Sparsifier, a Quantizer knows nothing of ranks' messages, plans or clocks. Error feedback
// is fused into it: the residual keeps the encoding errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

struct QuantizeContext {
  ThreadPool* pool = nullptr;      // never null
  Workspace* workspace = nullptr;  // never null
  int rank = 0;                    // keys random streams: ranks round independently
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;

  virtual std::string_view name() const noexcept = 0;

  // Bytes of an encoded tensor of n elements: a multiple of 4.
  virtual std::size_t EncodedBytes(std::size_t n) const = 0;

  // The least known c with E|x - decoded|^2 <= c |x|^2 for every x of n elements, over the
  // quantizer's random numbers. If c is above 1, residuals may grow from step to step without
  // bound: use such a quantizer without error feedback.
  virtual double ErrorBound(std::size_t n) const = 0;

  // Encodes x = gradient + residual (the residual may be absent: x = gradient), [n] float32 on the
  // host. The residual becomes x - decoded(out).
  //
  //   out   EncodedBytes(n), 4-byte aligned, overwritten whole.
  //
  // Determinism: equal inputs, seed, tensor, step and rank give equal bytes and residuals, for
  //              every size of the pool and every instruction set.
  // Errors:      Error{kNumeric} naming the tensor if x has a NaN or an infinity (out and the
  //              residual are then unspecified); Error{kConfig} if n == 0 or the sizes do not
  //              match.
  virtual void Encode(const QuantizeContext& context, const SelectSource& source,
                      const TensorInfo& info, std::span<std::byte> out) const = 0;

  // out[i] += decoded element begin + i of a tensor of n elements.
  //
  //   payload  EncodedBytes(n), 4-byte aligned.
  //   begin    a multiple of kBlock (select_kernels.hpp); out.size() <= kBlock.
  //
  // Throws Error{kComm} if Encode cannot have written the payload.
  virtual void AddDecoded(std::span<const std::byte> payload, std::size_t n, std::size_t begin,
                          std::span<float> out) const = 0;

  // Encode on a device, in the order of context.stream; returns before it is done. Gradient,
  // residual and `out` are on that device. Bytes and residuals are the same on every device.
  //
  //   rank        as QuantizeContext's.
  //   not_finite  a word of the device, zero before: raised to NotFiniteCode (device_selection.hpp)
  //               of the first element of x that is not finite. All other results are then
  //               unspecified.
  //
  // Errors: as Encode's for its arguments. Cost: no allocation after the first call for a given n,
  // no wait for the device. If WorksOnDevice() is false, the work goes through the host instead.
  virtual void EncodeOnDevice(const DeviceContext& context, int rank, const SelectSource& source,
                              const TensorInfo& info, DeviceSpan<std::byte> out,
                              std::uint32_t* not_finite) const;

  // AccumulateQuantized on a device, for payloads there of EncodedBytes(out.size), 4-byte aligned.
  //
  //   fault   as AccumulateSparseOnDevice's (core/payload/accumulate_device.hpp); if
  //           WorksOnDevice() is false, a corrupt payload throws instead.
  virtual void AccumulateOnDevice(const DeviceContext& context,
                                  std::span<const std::byte* const> payloads, float scale,
                                  DeviceSpan<float> out, std::uint64_t* fault) const;

  // AccumulateQuantized, for payloads of the right size. By default it works block by block in
  // cache: it reads the payloads and writes `out` once.
  virtual void Accumulate(std::span<const std::span<const std::byte>> payloads, float scale,
                          std::span<float> out, ThreadPool& pool) const;

  // Whether there are kernels for devices.
  virtual bool WorksOnDevice() const noexcept { return false; }
};

// out[i] = scale * sum over payloads of their element i. Values are added in the given order, so
// that equal payloads give equal bits on every rank, for every size of the pool. Throws
// Error{kComm} naming the payload that is corrupt.
void AccumulateQuantized(const Quantizer& quantizer,
                         std::span<const std::span<const std::byte>> payloads, float scale,
                         std::span<float> out, ThreadPool& pool);

struct QuantizerDescriptor {
  std::string_view name;  // stable: results are keyed by it
  std::string_view paper;
  int revision = 1;                  // raised when results may change
  bool unbiased = false;             // E[decoded] = x over the quantizer's random numbers
  bool needs_feedback = false;       // does not converge without a residual
  std::string_view deviations = "";  // differences from the paper, a sentence each, or ""
  std::vector<OptionSpec> options = {};
  std::function<std::unique_ptr<Quantizer>(const Options& resolved, std::uint64_t seed)> make;
};

// Every quantizer of core: fp32, fp16, qsgd, sign, sign-bytes.
std::span<const QuantizerDescriptor> Quantizers();

// Finds a quantizer of core or from outside (core/base/outside_parts.hpp). Throws Error{kConfig}
// naming the nearest known name.
const QuantizerDescriptor& FindQuantizer(std::string_view name);

}  // namespace sparfuse
