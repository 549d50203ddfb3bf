// A Quantizer encodes a whole tensor in fewer bits: fixed-size bytes in place of float32.
//
// Like a Sparsifier it knows nothing of ranks' messages, plans or clocks, and error feedback is
// fused into it: what encoding lost is left in the residual.
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

  // The least c known for which E|x - decoded|^2 <= c |x|^2 for every x of n elements, over the
  // quantizer's random numbers. Above 1, residuals may grow from step to step without bound: such a
  // quantizer is for use without error feedback.
  virtual double ErrorBound(std::size_t n) const = 0;

  // Encodes x = gradient + residual (the residual may be absent: x = gradient), [n] float32 on the
  // host. The residual becomes x - decoded(out).
  //
  //   out   EncodedBytes(n), 4-byte aligned, overwritten whole.
  //
  // Determinism: equal inputs, seed, tensor, step and rank give equal bytes and residuals, whatever
  //              the pool's size and the instruction set.
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
  // Throws Error{kComm} where the payload cannot have come from Encode.
  virtual void AddDecoded(std::span<const std::byte> payload, std::size_t n, std::size_t begin,
                          std::span<float> out) const = 0;

  // Encode on a device, in the order of context.stream: returns before it is done. Gradient,
  // residual and `out` are there. The same bytes and residuals, whatever the device.
  //
  //   rank        as QuantizeContext's.
  //   not_finite  a word of the device, zero before: raised to NotFiniteCode (device_selection.hpp)
  //               of the first element of x that is not finite. Then all else is unspecified.
  //
  // Errors: as Encode's for its arguments. Cost: no allocation after the first call for a given n,
  // no wait for the device; but where WorksOnDevice() is false all goes through the host.
  virtual void EncodeOnDevice(const DeviceContext& context, int rank, const SelectSource& source,
                              const TensorInfo& info, DeviceSpan<std::byte> out,
                              std::uint32_t* not_finite) const;

  // AccumulateQuantized on a device, for payloads of EncodedBytes(out.size) there, 4-byte aligned.
  //
  //   fault   as AccumulateSparseOnDevice's (core/payload/accumulate_device.hpp); where
  //           WorksOnDevice() is false, a corrupt payload throws instead.
  virtual void AccumulateOnDevice(const DeviceContext& context,
                                  std::span<const std::byte* const> payloads, float scale,
                                  DeviceSpan<float> out, std::uint64_t* fault) const;

  // AccumulateQuantized, of payloads that have the right number of bytes. By default block by block
  // in cache: the payloads are read and `out` is written once.
  virtual void Accumulate(std::span<const std::span<const std::byte>> payloads, float scale,
                          std::span<float> out, ThreadPool& pool) const;

  // There are kernels for devices.
  virtual bool WorksOnDevice() const noexcept { return false; }
};

// out[i] = scale * sum over payloads of their element i; added in the order given, so that equal
// payloads give equal bits on every rank, whatever the pool's size. Throws Error{kComm} naming the
// payload that is corrupt.
void AccumulateQuantized(const Quantizer& quantizer,
                         std::span<const std::span<const std::byte>> payloads, float scale,
                         std::span<float> out, ThreadPool& pool);

struct QuantizerDescriptor {
  std::string_view name;  // stable: results are keyed by it
  std::string_view paper;
  int revision;                 // raised when results may change
  bool unbiased;                // E[decoded] = x over the quantizer's random numbers
  bool needs_feedback;          // does not converge without a residual
  std::string_view deviations;  // "" or what differs from the paper, one sentence each
  std::vector<OptionSpec> options;
  std::function<std::unique_ptr<Quantizer>(const Options& resolved, std::uint64_t seed)> make;
};

// Every quantizer of core: fp32, fp16, qsgd, sign, sign-bytes.
std::span<const QuantizerDescriptor> Quantizers();

// Also one from outside (core/base/outside_parts.hpp). Throws Error{kConfig} naming the nearest
// known name.
const QuantizerDescriptor& FindQuantizer(std::string_view name);

}  // namespace sparfuse
