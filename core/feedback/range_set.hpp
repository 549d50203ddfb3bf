// A set of elements of the flat gradient, as ranges that do not touch one another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include "core/fusion/layout.hpp"

namespace sparfuse {

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

}  // namespace sparfuse
