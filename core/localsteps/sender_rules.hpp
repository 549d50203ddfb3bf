// Combines the selections of ranks by rules that look at each rank's own values: an average over
// the senders of an element, and values scaled to the median norm over ranks. Published code has
// these rules (SparseLoCo's). The host and devices give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/payload/accumulate_device.hpp"
#include "core/payload/payload.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// The rules on the host, with their scratch memory. Used by one thread at a time.
class SenderRules {
 public:
  // Scales a rank's values of a tensor down to the median over ranks of their norms, the lower one
  // of an even number. A norm is the root of SumSquares (core/feedback/norm/norm.hpp).
  //
  //   payloads  of all ranks; their values become copies, valid until the next call.
  //   tensors   ascending and disjoint, of the payloads' indices.
  void ScaleToMedian(std::span<SparsePayload> payloads, std::span<const Range> tensors,
                     ThreadPool& pool);
  // Divides sums by the number of payloads that hold the element, if there are several.
  //
  //   sums  [n] of the payloads' elements first to first + n.
  void DivideBySenders(std::span<const SparsePayload> payloads, std::size_t first,
                       std::span<float> sums);

 private:
  std::vector<float> scaled_;  // values of all ranks
  std::vector<std::uint32_t> senders_;
};

// The same on a device, in the order of the stream; indices are checked by the sum. The result
// refers to the workspace until its next call. Three launches for up to 32 payloads and 64 tensors.
std::vector<DevicePayload> ScaleToMedianOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                                                 std::span<const DevicePayload> payloads,
                                                 std::span<const Range> tensors);
// Two launches for up to 32 payloads.
void DivideBySendersOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                             std::span<const DevicePayload> payloads, std::size_t first,
                             DeviceSpan<float> sums);

}  // namespace sparfuse
