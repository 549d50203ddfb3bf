// Fills a buffer of fixed size with sparsified tensors: SAFusion's first scheme (HPDC 2025, 3.1).
#pragma once

#include <memory>

#include "core/engine/engine.hpp"

namespace sparfuse {

// Each tensor is sparsified when it is ready and appended to the open buffer. A rank wants to close
// the buffer after the tensor that fills it (payload >= buffer_bytes) or after the last tensor of
// the layout. Ranks select different counts, so they want different ends. They agree over the
// control channel on the maximum of these ends, and the buffer is sent once this rank has all of
// its tensors. The time from this rank's wish to the launch is the wait that alignment (section
// 3.2) removes. The last buffer ends at the last tensor on every rank; its end is negotiated, too,
// so that all ranks count the same buffers.
extern const StrategyDescriptor kSafusionNaive;

}  // namespace sparfuse
