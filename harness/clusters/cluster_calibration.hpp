// Solves the inputs of a declared cluster that published bars determine.
#pragma once

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {

// What the bars' method selects with.
inline constexpr const char* kCalibrationSparsifier = "dgc";
inline constexpr double kCalibrationDensity = 0.01;

// Solves for the times of selections and of the host, given the inputs and two references with
// their bars. Throws Error{kConfig} where no times of at least 0 meet the bars. Cost: simulates
// some ten steps of each bar.
void CalibrateOnBars(DeclaredCluster& cluster);

}  // namespace sparfuse::harness
