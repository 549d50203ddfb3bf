// Writes arrays past the caches: a plain store would first read the line that it writes to, and
// would displace what is worth keeping.
#pragma once

#include <cstddef>

namespace sparfuse {

// Whether an array of `n` floats is too large for its reader to find it in cache, and this
// processor has such stores.
bool StreamingPays(std::size_t n);

// to[i] = from[i] * scale, past the caches but for lines that are not wholly its own. Returns
// whether all of them are finite. Once per thread, before another one is told that they are
// written: EndStreaming. Needs StreamingPays.
bool StreamScaled(const float* from, float scale, std::size_t n, float* to);
void EndStreaming();

}  // namespace sparfuse
