// Corrects momentum as DGC does: error feedback accumulates velocities instead of gradients, after
// each worker's own gradient is clipped by its norm. Works on the host, and on a device with the
// same bits.
//
// Source: Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/feedback/residual_store.hpp"
#include "core/fusion/layout.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

struct MomentumOptions {
  double momentum = 0.9;  // m, in [0, 1)
  bool nesterov = false;
  bool masking = true;  // momentum factor masking: velocities of sent elements become zero
};

// Computes u = m * u + g over one range, all [n]. Returns the increment of v: u, or with nesterov
// `growth`, which is written only then. One pass: reads gradient and u, writes u and, with
// nesterov, growth.
//
//   gradient  not modified; multiplied by `scale`, the clipping factor, or 1.
std::span<const float> AdvanceVelocity(const MomentumOptions& options,
                                       std::span<const float> gradient, float scale,
                                       std::span<float> velocity, std::span<float> growth,
                                       ThreadPool& pool);

// Updates the velocity after a selection: with masking, sets the velocities of sent elements to
// zero.
void MaskVelocity(const MomentumOptions& options, std::span<const std::uint32_t> sent,
                  std::span<float> velocity);

// Keeps the velocities u over ranges of the flat gradient, by name as in a ResidualStore. One step
// is
//
//   u = m * u + g             v += u          (nesterov: u = m * (u + g), v += u + g)
//   send v[S]                 v[S] = 0        with masking also u[S] = 0
//
// where v is an ordinary residual. Advance returns the increment of v. A selection takes this
// increment as its gradient, which fuses the addition with the selection. The conserved quantity is
// sent + new v = old v + Advance(...), bit for bit. Host memory; not thread-safe.
class MomentumCorrection {
 public:
  // numel: elements of the flat gradient. Throws Error{kConfig} for a momentum outside [0, 1).
  MomentumCorrection(std::size_t numel, const MomentumOptions& options);

  // Updates u with `scale * gradient` and returns the increment of v, [range.size()], valid until
  // the next call. gradient: [range.size()], not modified; scale: the clipping factor, or 1. One
  // pass: reads gradient and u, writes u and, with nesterov, the result. No allocation after the
  // first call for a name (nesterov: for the largest range).
  std::span<const float> Advance(std::string_view name, Range range,
                                 std::span<const float> gradient, float scale, ThreadPool& pool);

  // Records which elements were sent. indices: relative to range.begin, below range.size().
  void Sent(std::string_view name, Range range, std::span<const std::uint32_t> indices) {
    MaskVelocity(options_, indices, velocities_.Get(name, range).host());
  }

  // The caller may write the velocity, say from a checkpoint.
  std::span<float> Velocity(std::string_view name, Range range) {
    return velocities_.Get(name, range).host();
  }

 private:
  MomentumOptions options_;
  ResidualStore velocities_;
  Buffer<float> growth_;  // nesterov only: otherwise v grows by u itself
};

// Returns the clipping factor on the gradient, min(1, max_norm / (|gradient| + 1e-6)), with the
// norm accumulated in double. 1 for a gradient that is not finite, which the selection refuses.
//
// A limit c on the norm of the average of P workers' gradients is a limit of c / sqrt(P) on each
// (Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.2). Throws Error{kConfig}
// unless max_norm > 0. The result does not depend on the pool's size.
float ClipFactor(std::span<const float> gradient, double max_norm, ThreadPool& pool);

// AdvanceVelocity on a device. Returns the increment of v: velocity, or with nesterov `growth`.
//
//   factor   a word of the device: the factor on the gradient. Null: 1.
//   growth   [n] with nesterov, else unused.
DeviceSpan<const float> AdvanceVelocityOnDevice(const Stream& stream,
                                                const MomentumOptions& options,
                                                DeviceSpan<const float> gradient,
                                                const float* factor, DeviceSpan<float> velocity,
                                                DeviceSpan<float> growth);

// MaskVelocity on a device, for the elements that the slot's report counts.
void MaskVelocityOnDevice(const Stream& stream, const MomentumOptions& options,
                          const DeviceSlot& sent, DeviceSpan<float> velocity);

}  // namespace sparfuse
