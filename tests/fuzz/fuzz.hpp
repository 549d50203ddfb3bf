// Holds the common parts of the fuzz targets. If a target finds a fault, it throws, or ends by a
// signal or a sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "core/base/error.hpp"

namespace sparfuse::fuzz {

inline void Require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);  // a libFuzzer run ends here, with the input
}

inline std::string_view Text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `read` and returns whether it accepted its input. It may only throw an Error of one of
// `kinds` with a message.
template <class Read, class... Kinds>
bool Accepts(const Read& read, Kinds... kinds) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    Require(((error.kind() == kinds) || ...), "refused with an error of another kind");
    Require(!std::string_view(error.what()).empty(), "refused without a word");
    return false;
  }
}

}  // namespace sparfuse::fuzz
