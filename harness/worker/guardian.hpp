// Ends a rank that outlives its launch.
#pragma once

namespace sparfuse::harness {

// Starts a process that kills this one, stopped or not, when its time is up (kLifetimeVariable,
// harness/run/live/launch/launch_command.hpp), and that ends with it. Does nothing if the variable
// is not set. Must be called before there are threads.
void StartGuardian();

}  // namespace sparfuse::harness
