// Chooses the card that a rank computes on.
#pragma once

#include "core/device/device.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// The number of this process among those of its host, as mpirun, srun or Flux tell it; `rank` where
// none does.
int LocalRank(int rank);

// Where the rank of this number on its host computes: the host itself, or the card of that number
// modulo the cards that this process sees, which need not be those of other ranks: whether two
// ranks have one card is for NCCL's set-up to see (core/transport/nccl/nccl.hpp). Throws
// Error{kUnsupported}, "this machine has no CUDA device: ...", saying why.
//
// A worker of tests that is linked with the emulated device takes that in the host's place, for all
// that is done with gradients; its trials' machine says so under "cards".
Device ChooseDevice(Place place, int local_rank);

}  // namespace sparfuse::harness
