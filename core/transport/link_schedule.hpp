// Schedules one direction of a link: one message at a time, first in first out by arrival.
#pragma once

#include <cstdint>
#include <vector>

namespace sparfuse {

// Messages may become known in another order than they arrived (a receive is posted late, or polled
// late), and before they arrive (the sender's queue is long). Those not yet delivered are therefore
// placed anew, in order of arrival, whenever one is added; those delivered stay where they are, and
// nothing overlaps them. Times and durations are in nanoseconds.
class LinkSchedule {
 public:
  // Adds a message that reaches the link at `arrival` and occupies it for `duration`.
  std::uint64_t Add(std::int64_t arrival, std::int64_t duration);
  // When the last byte leaves the link. Precondition: neither delivered nor removed.
  std::int64_t EndOf(std::uint64_t id) const;
  void MarkDelivered(std::uint64_t id);
  // Gives up a message that nobody waits for any more.
  void Remove(std::uint64_t id);

 private:
  struct Entry {
    std::uint64_t id = 0;
    std::int64_t arrival = 0;
    std::int64_t duration = 0;
    std::int64_t start = 0;
  };
  struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  std::size_t IndexOf(std::uint64_t id) const;
  void Place();

  std::vector<Entry> waiting_;       // by arrival, then id
  std::vector<Interval> delivered_;  // by time, disjoint; the most recent ones
  std::uint64_t next_id_ = 0;
};

}  // namespace sparfuse
