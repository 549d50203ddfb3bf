// Makes of a trial's directory the files that leave this machine, under an id that no other store's
// trial has.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/bundle/redaction.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

struct BundledTrial {
  std::string id;  // within bundles
  nlohmann::json trial;
  std::map<std::string, std::string> files;  // content by name: trial.json, config.json, ...
  PrivateNames names;  // of its annotations: those that were given, and of the hosts that ran it

  // SHA-256 by name.
  std::map<std::string, std::string> Hashes() const;
};

// Those that may stand in a store's trials: of this machine, of who used the store, and of the
// hosts of `rows`, its trials.
PrivateNames NamesOf(const Store& store, const std::vector<TrialRow>& rows);

// The trial at `place` beneath the store's trials, redacted. One that was redacted before, or that
// has an origin, keeps its id; an older one gets the origin that its content gives it, and its own
// id as `original_id`. Its hashes are those of what leaves. Throws Error{kData} where a file cannot
// be read.
BundledTrial BundleTrial(const Store& store, const std::string& place, const PrivateNames& names,
                         Redactions& met);
// The same of files that lie anywhere, by name.
BundledTrial BundleFiles(std::map<std::string, std::string> files, const std::string& name,
                         const PrivateNames& names, Redactions& met);

// "exp/part/method-...-b0-1" and "0a1b2c3d" give "exp/part/method-...-0a1b2c3d-b0-1".
std::string WithOrigin(const std::string& id, const std::string& origin);

// The form in which trials and annotations are written.
std::string WrittenJson(const nlohmann::json& value);

// Whether what leaves of it left before, by the lists of this version or an earlier one: then it
// keeps its bytes.
bool IsRedacted(const nlohmann::json& value);

// An annotation, redacted; `trial_id` is the id within bundles.
nlohmann::json BundleAnnotation(nlohmann::json annotation, const std::string& trial_id,
                                const PrivateNames& names, Redactions& met);

}  // namespace sparfuse::harness
