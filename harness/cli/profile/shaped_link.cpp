#include "harness/cli/profile/shaped_link.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

using nlohmann::json;

LinkShape ParseLink(const std::string& text) {
  constexpr const char* kKeys[] = {"gbps", "alpha_us", "intra_node_gbps", "intra_node_us"};
  json link = json::object();
  const char* at = text.data();
  const char* end = text.data() + text.size();
  bool good = true;
  for (const char* key : kKeys) {
    double number = 0;
    const auto [stopped, error] = std::from_chars(at, end, number);
    good = error == std::errc() && (stopped == end || *stopped == ':');
    link[key] = number;
    if (!good || stopped == end) {
      at = stopped;
      break;
    }
    at = stopped + 1;
  }
  good =
      good && at == end && WhatIsWrong("link", link).empty() &&
      link.at("alpha_us") >= kMinEmulableAlphaMicroseconds &&
      link.value("intra_node_us", kMinEmulableAlphaMicroseconds) >= kMinEmulableAlphaMicroseconds;
  if (!good) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("--link {}: expected GBPS:ALPHA_US or GBPS:ALPHA_US:GBPS:ALPHA_US, the "
                    "latter two of links within nodes: {} Gbit/s and start-up times of {} "
                    "us, less than which sleeping cannot emulate; as in 1:100 or "
                    "1:100:10:100",
                    text, Text(kLinkGbps),
                    Text({kMinEmulableAlphaMicroseconds, kLinkAlphaMicroseconds.most})));
  }
  return *StoredLink(link);
}

}  // namespace sparfuse::harness
