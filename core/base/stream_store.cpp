#include "core/base/stream_store.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparfuse {

#if defined(__x86_64__)

namespace {
constexpr std::size_t kStreamElements = 4 * 1024 * 1024;
}

bool StreamingPays(std::size_t n) { return n >= kStreamElements; }

void EndStreaming() { _mm_sfence(); }

#else

bool StreamingPays(std::size_t /*n*/) { return false; }

void EndStreaming() {}

#endif

}  // namespace sparfuse
