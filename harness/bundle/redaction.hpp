// Makes of what trials recorded what may leave this machine: a list says which keys do, everything
// else stays.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// Raised with the lists: a trial that was redacted by another one compares as another trial.
inline constexpr int kRedaction = 1;

// What becomes of the value of a key.
//   number  numbers, true, false and null
//   data    numbers and short words, in lists and tables of any depth
//   words   a sentence about hardware or software: without names of hosts and users and without the
//           folders of relative paths, besides
//   hash    hexadecimal digits
//   place   a trial's id, or a name with slashes: no absolute path, no ".."
//   hosts   a list of host names: "host0", "host1", ... in the order in which they appear
// data and words lose the folders of absolute paths, and what looks like a token becomes "SECRET";
// a value of another kind does not leave.
enum class LeavesAs { kNumber, kData, kWords, kHash, kPlace, kHosts };

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

// Names of hosts and users that may stand in words; each is replaced where it is a whole word.
struct PrivateNames {
  std::set<std::string> hosts, users;

  // Of this machine and who runs this.
  static PrivateNames OfThisMachine();
};

// `value` as `form` lets it leave. Pure; Redact of its own result with no names is that result.
// `where` begins the keys of `met`.
nlohmann::json Redact(const nlohmann::json& value, const nlohmann::json& form,
                      const PrivateNames& names, const std::string& where, Redactions& met);

}  // namespace sparfuse::harness
