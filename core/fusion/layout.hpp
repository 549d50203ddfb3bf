// Describes the gradient as one flat array of tensors in ready order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <vector>

namespace sparfuse {

// A half-open range of elements of the flat gradient.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const noexcept { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct TensorEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
  std::size_t offset = 0;  // first element in the flat gradient
  bool dense = false;      // never sparsified (the experiment's dense_tensors)
  bool feedback = true;    // false: its unsent elements are lost (no_feedback_tensors)

  Range range() const noexcept { return {offset, offset + numel}; }
};

// The most tensors of a model to be planned for. At this number some planners take 10 s, and
// exchanges of single tensors take gigabytes.
inline constexpr std::size_t kMostTensors = 100'000;

// Tensors in ready order: the order in which backward produces their gradients (last layer first).
// The order is observed in calibration on rank 0, broadcast, then fixed. The layout leaves out
// parameters that produced no gradient in calibration. Copies share the tensors, so that each of
// thousands of modelled ranks may have a copy.
class GradientLayout {
 public:
  // Appends a tensor; its offset is the present total.
  void Add(std::string name, std::vector<std::int64_t> shape, std::size_t numel, bool dense = false,
           bool feedback = true);
  // Moves dense tensors after all others, each kind in ready order, so that no fused buffer that is
  // sparsified as a whole has a dense tensor inside. Offsets change, positions do not.
  void SetDenseApart();
  bool dense_apart() const noexcept { return !by_offset_.empty(); }

  std::size_t tensors() const noexcept { return entries_->size(); }
  const TensorEntry& tensor(std::size_t position) const { return (*entries_)[position]; }
  std::size_t numel() const noexcept { return numel_; }
  std::size_t largest_tensor() const noexcept;  // elements
  // The position of the tensor that `element` lies in. Precondition: element < numel().
  std::size_t PositionOf(std::size_t element) const { return PositionAt(PlaceOf(element)); }
  // The range of tensors [first, last). If dense tensors are apart, the range of the others, which
  // may be empty.
  Range RangeOf(std::size_t first, std::size_t last) const;
  // Positions of the tensors that lie in a range or reach into it, by offset. Precondition:
  // range.begin < numel().
  auto TensorsIn(Range range) const {
    return std::views::iota(PlaceOf(range.begin), entries_->size()) |
           std::views::transform([this](std::size_t place) { return PositionAt(place); }) |
           std::views::take_while([this, end = range.end](std::size_t position) {
             return tensor(position).offset < end;
           });
  }

 private:
  std::size_t PlaceOf(std::size_t element) const;
  std::size_t PositionAt(std::size_t place) const {
    return by_offset_.empty() ? place : by_offset_[place];
  }

  std::vector<TensorEntry>& OwnEntries();  // entries that no copy shares

  std::shared_ptr<std::vector<TensorEntry>> entries_ = std::make_shared<std::vector<TensorEntry>>();
  std::vector<std::size_t> by_offset_;  // positions by offset; empty: offsets ascend with positions
  std::size_t numel_ = 0;
};

}  // namespace sparfuse
