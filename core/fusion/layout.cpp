#include "core/fusion/layout.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sparfuse {

std::vector<TensorEntry>& GradientLayout::OwnEntries() {
  if (entries_.use_count() > 1) entries_ = std::make_shared<std::vector<TensorEntry>>(*entries_);
  return *entries_;
}

void GradientLayout::Add(std::string name, std::vector<std::int64_t> shape, std::size_t numel,
                         bool dense, bool feedback) {
  OwnEntries().push_back({std::move(name), std::move(shape), numel, numel_, dense, feedback});
  numel_ += numel;
}

std::size_t GradientLayout::largest_tensor() const noexcept {
  std::size_t largest = 0;
  for (const TensorEntry& entry : *entries_) largest = std::max(largest, entry.numel);
  return largest;
}

void GradientLayout::SetDenseApart() {
  std::vector<TensorEntry>& entries = OwnEntries();
  by_offset_.clear();
  std::size_t offset = 0;
  for (const bool dense : {false, true}) {
    for (std::size_t t = 0; t < entries.size(); ++t) {
      if (entries[t].dense != dense) continue;
      entries[t].offset = offset;
      offset += entries[t].numel;
      by_offset_.push_back(t);
    }
  }
}

std::size_t GradientLayout::PlaceOf(std::size_t element) const {
  assert(element < numel_);
  return *std::ranges::partition_point(
      std::views::iota(std::size_t{0}, tensors()),
      [&](std::size_t place) { return tensor(PositionAt(place)).range().end <= element; });
}

Range GradientLayout::RangeOf(std::size_t first, std::size_t last) const {
  assert(first < last && last <= tensors());
  Range range;
  for (std::size_t t = first; t < last; ++t) {
    if (dense_apart() && tensor(t).dense) continue;
    if (range.size() == 0) range.begin = tensor(t).offset;
    range.end = tensor(t).range().end;
  }
  return range;
}

}  // namespace sparfuse
