// Tells under which sanitizer a test runs.
#pragma once

namespace sparfuse::testing {

// Sanitizers make tests ten times slower; races and stray accesses show in smaller shapes as well.
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
