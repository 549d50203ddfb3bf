#include "core/base/outside_parts.hpp"

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"

namespace sparfuse {

OutsideName ParseOutsideName(std::string_view kind, std::string_view name) {
  OutsideName parsed;
  parsed.prefix = IsLibraryPart(name) ? kLibraryPrefix : kPythonPrefix;
  const std::string_view rest = name.substr(std::min(name.size(), parsed.prefix.size()));
  const std::size_t colon = rest.rfind(':');
  const std::size_t at = rest.rfind('@');
  if (colon != std::string_view::npos) {
    parsed.file = rest.substr(0, colon);
    parsed.part = rest.substr(colon + 1);
  } else if (at != std::string_view::npos) {
    parsed.part = rest.substr(0, at);
    parsed.hash = rest.substr(at + 1);
  }
  const bool library = IsLibraryPart(name);
  const auto in_name = [&](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || (library && c == '-');
  };
  if (!IsOutsidePart(name) || parsed.part.empty() || (parsed.file.empty() && parsed.hash.empty()) ||
      !std::ranges::all_of(parsed.part, in_name)) {
    SPARFUSE_THROW(kConfig, kind, " \"", name, "\": expected \"",
                   (library ? "library:FILE.so:NAME" : "python:FILE.py:ClassName"), "\"");
  }
  return parsed;
}

}  // namespace sparfuse
