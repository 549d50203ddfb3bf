// Measures the time that at least one of some intervals covers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sparfuse::harness {

using TraceTime = std::int64_t;  // ns
using TraceSpan = std::pair<TraceTime, TraceTime>;

class Cover {
 public:
  explicit Cover(std::vector<TraceSpan> intervals) {
    std::ranges::sort(intervals);
    for (const auto& [begin, end] : intervals) {
      if (begin >= end) continue;
      if (ends_.empty() || begin > ends_.back()) {
        before_.push_back(begins_.empty() ? 0 : before_.back() + ends_.back() - begins_.back());
        begins_.push_back(begin);
        ends_.push_back(end);
      } else {
        ends_.back() = std::max(ends_.back(), end);
      }
    }
  }

  // The covered time before `time`.
  TraceTime Until(TraceTime time) const {
    const auto after = std::ranges::upper_bound(begins_, time) - begins_.begin();
    if (after == 0) return 0;
    const auto at = static_cast<std::size_t>(after - 1);
    return before_[at] + std::min(time, ends_[at]) - begins_[at];
  }
  TraceTime Between(TraceTime from, TraceTime to) const {
    return to > from ? Until(to) - Until(from) : 0;
  }

 private:
  std::vector<TraceTime> begins_, ends_, before_;
};

}  // namespace sparfuse::harness
