// Compares ranks' clocks with rank 0's, by messages.
//
// Source: D. L. Mills, RFC 5905 (NTPv4), 2010, section 8 (offset and delay of an exchange) and
// section 10 (of several exchanges the one of least delay); the remote side answers at once, so
// that it has one time stamp in the place of two.
#pragma once

#include <functional>
#include <span>

#include "core/transport/task.hpp"

namespace sparfuse {

// What a clock shows, in seconds.
using ClockSource = std::function<double()>;

// CLOCK_MONOTONIC, which all processes of a host share, and which time stamps of steps are of.
double MonotonicSeconds();

struct ClockReading {
  double at_seconds = 0;           // on this rank's clock
  double offset_seconds = 0;       // rank 0's clock less this rank's, then
  double uncertainty_seconds = 0;  // by so much, half a round trip, the offset may be wrong
};

// Sets `reading` to the best of `rounds` exchanges with rank 0. `ranks`: those that take part
// beside rank 0, in an order that is equal on all of them and on rank 0; other ranks need not call.
// Collective over these. Moves 8 bytes a message with `tag`.
// Cost: 2 * rounds * ranks.size() messages in a row.
Task CompareClocks(Communicator& world, std::span<const int> ranks, int rounds, int tag,
                   const ClockSource& clock, ClockReading& reading);

// A rank's clock over some time, from readings at its beginning and its end.
struct ClockLine {
  ClockReading before, after;

  // What rank 0's clock showed when this rank's showed `seconds`.
  double OnRankZero(double seconds) const;
  // Seconds that rank 0's clock gains on this one in a second, and by how much that may be wrong; 0
  // and 0 of equal clocks, and where there is no time in between.
  double drift() const;
  double drift_uncertainty() const;
  double uncertainty_seconds() const;  // the larger one
};

}  // namespace sparfuse
