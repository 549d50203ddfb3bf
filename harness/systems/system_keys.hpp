// Lists the keys of a system's file.
#pragma once

#include <optional>
#include <span>

#include "harness/files/range.hpp"

namespace sparfuse::harness::system_keys {

inline constexpr Range kCount = {1, 1'000'000};
inline constexpr Range kMemoryGib = {0, 1e9};
inline constexpr Range kGbps = {1e-9, 1e9};

enum class Origin {
  kAsked,  // a person writes it
  kDetected
};

// All of them must be there.
struct Key {
  const char* name;
  Origin origin;
  std::optional<Range> range;  // of a number; none: a string
  bool integer = false;
  const char* expected = "";  // of one that is asked
};

inline constexpr Key kSystemKeys[] = {
    {"title", Origin::kAsked, {}, false, "what people call it and where it is"}};
inline constexpr Key kNetworkKeys[] = {
    {"kind",
     Origin::kAsked,
     {},
     false,
     "what connects nodes (\"InfiniBand\", \"RoCE\", \"Ethernet\"); of one node \"none\" and no "
     "more"},
    {"gbps", Origin::kAsked, kGbps, false,
     "what a node sends to another at best, each way, in 10^9 bit/s"},
    {"topology",
     Origin::kAsked,
     {},
     false,
     "what is between two nodes (\"one switch\", \"fat tree, 2:1\")"}};
inline constexpr Key kNodeKeys[] = {
    {"count", Origin::kAsked, kCount, true, "how many nodes are exactly as this one"},
    {"processor", Origin::kDetected, {}},
    {"cores", Origin::kDetected, kCount, true},
    {"memory_gib", Origin::kDetected, kMemoryGib, true}};
inline constexpr Key kCardKeys[] = {{"model", Origin::kDetected, {}},
                                    {"memory_gib", Origin::kDetected, kMemoryGib, true},
                                    {"count", Origin::kDetected, kCount, true}};
inline constexpr Key kCardLinkKeys[] = {{"kind", Origin::kDetected, {}},
                                        {"pairs", Origin::kDetected, kCount, true}};
inline constexpr Key kInterfaceKeys[] = {{"name", Origin::kDetected, {}},
                                         {"kind", Origin::kDetected, {}},
                                         {"gbps", Origin::kDetected, kGbps}};

// Of a system of one node: kNetworkKeys' first.
inline std::span<const Key> NoNetworkKeys() { return std::span(kNetworkKeys).first(1); }

struct Entries {
  const char* name;  // of the array of tables within a node
  std::span<const Key> keys;
};
inline constexpr Entries kEntries[] = {
    {"card", kCardKeys}, {"card_link", kCardLinkKeys}, {"interface", kInterfaceKeys}};

}  // namespace sparfuse::harness::system_keys
