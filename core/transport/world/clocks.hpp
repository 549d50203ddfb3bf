// Compares ranks' clocks with rank 0's, by messages.
//
// Source: D. L. Mills, RFC 5905 (NTPv4), 2010, section 8 (offset and delay of an exchange) and
// section 10 (the exchange of least delay among several). The remote side answers at once, so that
// it has one time stamp instead of two.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "core/transport/task.hpp"

namespace sparfuse {

// Returns the time of a clock, in seconds.
using ClockSource = std::function<double()>;

// CLOCK_MONOTONIC, which all processes of a host share. Time stamps of steps use it.
double MonotonicSeconds();

struct ClockReading {
  double at_seconds = 0;           // on this rank's clock
  double offset_seconds = 0;       // rank 0's clock minus this rank's, at that time
  double uncertainty_seconds = 0;  // possible error of the offset: half a round trip
};

// Sets `reading` to the best of `rounds` exchanges with rank 0. `ranks`: the participating ranks
// except rank 0, in an order that is equal on all of them and on rank 0. Collective over these;
// other ranks need not call. Moves 8 bytes per message with `tag`. Cost: 2 * rounds * ranks.size()
// messages in a row.
Task CompareClocks(Communicator& world, std::span<const int> ranks, int rounds, int tag,
                   const ClockSource& clock, ClockReading& reading);

// A rank's clock over some time, from readings at its beginning and its end.
struct ClockLine {
  ClockReading before, after;

  // The time of rank 0's clock when this rank's clock showed `seconds`.
  double OnRankZero(double seconds) const {
    return seconds + before.offset_seconds + drift() * (seconds - before.at_seconds);
  }
  // The seconds per second that rank 0's clock gains on this one, and the possible error of that
  // value. Both are 0 for equal clocks, or if no time lies between the readings.
  double drift() const {
    const double elapsed = after.at_seconds - before.at_seconds;
    return elapsed > 0 ? (after.offset_seconds - before.offset_seconds) / elapsed : 0;
  }
  double drift_uncertainty() const {
    const double elapsed = after.at_seconds - before.at_seconds;
    return elapsed > 0 ? (before.uncertainty_seconds + after.uncertainty_seconds) / elapsed : 0;
  }
  double uncertainty_seconds() const {  // the larger one of the two readings'
    return std::max(before.uncertainty_seconds, after.uncertainty_seconds);
  }
};

}  // namespace sparfuse
