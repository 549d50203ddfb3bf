// Solves for the inputs of a declared cluster that measured steps determine.
#pragma once

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {

// The cell whose step it is.
CellConfig CellOf(const DeclaredCluster& cluster, const ReferenceStep& step);

// What the model says of the step's part, with the cluster's inputs as they are.
double ModelledSeconds(const DeclaredCluster& cluster, const ReferenceStep& step);

// Sets the inputs marked so, starting at their declared values, to what brings the references
// nearest (least squares of the logarithms of modelled over measured), and each reference's
// modelled_seconds. Throws Error{kConfig} where there are no more references than inputs and one is
// still more than a quarter off: what then conflicts. Cost: simulates some hundred steps.
void CalibrateOnSteps(DeclaredCluster& cluster);

// The same of a drawn cluster, from where its inputs are; what cannot be met stays as near as it
// comes.
void RecalibrateOnSteps(DeclaredCluster& cluster);

}  // namespace sparfuse::harness
