// Tells which sanitizer a test runs under.
#pragma once

namespace sparfuse::testing {

// Sanitizers make tests ten times slower; smaller shapes also show races and stray accesses.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace sparfuse::testing
