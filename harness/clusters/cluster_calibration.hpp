// Solves for the inputs of a declared cluster that measured steps determine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {

// The cell whose step it is.
CellConfig CellOf(const DeclaredCluster& cluster, const ReferenceStep& step);

// What the model says of the step's part, or of the ratio, with the cluster's inputs as they are.
double Modelled(const DeclaredCluster& cluster, const ReferenceStep& step);

// Sets the inputs marked so to what brings the references nearest (least squares of the logarithms
// of modelled over measured), and each reference's `modelled`. Begins at their declared values, and
// where that does not meet all of them, at the nearest of a grid about these as well. An input that
// stays at an end of what it may be, or on which no reference depends, gets a remark. Throws
// Error{kConfig} where there are no more references than inputs and one is still more than a
// quarter off: what then conflicts. Cost: simulates some hundred steps, four times as many where
// the first beginning does not do.
void CalibrateOnSteps(DeclaredCluster& cluster);

// slopes[i][r]: of the modelled reference r over calibrated input i, both as logarithms, in their
// orders.
using CalibrationSlopes = std::vector<std::vector<double>>;

// Where the cluster's inputs are.
CalibrationSlopes SlopesOf(DeclaredCluster cluster);

// CalibrateOnSteps of a drawn cluster with calibrated inputs, from where its inputs are; what
// cannot be met stays as near as it comes. `near`: the slopes of the cluster that it is drawn from,
// which it begins with.
void RecalibrateOnSteps(DeclaredCluster& cluster, const CalibrationSlopes& near);

// At what rate bytes left a node, each way, 10^9 bit/s. `least`: no fewer bytes than any all-reduce
// sends, over the longest that they can have taken. `most`: those of a ring over the shortest, what
// was exposed alone.
struct RateBounds {
  double least_bytes = 0, most_bytes = 0;  // 2 (N - 1) / N of the gradients, and 2 (P - 1) / P
  double least = 0, most = 0;              // most is infinite where nothing is exposed
};

// Of an all-reduce of the workload's gradients in float32. Preconditions: ranks >= nodes >= 1,
// longest_seconds > 0.
RateBounds RateBoundsOf(std::string_view workload, int ranks, int nodes, double exposed_seconds,
                        double longest_seconds);

// The longest of a reference is all of backward and what the step exposed.
struct ImpliedRate : RateBounds {
  double nominal = 0;    // inter_node_gbps of all cards, or the reference's link
  double delivered = 0;  // what efficiency, host and links within a node leave of it
};

// Of a reference on several nodes whose method sends dense gradients as they are, and whose time is
// of its step or of what is exposed; else nothing.
std::optional<ImpliedRate> ImpliedRateOf(const DeclaredCluster& cluster, const ReferenceStep& step);

// A sentence where the step needs more than the nominal rate, or shows less than half of what is
// declared as delivered; else "".
std::string RateConflict(const DeclaredCluster& cluster, const ReferenceStep& step);

}  // namespace sparfuse::harness
