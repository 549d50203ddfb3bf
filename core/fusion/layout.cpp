#include "core/fusion/layout.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sparfuse {

void GradientLayout::Add(std::string name, std::vector<std::int64_t> shape, std::size_t numel,
                         bool dense, bool feedback) {
  entries_.push_back({std::move(name), std::move(shape), numel, numel_, dense, feedback});
  numel_ += numel;
}

std::size_t GradientLayout::largest_tensor() const noexcept {
  std::size_t largest = 0;
  for (const TensorEntry& entry : entries_) largest = std::max(largest, entry.numel);
  return largest;
}

std::size_t GradientLayout::PositionOf(std::size_t element) const {
  assert(element < numel_);
  const auto after = std::upper_bound(
      entries_.begin(), entries_.end(), element,
      [](std::size_t value, const TensorEntry& entry) { return value < entry.range().end; });
  return static_cast<std::size_t>(after - entries_.begin());
}

Range GradientLayout::RangeOf(std::size_t first, std::size_t last) const {
  assert(first < last && last <= entries_.size());
  return {entries_[first].offset, entries_[last - 1].offset + entries_[last - 1].numel};
}

}  // namespace sparfuse
