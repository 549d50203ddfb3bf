// Describes the headers and the compiler in one line. Both sides of a plugin must agree on it.
#pragma once

#define SPARFUSE_TEXT_OF(value) #value
#define SPARFUSE_TEXT(macro) SPARFUSE_TEXT_OF(macro)

#if defined(__clang__)
#define SPARFUSE_COMPILER "Clang " SPARFUSE_TEXT(__clang_major__)
#else
#define SPARFUSE_COMPILER "GCC " SPARFUSE_TEXT(__GNUC__)
#endif

#if defined(_LIBCPP_VERSION)
#define SPARFUSE_LIBRARY "libc++ " SPARFUSE_TEXT(_LIBCPP_VERSION)
#elif defined(_GLIBCXX_DEBUG)
#define SPARFUSE_LIBRARY "libstdc++ with debug containers"
#else
#define SPARFUSE_LIBRARY "libstdc++ strings " SPARFUSE_TEXT(_GLIBCXX_USE_CXX11_ABI)
#endif

#if defined(__aarch64__)
#define SPARFUSE_PROCESSOR "aarch64"
#elif defined(__x86_64__)
#define SPARFUSE_PROCESSOR "x86_64"
#else
#define SPARFUSE_PROCESSOR "another processor"
#endif

// A text literal. SPARFUSE_HEADERS_HASH, from a generated header, is the hash of the installed
// headers.
#define SPARFUSE_ABI                                                                      \
  "headers " SPARFUSE_HEADERS_HASH ", " SPARFUSE_COMPILER                                 \
  ", ABI " SPARFUSE_TEXT(__GXX_ABI_VERSION) ", " SPARFUSE_LIBRARY ", C++ " SPARFUSE_TEXT( \
      __cplusplus) ", " SPARFUSE_PROCESSOR
