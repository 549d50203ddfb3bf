// Describes the gradient as one flat array of tensors in ready order.
#pragma once

#include <cstddef>
#include <cstdint>
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
  bool feedback = true;    // false: what is not sent of it is lost (no_feedback_tensors)

  Range range() const noexcept { return {offset, offset + numel}; }
};

// Tensors in ready order: the order in which backward produces their gradients (last layer first),
// observed in calibration on rank 0, broadcast, then fixed. Parameters that produced no gradient in
// calibration are not in it.
class GradientLayout {
 public:
  // Appends a tensor; its offset is the present total.
  void Add(std::string name, std::vector<std::int64_t> shape, std::size_t numel, bool dense = false,
           bool feedback = true);

  std::size_t tensors() const noexcept { return entries_.size(); }
  const TensorEntry& tensor(std::size_t position) const { return entries_[position]; }
  std::size_t numel() const noexcept { return numel_; }
  std::size_t largest_tensor() const noexcept;  // elements
  // The position of the tensor that `element` lies in. Precondition: element < numel().
  std::size_t PositionOf(std::size_t element) const;
  // The range of tensors [first, last).
  Range RangeOf(std::size_t first, std::size_t last) const;

 private:
  std::vector<TensorEntry> entries_;
  std::size_t numel_ = 0;
};

}  // namespace sparfuse
