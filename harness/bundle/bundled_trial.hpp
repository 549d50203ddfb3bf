// Makes of a trial's directory the files that leave this machine.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/store/scrubber.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// By which scrubbing a trial left. What left by an earlier one keeps its bytes, as does what left
// by this one and came back.
inline constexpr int kRedaction = 3;

struct BundledTrial {
  Trial trial;
  std::map<std::string, std::string> files;  // content by name: trial.json, config.json, ...

  const std::string& id() const noexcept { return trial.trial_id; }
  // SHA-256 by name.
  std::map<std::string, std::string> Hashes() const;
};

// The trial at `place` beneath the store's trials: its records, scrubbed, with hashes of what
// leaves. Throws Error{kData} where a file cannot be read or has a key that no record has. stays:
// gets the names of files that do not leave, and of what is kept in private.json.
BundledTrial BundleTrial(const Store& store, const std::string& place, const TextScrubber& scrubber,
                         std::set<std::string>& stays);
// The same of files that lie anywhere, by name.
BundledTrial BundleFiles(std::map<std::string, std::string> files, const std::string& name,
                         const TextScrubber& scrubber);

// What leaves of all records, by key ("trial.json: config.workers").
LeavingKeys KeysThatLeave();

// The form in which trials and annotations are written.
std::string WrittenJson(const nlohmann::json& value);

// An annotation, scrubbed unless it left before; `trial_id` is the id within bundles.
Annotation BundleAnnotation(Annotation annotation, const std::string& trial_id,
                            const TextScrubber& scrubber);

}  // namespace sparfuse::harness
