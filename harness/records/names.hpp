// Names the values of enums in records.
#pragma once

#include <span>
#include <string>

namespace sparfuse::harness {

// The names of an enum's values, in their order. Each enum's record defines it.
template <class Enum>
std::span<const std::string> NamesOf();

template <class Enum>
const std::string& NameOf(Enum value) {
  return NamesOf<Enum>()[static_cast<std::size_t>(value)];
}

// The position of `name` in `names`. Throws Error{kData} if it is not one of them.
std::size_t PlaceOfName(const std::string& name, std::span<const std::string> names);

template <class Enum>
Enum ValueOf(const std::string& name) {
  return static_cast<Enum>(PlaceOfName(name, NamesOf<Enum>()));
}

}  // namespace sparfuse::harness
