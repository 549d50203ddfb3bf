// Helps to write arrays past the caches: a plain store would first read its cache line, and would
// displace useful data.
#pragma once

#include <cstddef>

namespace sparfuse {

// Whether this processor has such stores, and an array of `n` floats is too large to stay in cache
// for its reader.
bool StreamingPays(std::size_t n);

// Completes a thread's streamed stores. Call it once per thread, before another thread learns that
// they are written.
void EndStreaming();

}  // namespace sparfuse
