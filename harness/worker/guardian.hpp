// Ends a rank that outlives its launch.
#pragma once

namespace sparfuse::harness {

// Starts a process that kills this one, stopped or not, when its time is up (kLifetimeVariable,
// harness/run/live/launch/launch_command.hpp), and that ends with it. Does nothing where the
// variable is not set. To be called before there are threads.
void StartGuardian();

}  // namespace sparfuse::harness
