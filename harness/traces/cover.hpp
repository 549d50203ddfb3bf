// Measures the time that at least one of some intervals covers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace sparfuse::harness {

using TraceTime = std::int64_t;  // ns
using TraceSpan = std::pair<TraceTime, TraceTime>;

class Cover {
 public:
  explicit Cover(std::vector<TraceSpan> intervals) : spans_(std::move(intervals)) {
    std::ranges::sort(spans_);
    std::size_t count = 0;
    for (const auto& [begin, end] : spans_) {
      if (begin >= end) continue;
      if (count > 0 && begin <= spans_[count - 1].second) {
        spans_[count - 1].second = std::max(spans_[count - 1].second, end);
      } else {
        spans_[count++] = {begin, end};
      }
    }
    spans_.resize(count);
    before_.resize(count);
    std::transform_exclusive_scan(spans_.begin(), spans_.end(), before_.begin(), TraceTime{0},
                                  std::plus(),
                                  [](const TraceSpan& span) { return span.second - span.first; });
  }

  // The covered time before `time`.
  TraceTime Until(TraceTime time) const {
    const auto after = std::ranges::upper_bound(spans_, time, {}, &TraceSpan::first);
    if (after == spans_.begin()) return 0;
    const auto at = static_cast<std::size_t>(after - spans_.begin() - 1);
    return before_[at] + std::min(time, spans_[at].second) - spans_[at].first;
  }
  TraceTime Between(TraceTime from, TraceTime to) const {
    return to > from ? Until(to) - Until(from) : 0;
  }

 private:
  std::vector<TraceSpan> spans_;   // in order, apart
  std::vector<TraceTime> before_;  // covered before each
};

}  // namespace sparfuse::harness
