// Holds device resources of a LiveEngine's lanes: result words copied back to the host, bits of the
// averaged gradient that sparse sums touch, and copies of selections that are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/live/selection_checks.hpp"
#include "core/fusion/layout.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// Result words that an operation leaves on the device, copied to the host. All zero at first.
struct OpReport {
  SlotReport slot;            // of a selection; of a pack not_finite
  std::uint64_t missing = 0;  // tensors of which nothing was selected
  std::uint64_t fault = 0;    // of a sum: as AccumulateSparseOnDevice's
  float clip = 0;             // of a selection: what clipping multiplies the gradient with
};

// A report for each operation of a step. Grown in blocks, and used again by the next step.
class OpReports {
 public:
  explicit OpReports(Device device) : device_(device) {}

  // Zeros what the last step used, in the order of `stream`.
  void Clear(const Stream& stream);
  OpReport* OnDevice(Handle handle);
  // Copies it to the host, in the order of `stream`.
  void Fetch(const Stream& stream, Handle handle);
  const OpReport& OnHost(Handle handle) { return Of(handle).on_host[(handle - 1) % kBlock]; }

 private:
  static constexpr std::size_t kBlock = 256;
  struct Block {
    Buffer<OpReport> on_device;
    gpu::PinnedBuffer<OpReport> on_host;
  };
  Block& Of(Handle handle);

  Device device_;
  std::vector<Block> blocks_;
};

// Bits of the parts of the averaged gradient that hold something, so that sparse sums need not
// clear all of it (AccumulateSparseOnDevice's `touched`), for as long as the ranges stay the same.
class TouchedRanges {
 public:
  explicit TouchedRanges(Device device) : device_(device) {}
  // The bits of a range that is summed into; null: it must be written whole.
  std::uint32_t* Of(Range range, const Stream& stream);
  // Something else is written there.
  void Forget(Range range);
  // Ranges may change from here on.
  void Restart();

 private:
  struct Entry {
    std::size_t end = 0;
    Buffer<std::uint32_t> bits;
  };
  // Removes what overlaps, but for the range itself; true when there was something.
  bool EraseOverlapping(Range range, bool itself);

  Device device_;
  std::map<std::size_t, Entry> entries_;  // by begin
  bool changing_ = false;                 // ranges differ from step to step
};

// Copies what a device selects from and what it selects to the host, to be checked there: of one
// selection in a step that verifies, in the order of `stream`.
class SelectionCopies {
 public:
  // Before it is selected from.
  SelectionCopies(const Stream& stream, const Selection& selection);
  void CopyAfter(const Stream& stream, const Selection& selection);
  // When the stream has made the copies, and the selection's count is known.
  void Check(SelectionChecks& checks, const Selection& selection) const;

 private:
  std::vector<float> source_, residual_;  // before
  std::vector<float> unsent_;             // after
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<std::byte> encoded_;
};

}  // namespace sparfuse
