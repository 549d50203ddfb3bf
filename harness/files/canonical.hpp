// Writes canonical JSON and hashes it: the identity of configurations, systems and profiles.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// Keys sorted bytewise, no white space, numbers in the shortest form that reads back equal; 1.0 and
// 1 are the same number and print alike. Throws Error{kInternal} for a number that is not finite.
std::string CanonicalJson(const nlohmann::json& value);

// Lower-case hexadecimal SHA-256.
std::string Sha256Hex(std::string_view bytes);
std::string ContentHash(const nlohmann::json& value);
// The first twelve digits of Sha256Hex, for names, and for lists that people compare.
std::string ShortHash(std::string_view bytes);

}  // namespace sparfuse::harness
