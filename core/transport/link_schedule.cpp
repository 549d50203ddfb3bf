#include "core/transport/link_schedule.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>

namespace sparfuse {
namespace {
// Older ones cannot matter: a message that arrived before them waited that long for its receive.
constexpr std::size_t kDeliveredKept = 64;
}  // namespace

std::uint64_t LinkSchedule::Add(std::int64_t arrival, std::int64_t duration) {
  const auto after =
      std::upper_bound(waiting_.begin(), waiting_.end(), arrival,
                       [](std::int64_t time, const Entry& entry) { return time < entry.arrival; });
  waiting_.insert(after, Entry{next_id_, arrival, duration, arrival});
  Place();
  return next_id_++;
}

std::int64_t LinkSchedule::EndOf(std::uint64_t id) const {
  const Entry& entry = waiting_[IndexOf(id)];
  return entry.start + entry.duration;
}

std::size_t LinkSchedule::IndexOf(std::uint64_t id) const {
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Entry& entry) { return entry.id == id; });
  assert(it != waiting_.end());
  return static_cast<std::size_t>(it - waiting_.begin());
}

void LinkSchedule::MarkDelivered(std::uint64_t id) {
  const auto entry = waiting_.begin() + static_cast<std::ptrdiff_t>(IndexOf(id));
  const Interval interval{entry->start, entry->start + entry->duration};
  waiting_.erase(entry);
  if (interval.begin == interval.end) return;
  const auto after =
      std::upper_bound(delivered_.begin(), delivered_.end(), interval.begin,
                       [](std::int64_t time, const Interval& other) { return time < other.begin; });
  if (after != delivered_.begin() && std::prev(after)->end == interval.begin) {
    std::prev(after)->end = interval.end;
  } else {
    delivered_.insert(after, interval);
  }
  if (delivered_.size() > kDeliveredKept) delivered_.erase(delivered_.begin());
}

void LinkSchedule::Remove(std::uint64_t id) {
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(IndexOf(id)));
  Place();
}

void LinkSchedule::Place() {
  std::int64_t free_from = std::numeric_limits<std::int64_t>::min();
  for (Entry& entry : waiting_) {
    entry.start = std::max(entry.arrival, free_from);
    for (const Interval& busy : delivered_) {
      if (entry.start < busy.end && entry.start + entry.duration > busy.begin) {
        entry.start = busy.end;
      }
    }
    free_from = entry.start + entry.duration;
  }
}

}  // namespace sparfuse
