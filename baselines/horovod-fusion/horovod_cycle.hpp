// Fuses tensors like Horovod: a background cycle fuses all tensors that are ready on every rank.
#pragma once

#include "core/engine/engine.hpp"

namespace sparfuse::baselines {

// In every cycle the ranks agree on the tensors that are ready on all ranks, by an all-reduce of
// one integer on the control channel. They then all-reduce these tensors, fused up to the threshold
// (arXiv 1802.05799, section 4). Horovod 0.28's defaults: 1 ms (HOROVOD_CYCLE_TIME), 64 MiB
// documented (HOROVOD_FUSION_THRESHOLD).
extern const StrategyDescriptor kHorovodCycle;

}  // namespace sparfuse::baselines
