// Keeps residuals, the unsent parts of the gradient: in one place, or on a device and, for some
// tensors, on its host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.hpp"
#include "core/device/runtime.hpp"
#include "core/fusion/layout.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// A set of elements of the flat gradient, as ranges that do not touch one another.
class RangeSet {
 public:
  void Add(Range range) {
    if (range.size() == 0) return;
    auto next = ends_.upper_bound(range.begin);
    if (next != ends_.begin() && std::prev(next)->second >= range.begin) --next;
    while (next != ends_.end() && next->first <= range.end) {
      range = {std::min(range.begin, next->first), std::max(range.end, next->second)};
      next = ends_.erase(next);
    }
    ends_.emplace(range.begin, range.end);
  }

  void Remove(Range range) {
    auto next = ends_.upper_bound(range.begin);
    if (next != ends_.begin()) --next;
    while (next != ends_.end() && next->first < range.end) {
      const Range old{next->first, next->second};
      if (old.end <= range.begin) {
        ++next;
        continue;
      }
      next = ends_.erase(next);
      if (old.begin < range.begin) ends_.emplace(old.begin, range.begin);
      if (range.end < old.end) ends_.emplace(range.end, old.end);
    }
  }

  // Calls take(part) for each part of `range` that is in the set, in order.
  template <class Take>
  void ForParts(Range range, const Take& take) const {
    auto next = ends_.upper_bound(range.begin);
    if (next != ends_.begin()) --next;
    for (; next != ends_.end() && next->first < range.end; ++next) {
      const Range part{std::max(range.begin, next->first), std::min(range.end, next->second)};
      if (part.begin < part.end) take(part);
    }
  }

  bool Overlaps(Range range) const {
    bool any = false;
    ForParts(range, [&](Range) { any = true; });
    return any;
  }

  void Clear() { ends_.clear(); }

 private:
  std::map<std::size_t, std::size_t> ends_;  // by begin
};

// Named residuals. Each is one flat array over the whole gradient in ready order, so that a plan
// may change without moving their elements. Zero at first. Not thread-safe across equal names.
class ResidualStore {
 public:
  // numel: elements of the flat gradient. aligned: the element that begins a cache line, as stores
  // that bypass the caches need it.
  explicit ResidualStore(std::size_t numel, Device device = {}, std::size_t aligned = 0)
      : numel_(numel),
        shift_((kLine - aligned % kLine) % kLine),
        device_(device),
        workspace_(device) {}

  // The elements of `range` of the residual called `name`, made on first use.
  DeviceSpan<float> Get(std::string_view name, Range range);

  std::vector<std::string> names() const;

  // Euclidean norm over all residuals; each is summed in the order of SumSquares (norm.hpp). On a
  // device it waits, and all work on residuals must be done.
  double Norm();

  // The functions below are for host memory. From BeginUndoable to Settle, each residual has two
  // arrays, in turn: one keeps the elements as they were, the other takes the new ones. Undo, which
  // may follow Settle, goes back to the old ones. Between the two calls Get copies elements from
  // the one to the other once, and GetApart copies nothing.
  void BeginUndoable();
  void Settle();
  void Undo();
  // The elements of `range`: old ones to be read and, if `to` is not empty, room for the new ones,
  // all of which the caller writes. If `to` is empty, `from` is the result of Get: out of an
  // undoable step, or where part of the range was taken in this step before.
  struct Apart {
    DeviceSpan<float> from;
    DeviceSpan<float> to;
  };
  Apart GetApart(std::string_view name, Range range);

 private:
  struct Store {
    Buffer<float> values;
    Buffer<float> before;  // as the undoable step found them; empty: zeros
    RangeSet taken;        // parts of `values` that are the step's
    RangeSet stale;        // parts of `values` that differ from `before` and are not the step's yet
  };
  static constexpr std::size_t kLine = 16;  // elements
  Store& StoreOf(std::string_view name);
  Buffer<float> MakeBuffer() const { return Buffer<float>(numel_ + shift_, device_); }
  float* Begin(const Buffer<float>& buffer) const { return buffer.data() + shift_; }
  void BringOver(Store& store, Range range);
  DeviceSpan<float> PartOf(const Buffer<float>& buffer, Range range) const {
    return {Begin(buffer) + range.begin, range.size(), Stream{device_, nullptr}};
  }

  std::size_t numel_;
  std::size_t shift_;
  Device device_;
  bool undoable_ = false;
  std::map<std::string, Store, std::less<>> stores_;
  DeviceWorkspace workspace_;  // of Norm
  Buffer<double> norm_;
};

// A ResidualStore in two places. A tensor's elements are in one place at a time: the place of the
// last Get. Not thread-safe. On the host alone it is a ResidualStore.
class PlacedStore {
 public:
  // layout: outlives the store. device: the place beside the host, or the host itself.
  PlacedStore(const GradientLayout& layout, Device device);

  // The elements of `range` of the residual called `name`, on device `where`, zero at first.
  // Tensors in the other place are moved, which waits for a copy; no other user may access them
  // meanwhile.
  DeviceSpan<float> Get(std::string_view name, Range range, Device where);

  // As ResidualStore's functions; the store must be on the host alone.
  void BeginUndoable() { on_host_.BeginUndoable(); }
  void Settle() { on_host_.Settle(); }
  void Undo() { on_host_.Undo(); }
  ResidualStore::Apart GetApart(std::string_view name, Range range) {
    return on_host_.GetApart(name, range);
  }

  // The same elements on the host, wherever they are stored; valid until the next call. Moves
  // nothing.
  std::span<const float> Read(std::string_view name, Range range);
  // The sum of all residuals, in the same way.
  std::span<const float> ReadAll(Range range);
  // As ResidualStore::Norm, over both places: elements are zero in the place that does not hold
  // them.
  double Norm();

  // Save copies all residuals to the host, into reused memory. Load copies them back; residuals
  // that `from` lacks become zero.
  using Copies = std::map<std::string, std::vector<float>, std::less<>>;
  void Save(Copies& to);
  void Load(const Copies& from);

 private:
  enum class Place : std::uint8_t { kNowhere, kDevice, kHost };  // kNowhere: zeros
  void Move(std::string_view name, std::size_t tensor, Place to);
  std::vector<std::string> names() const;
  const Stream& CopyStream();

  const GradientLayout& layout_;
  Device device_;
  ResidualStore on_host_;
  ResidualStore on_device_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;  // [tensors] by name
  gpu::GpuStream copies_;                                          // made at first use
  gpu::PinnedBuffer<float> read_;
  std::vector<float> sum_;
};

}  // namespace sparfuse
