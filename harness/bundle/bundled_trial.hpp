// Makes of a trial's directory the files that leave this machine.
#pragma once

#include <map>
#include <set>
#include <string>

#include "harness/records/trial.hpp"
#include "harness/store/scrubber.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// The version of the scrubbing with which a trial left. A trial that left with an earlier version
// keeps its bytes, and so does one that left with this version and came back.
inline constexpr int kRedaction = 3;

struct BundledTrial {
  Trial trial;
  std::map<std::string, std::string> files;  // content by name: trial.json, config.json, ...

  const std::string& id() const noexcept { return trial.trial_id; }
  // SHA-256 by name.
  std::map<std::string, std::string> Hashes() const;
};

// The trial at `place` in the store's folder of trials: its records, scrubbed, with hashes of the
// files that leave. stays: gets the names of the files that do not leave, and the facts that are
// kept in private.json. Throws Error{kData} if a file cannot be read or has a key that no record
// has.
BundledTrial BundleTrial(const Store& store, const std::string& place, const TextScrubber& scrubber,
                         std::set<std::string>& stays);
// As above, for files from any place, by name.
BundledTrial BundleFiles(std::map<std::string, std::string> files, const std::string& name,
                         const TextScrubber& scrubber);

// The keys of all records that leave, with the way of leaving ("trial.json: config.workers").
LeavingKeys KeysThatLeave();

// The text of a trial or an annotation in a bundle.
std::string WrittenJson(const nlohmann::json& value);

// An annotation, scrubbed unless it left before; `trial_id` is the id within bundles.
Annotation BundleAnnotation(Annotation annotation, const std::string& trial_id,
                            const TextScrubber& scrubber);

}  // namespace sparfuse::harness
