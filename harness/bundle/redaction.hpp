// Makes of what trials recorded what may leave this machine: a list says which keys do, everything
// else stays.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "harness/store/users/private_names.hpp"

namespace sparfuse::harness {

// Raised with the lists, and with how what they name leaves: tests hold both together. What was
// redacted by earlier ones keeps its bytes.
inline constexpr int kRedaction = 2;

// What becomes of the value of a key.
//   number  numbers, true, false and null
//   data    numbers and short words, in lists and tables of any depth, without names of hosts and
//           users
//   option  data in which a single word of letters stays whatever it is: a user may be called as
//           an optimizer is, and configurations must be the same everywhere
//   words   a sentence about hardware or software: like data, and without the folders of relative
//           paths
//   citation  words in which addresses of the web stay, without what may name a person in them:
//           users, passwords, queries
//   hash    hexadecimal digits
//   place   a trial's id, or a name with slashes: no absolute path, no ".."
//   hosts   a list of host names: "host0", "host1", ... in the order in which they appear
// data, option and words lose the folders of absolute paths, and what looks like a token becomes
// "SECRET"; a value of another kind does not leave.
enum class LeavesAs { kNumber, kData, kOption, kWords, kCitation, kHash, kPlace, kHosts };

// The lists, as JSON: a table of keys; a list of one form, of its elements; the name of a
// LeavesAs; "*" stands for all keys of a table that are words.
const nlohmann::json& TrialForm();       // trial.json
const nlohmann::json& ConfigForm();      // config.json
const nlohmann::json& OutcomeForm();     // outcome.json
const nlohmann::json& AnnotationForm();  // annotations/*.json

// What was met by one Redact or many.
struct Redactions {
  std::map<std::string, std::string> leaves;  // keys ("trial.json: config.density") and how
  std::set<std::string> stays;                // keys that are in no list, or of another kind
};

// `value` as `form` lets it leave. Pure; Redact of its own result with no names is that result.
// `where` begins the keys of `met`.
nlohmann::json Redact(const nlohmann::json& value, const nlohmann::json& form,
                      const PrivateNames& names, const std::string& where, Redactions& met);

}  // namespace sparfuse::harness
