#include "core/base/outside_parts.hpp"

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"

namespace sparfuse {

OutsideName ParseOutsideName(std::string_view kind, std::string_view name) {
  const std::string_view rest = name.substr(std::min(name.size(), kOutsidePrefix.size()));
  const std::size_t colon = rest.rfind(':');
  const std::size_t at = rest.rfind('@');
  OutsideName parsed;
  if (colon != std::string_view::npos) {
    parsed.file = rest.substr(0, colon);
    parsed.class_name = rest.substr(colon + 1);
  } else if (at != std::string_view::npos) {
    parsed.class_name = rest.substr(0, at);
    parsed.hash = rest.substr(at + 1);
  }
  const auto in_identifier = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  if (!IsOutsidePart(name) || parsed.class_name.empty() ||
      (parsed.file.empty() && parsed.hash.empty()) ||
      !std::ranges::all_of(parsed.class_name, in_identifier)) {
    SPARFUSE_THROW(kConfig, std::string(kind) + " \"" + std::string(name) +
                                "\": expected \"python:FILE.py:ClassName\"");
  }
  return parsed;
}

}  // namespace sparfuse
