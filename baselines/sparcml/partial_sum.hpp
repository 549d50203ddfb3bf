// Sums payloads of growing unions one by one, as elements with indices until these take as much as
// a dense range.
#pragma once

#include <cstddef>
#include <span>

#include "baselines/sparcml/sum_form.hpp"
#include "core/device/device.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::baselines {

class PartialSum {
 public:
  // elements: of the range; indices are below it. rule: kNever or kBytes. room: where message()
  // comes to lie; it outlives the sum.
  PartialSum(std::size_t elements, DenseSwitch rule, Buffer<std::byte>& room)
      : elements_(elements), rule_(rule), room_(room) {}

  // Begins with a payload, which outlives the sum.
  void Start(std::span<const std::byte> own);
  // Adds another sum of the range, as its message() was. a.Add(b) and b.Add(a) come to equal bits.
  // Throws Error{kComm} where it has no whole elements or, while this sum or the other one is
  // dense, an index beyond the range. Cost: O(elements of both), once O(n) as it becomes dense.
  void Add(std::span<const std::byte> message);

  bool dense() const { return dense_; }
  // The sum: a payload with increasing indices, or where dense() [elements] floats. Holds until the
  // next call of Start or Add.
  std::span<const std::byte> message() const { return message_; }

 private:
  bool IsDenseMessage(std::span<const std::byte> message) const {
    return rule_ == DenseSwitch::kBytes && elements_ > 0 &&
           message.size() == elements_ * sizeof(float);
  }
  std::span<float> Floats() const { return {reinterpret_cast<float*>(room_.data()), elements_}; }
  void BecomeDense();
  // Adds to the dense sum.
  void Scatter(const SparsePayload& from);

  std::size_t elements_;
  DenseSwitch rule_;
  Buffer<std::byte>& room_;
  bool dense_ = false;
  SparsePayload sparse_;  // of what Start was given, or of merged_
  SparseSums merged_;
  SparseSums next_;
  std::span<const std::byte> message_;
};

}  // namespace sparfuse::baselines
