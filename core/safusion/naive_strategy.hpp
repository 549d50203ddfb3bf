// Fills a buffer of fixed size with sparsified tensors: SAFusion's first scheme (HPDC 2025, 3.1).
#pragma once

#include <memory>

#include "core/engine/engine.hpp"

namespace sparfuse {

// Each tensor is sparsified when it is ready and appended to the open buffer. A rank wants to close
// the buffer after the tensor that fills it (payload >= buffer_bytes) or the last one of the
// layout. Ranks select different counts, so they want different ends; the buffer really ends at the
// maximum of the ranks' wishes, agreed on over the control channel, and is sent once this rank has
// all of it. The time from this rank's wish to the launch is the wait that alignment (section 3.2)
// removes. End of backward: the last buffer's wish is the last tensor on every rank, and is
// negotiated like any other, so that all ranks count the same buffers.
extern const StrategyDescriptor kSafusionNaive;

}  // namespace sparfuse
