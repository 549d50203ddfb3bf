// Makes PowerSGD a method: a collective that sends two thin factors of each matrix instead of what
// has accumulated of it, each summed by a dense all-reduce.
//
// Source:      T. Vogels, S. P. Karimireddy & M. Jaggi, PowerSGD, NeurIPS 2019, algorithms 1 and 2.
// Deviations:  in the descriptor.
//
// For every unit of a plan, of what its tensors have accumulated (x = gradient + residual):
//
//   P = x Q of each matrix, side by side with all of the tensors that are no matrices
//   all-reduce of that; P to the mean, its columns orthonormal
//   Q = x' P of each matrix
//   all-reduce of that; Q to the mean
//   applied: P Q', the same on all ranks; x - P Q' stays
//
// Both all-reduces are rings, which give all ranks equal bits. What is computed on factors runs
// beside the communication thread.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// Options: `rank`, columns of the factors; `seed` of the first Q.
CollectiveDescriptor PowerSgdFactors();

}  // namespace sparfuse::baselines
