// Merges selections into payloads on a device, and sums received payloads.
//
// All functions here start work in the order of `stream` and return before it is done. They wait
// for nothing, and allocate nothing once a step has run with the largest sizes. All memory is on
// the stream's device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/device/device.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// A payload of any rank: SparsePayload on a device.
struct DevicePayload {
  const std::uint32_t* indices = nullptr;
  const float* values = nullptr;
  std::size_t count = 0;
  // Set if the count is on the device only; `count` is then its upper bound.
  const std::uint32_t* count_word = nullptr;
};

// Checks a fault word on the host: unless it is zero, throws Error{kComm} naming payload and
// position of the first corrupt element. Device functions note faults of payloads in such a word of
// the device, which is zero before; several calls may share one.
void CheckPayloadFault(std::uint64_t fault);

// AccumulateSparse (accumulate.hpp) on a device, with its bits: values are added in the order of
// the payloads, then scaled.
//
//   out       [n], any alignment of a float.
//   fault     an index that is not above its predecessor, or not below window.whole. The content of
//             `out` is then unspecified.
//   touched   null: all of `out` is written. Else [TouchedWords(n)]: a bit for each 32-byte sector
//             of the memory of `out`, set if the sector may hold anything but zeros. Sectors
//             without a bit and without new values are not written, so that time is proportional to
//             the sectors touched now and the last time. The call updates the bits for the next
//             call. Pass all zeros for a zero `out`, all ones for an unknown `out`.
//
// Two launches for up to 32 payloads. The first reads the indices, the second reads indices and
// values and writes `out` once.
void AccumulateSparseOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                              std::span<const DevicePayload> payloads, const Window& window,
                              float scale, DeviceSpan<float> out, std::uint64_t* fault,
                              std::uint32_t* touched = nullptr);
std::size_t TouchedWords(std::size_t n);

// out[i] = in[i] * scale;  in may be out.
void ScaleDenseOnDevice(const Stream& stream, DeviceSpan<const float> in, float scale,
                        DeviceSpan<float> out);

// Copies. If an element is NaN or infinite, raises *not_finite, a word that is zero before, to
// NotFiniteCode of the first such element (device_selection.hpp).
void CopyFiniteOnDevice(const Stream& stream, DeviceSpan<const float> from, DeviceSpan<float> to,
                        std::uint32_t* not_finite);

// A selection that becomes a part of a payload: its indices move up by `base`.
struct MergePart {
  DeviceSlot slot;
  std::uint32_t base = 0;
};

// The destination of a merged payload. `values` null: directly after the last index, as on the
// wire.
struct MergedPayload {
  std::uint32_t* indices = nullptr;  // 4-byte aligned
  float* values = nullptr;
  std::size_t capacity = 0;        // elements; at least the sum of the parts' capacities
  std::uint32_t* count = nullptr;  // out: elements of all parts
};

// Merges parts, in the order given, into one payload. The slots' reports hold the counts when the
// stream reaches the merge. A report of a value that is not finite counts like any other: the code
// that checks the reports throws.
//
// One launch for up to 64 parts, two for each further 64. Throws Error{kInternal} if the capacity
// is too small.
void MergeSlotsOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                        std::span<const MergePart> parts, const MergedPayload& out);

// Adds to *missing the number of tensors in a range that have unsent values other than zero and no
// selected element.
//
//   unsent   [n] the rest after the selection: the residual, or the source if there is no residual.
//   slot     the selection from the range.
//   bounds   [tensors + 1] begins of the tensors in the range, strictly increasing from 0 on, then
//   n.
//
// One launch after a small fill. Reads `unsent` only in tensors without a selected element, up to
// the first element that is not zero.
void CountMissingOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                          DeviceSpan<const float> unsent, const DeviceSlot& slot,
                          DeviceSpan<const std::uint32_t> bounds, std::uint64_t* missing);

}  // namespace sparfuse
