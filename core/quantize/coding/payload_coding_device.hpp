// Codes payloads (payload_coding.hpp) on a device, in the same bytes as the host.
//
// Everything here returns before it is done, runs in the order of `stream`, waits for nothing and
// allocates nothing once a step has run with the largest sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/device/device.hpp"
#include "core/payload/accumulate_device.hpp"
#include "core/quantize/coding/payload_coding.hpp"

namespace sparfuse {

// RoundToCoding of what a slot's report counts. residual: of the range that was selected from, or
// empty.
void RoundToCodingOnDevice(const Stream& stream, PayloadCoding coding, const DeviceSlot& slot,
                           DeviceSpan<float> residual);

// EncodePayload.
//
//   payload    indices below n; its count may be on the device only.
//   out        at least EncodedBytesBound(coding, payload.count, n) bytes, 4-byte aligned.
//   out_bytes  a word of the device: the bytes written.
//
// Throws Error{kInternal} where `out` is too small. One launch; two with delta indices.
void EncodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace, PayloadCoding coding,
                           const DevicePayload& payload, std::size_t n, DeviceSpan<std::byte> out,
                           std::uint32_t* out_bytes);

// DecodePayload, of what EncodePayload wrote in this coding.
//
//   bytes    of one rank's payload, 4-byte aligned; the count is in its header.
//   indices  [capacity], as values: the most elements that the payload may have.
//   count    a word of the device: the elements. 0 where the header is wrong.
//   rank     what a fault names.
//   fault    as AccumulateSparseOnDevice's; the position is an element's, or 0 where header or
//            length are wrong. The elements are then unspecified, and nothing is read or written
//            out of bounds.
//
// Returns the payload with its count word. One launch; three with delta indices.
DevicePayload DecodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                                    PayloadCoding coding, DeviceSpan<const std::byte> bytes,
                                    std::size_t n, DeviceSpan<std::uint32_t> indices,
                                    DeviceSpan<float> values, std::uint32_t* count, int rank,
                                    std::uint64_t* fault);

}  // namespace sparfuse
