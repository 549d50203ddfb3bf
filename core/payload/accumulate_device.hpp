// Merges selections into payloads on a device, and sums up the payloads that came in.
//
// Everything here returns before it is done, runs in the order of `stream`, waits for nothing and
// allocates nothing once a step has run with the largest sizes. Memory is the stream's device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/device/device.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// A payload of another rank, or this one's: SparsePayload on a device.
struct DevicePayload {
  const std::uint32_t* indices = nullptr;
  const float* values = nullptr;
  std::size_t count = 0;
  // Where the count is on the device only: then `count` is the most that it may be.
  const std::uint32_t* count_word = nullptr;
};

// What is wrong with payloads is noted in a word of the device, which is zero before; several calls
// may share one. Once it is on the host: throws Error{kComm} naming payload and position of the
// first that is corrupt, unless it is zero.
void CheckPayloadFault(std::uint64_t fault);

// AccumulateSparse (accumulate.hpp) on a device, with its bits: values are added in the order of
// the payloads, then scaled.
//
//   out       [n], any alignment of a float.
//   fault     an index that is not above the one before it, or not below window.whole. What `out`
//             holds is then unspecified.
//   touched   null: all of `out` is written. Else [TouchedWords(n)]: a bit for each 32 bytes of
//             memory that `out` lies in, set where they may hold something but zeros. Then what has
//             no bit and gets no value is not written, so that time is proportional to what is
//             touched, now and the last time; and the bits are what holds for the next call. All
//             zero for an `out` that is zero, all ones for one that is not known.
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

// Copies, and where an element is NaN or infinite raises *not_finite to NotFiniteCode of the first
// (device_selection.hpp): a word that is zero before.
void CopyFiniteOnDevice(const Stream& stream, DeviceSpan<const float> from, DeviceSpan<float> to,
                        std::uint32_t* not_finite);

// A selection that becomes a part of a payload: its indices move up by `base`.
struct MergePart {
  DeviceSlot slot;
  std::uint32_t base = 0;
};

// Where a merged payload goes. `values` null: right behind the last index, as on the wire.
struct MergedPayload {
  std::uint32_t* indices = nullptr;  // 4-byte aligned
  float* values = nullptr;
  std::size_t capacity = 0;        // elements; at least the sum of the parts' capacities
  std::uint32_t* count = nullptr;  // out: elements of all parts
};

// Merges parts, in the order given, into one payload. The counts are those in the slots' reports
// when the stream gets there. A report of something not finite counts like any other: whoever looks
// at the reports throws.
//
// One launch for up to 64 parts, two for each further 64. Throws Error{kInternal} for too small a
// capacity.
void MergeSlotsOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                        std::span<const MergePart> parts, const MergedPayload& out);

// Adds to *missing the number of tensors of a range that have something left and of which nothing
// was selected.
//
//   unsent   [n] what the selection left: the residual, or the source where there is none.
//   slot     what was selected from the range.
//   bounds   [tensors + 1] begins of the tensors in the range, strictly increasing from 0 on, then
//   n.
//
// One launch after a small fill; reads `unsent` only where nothing was selected, and there up to
// the first element that is not zero.
void CountMissingOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                          DeviceSpan<const float> unsent, const DeviceSlot& slot,
                          DeviceSpan<const std::uint32_t> bounds, std::uint64_t* missing);

}  // namespace sparfuse
