// Corrects momentum as DGC does: error feedback accumulates velocities instead of gradients, after
// a worker's own gradient is clipped by its norm. On the host, and on a device with the host's
// bits.
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
  bool masking = true;  // momentum factor masking: the velocity of what was sent becomes zero
};

// u = m * u + g over one range, all [n]; returns what v grows by: u, with nesterov `growth`, which
// is written then only. One pass: reads gradient and u, writes u and, with nesterov, growth.
//
//   gradient  not modified; taken `scale` times: what clipping made of it, or 1.
std::span<const float> AdvanceVelocity(const MomentumOptions& options,
                                       std::span<const float> gradient, float scale,
                                       std::span<float> velocity, std::span<float> growth,
                                       ThreadPool& pool);

// The velocity after a selection: zero, with masking, where something was sent.
void MaskVelocity(const MomentumOptions& options, std::span<const std::uint32_t> sent,
                  std::span<float> velocity);

// The velocities u over ranges of the flat gradient, by name as in a ResidualStore. One step is
//
//   u = m * u + g             v += u          (nesterov: u = m * (u + g), v += u + g)
//   send v[S]                 v[S] = 0        with masking also u[S] = 0
//
// where v is an ordinary residual: Advance returns what is added to it, which a selection takes for
// the gradient, so that the addition is fused with the selection. What is conserved is
// sent + new v = old v + Advance(...), bit for bit. Host memory; not thread-safe.
class MomentumCorrection {
 public:
  // numel: elements of the flat gradient. Throws Error{kConfig} for a momentum outside [0, 1).
  MomentumCorrection(std::size_t numel, const MomentumOptions& options);

  // Updates u with `scale * gradient` and returns what v grows by, [range.size()], valid until the
  // next call. gradient: [range.size()], not modified; scale: what clipping made of it, or 1.
  // One pass: reads gradient and u, writes u and, with nesterov, the result. No allocation after
  // the first call for a name (nesterov: for the largest range).
  std::span<const float> Advance(std::string_view name, Range range,
                                 std::span<const float> gradient, float scale, ThreadPool& pool);

  // Tells which elements were sent. indices: relative to range.begin, below range.size().
  void Sent(std::string_view name, Range range, std::span<const std::uint32_t> indices);

  // May be written, say from a checkpoint.
  std::span<float> Velocity(std::string_view name, Range range);

 private:
  MomentumOptions options_;
  ResidualStore velocities_;
  Buffer<float> growth_;  // nesterov only: otherwise v grows by u itself
};

// min(1, max_norm / (|gradient| + 1e-6)), the norm accumulated in double: what the gradient is to
// be multiplied with. 1 for a gradient that is not finite, which is the selection's to refuse.
//
// A limit c on the norm of the average of P workers' gradients is a limit of c / sqrt(P) on each
// (Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.2). Throws Error{kConfig}
// unless max_norm > 0. The result does not depend on the pool's size.
float ClipFactor(std::span<const float> gradient, double max_norm, ThreadPool& pool);

// AdvanceVelocity; returns what v grows by: velocity, or with nesterov `growth`.
//
//   factor   a word of the device that the gradient is multiplied with, or null: 1.
//   growth   [n] with nesterov, else unused.
DeviceSpan<const float> AdvanceVelocityOnDevice(const Stream& stream,
                                                const MomentumOptions& options,
                                                DeviceSpan<const float> gradient,
                                                const float* factor, DeviceSpan<float> velocity,
                                                DeviceSpan<float> growth);

// MaskVelocity, of what a slot's report counts.
void MaskVelocityOnDevice(const Stream& stream, const MomentumOptions& options,
                          const DeviceSlot& sent, DeviceSpan<float> velocity);

}  // namespace sparfuse
