// Solves for the inputs of a declared cluster that measured steps determine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {

// The cell whose step was measured.
CellConfig CellOf(const DeclaredCluster& cluster, const ReferenceStep& step);

// The model's value for the step's part, or for the ratio, with the current inputs of the cluster.
double Modelled(const DeclaredCluster& cluster, const ReferenceStep& step);

// Sets the inputs marked for calibration to the values that bring the model nearest to the
// references (least squares of the logarithms of modelled over measured). Sets each reference's
// `modelled`. Begins at the declared values, and, if that does not meet all references, also at the
// nearest point of a grid around them. An input gets a remark if it stays at an end of its range,
// or if no reference depends on it. Throws Error{kConfig} if there are no more references than
// inputs and one is still off by more than a quarter; the error names the conflict. Cost: simulates
// some hundred steps, and four times as many if the first beginning is not enough.
void CalibrateOnSteps(DeclaredCluster& cluster);

// slopes[i][r]: of the modelled reference r over calibrated input i, both as logarithms, in their
// orders.
using CalibrationSlopes = std::vector<std::vector<double>>;

// The slopes at the current inputs of the cluster.
CalibrationSlopes SlopesOf(DeclaredCluster cluster);

// CalibrateOnSteps for a drawn cluster with calibrated inputs, beginning at its current inputs.
// References that cannot be met stay as near as possible. `near`: the slopes of the cluster from
// which it was drawn, for the first step.
void RecalibrateOnSteps(DeclaredCluster& cluster, const CalibrationSlopes& near);

// The rate at which bytes left a node, each way, in 10^9 bit/s. `least`: the fewest bytes that any
// all-reduce sends, over the longest time that they can have taken. `most`: the bytes of a ring
// over the shortest time, which is the exposed time alone.
struct RateBounds {
  double least_bytes = 0, most_bytes = 0;  // 2 (N - 1) / N of the gradients, and 2 (P - 1) / P
  double least = 0, most = 0;              // most is infinite if nothing is exposed
};

// The bounds of an all-reduce of the workload's gradients in float32. Preconditions: ranks >= nodes
// >= 1, longest_seconds > 0.
RateBounds RateBoundsOf(std::string_view workload, int ranks, int nodes, double exposed_seconds,
                        double longest_seconds);

// The longest time of a reference is all of backward and the exposed part of the step.
struct ImpliedRate : RateBounds {
  double nominal = 0;    // inter_node_gbps of all cards, or the reference's link
  double delivered = 0;  // the rest after efficiency, host and links within a node
};

// For a reference on several nodes whose method sends unchanged dense gradients, and whose measured
// time is the step or the exposed part; else nothing.
std::optional<ImpliedRate> ImpliedRateOf(const DeclaredCluster& cluster, const ReferenceStep& step);

// A sentence if the step needs more than the nominal rate, or shows less than half of the rate that
// is declared as delivered; else "".
std::string RateConflict(const DeclaredCluster& cluster, const ReferenceStep& step);

}  // namespace sparfuse::harness
