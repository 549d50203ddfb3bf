// Writes arrays past the caches: a plain store would first read the line that it writes to, and
// would displace what is worth keeping.
#pragma once

#include <cstddef>

namespace sparfuse {

// Whether an array of `n` floats is too large for its reader to find it in cache, and this
// processor has such stores.
bool StreamingPays(std::size_t n);

// Once per thread, before another one is told that what it streamed is written.
void EndStreaming();

}  // namespace sparfuse
