// Tells profiles that were measured from those that were written or changed by hand.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sparfuse::harness {

inline constexpr const char* kMeasured = "measured";
inline constexpr const char* kByHand = "declared (by hand)";

// What an outcome's numbers are: "measured", "imported", "declared", or kByHand where the file says
// nothing that can be believed. Of outcomes in memory: those that are measured have no key "kind",
// so that it is no part of what identifies them.
std::string KindOf(const nlohmann::json& outcome);
// Of an array of outcomes: its one kind, or "measured, in part declared (by hand)".
std::string KindOfAll(const nlohmann::json& outcomes);

// An outcome in memory as a file has it: one that is measured gets "kind" and a "digest", the
// SHA-256 of its canonical form with the kind. It guards against mistakes: whoever wants to deceive
// can compute one.
nlohmann::json WithKind(nlohmann::json outcome);

// An outcome of a file as it is in memory. Throws Error{kData} naming file (`name`) and outcome
// where the content does not have its digest, or for a kind that is none.
nlohmann::json CheckedKind(nlohmann::json outcome, const std::string& name);

// As CheckedKind; but an outcome from before files had digests, which has neither "kind" nor
// "digest", is taken as measured. Throws Error{kData} naming what it lacks of all that
// `sparfuse profile` writes: one that was made by hand has hardly all of it.
nlohmann::json Vouched(nlohmann::json outcome, const std::string& name);

}  // namespace sparfuse::harness
