// Launches the measurement of a fingerprint: ranks as a trial's, and no trial.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/records/cell_config.hpp"
#include "harness/run/run_options.hpp"
#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

// Raised where what a fingerprint measures changes: those of unlike revisions are not compared.
inline constexpr int kFingerprintRevision = 1;

// Of so many ranks, all of a node unless said otherwise.
CellConfig FingerprintConfig(int ranks);

// The outcome in the form of results/systems/NAME.fingerprint.json, as it is in memory; null where
// it was interrupted. It has "fingerprint" (harness/systems/fingerprint.hpp), and "profile" with
// the links that a model computes with.
//
// options: root, worker and launcher. results: the folder that the lock is of; what the launch
// needs lies in fingerprints/.taking while it runs. tick: hears seconds and what is measured, a few
// times a second. Throws what the ranks failed with, and Error{kConfig} where ranks ended up on
// other hosts than they should.
nlohmann::json TakeFingerprint(const StoreLock& lock, const CellConfig& config,
                               const RunOptions& options, const std::filesystem::path& results,
                               const std::atomic<bool>& interrupted,
                               const std::function<void(double, const std::string&)>& tick);

}  // namespace sparfuse::harness
