// Puts together the outcome of a launched trial from its directory and its launcher's end.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "harness/run/launcher.hpp"

namespace sparfuse::harness {

// {"status", "failure", "metrics", "checks", "software", "machine", "layout", "sampling",
// "series"}, the trial's part of a trial.json. An invalid trial has checks and no metrics:
// correctness comes before speed.
nlohmann::json CollectOutcome(const std::filesystem::path& directory, const LaunchResult& end,
                              double timeout_seconds);

// The same for an outcome that is already at hand (a modelled trial), and for one that threw.
nlohmann::json JudgeOutcome(const nlohmann::json& outcome);
nlohmann::json FailedOutcome(const Error& error);

}  // namespace sparfuse::harness
