// Runs the training trials of a launch: one, or several in turn.
#pragma once

#include <span>

#include "harness/worker/turns.hpp"

namespace sparfuse::harness {

// `trials`: this rank in each of them, in the launch's order; equal on all ranks. One runs all its
// steps in a row. Several are set up and warmed up one after another; then, round by round in an
// order that the first one's seed shuffles, each makes its few steps of the round
// (harness/run/live/launch/rounds.hpp). Collective. Throws what ends the trial whose turn it is,
// and with it the launch.
void RunTrainings(std::span<const Rank> trials, Turns& turns);

}  // namespace sparfuse::harness
