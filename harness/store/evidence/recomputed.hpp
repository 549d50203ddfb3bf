// Computes the numbers of a trial again, from the series in its directory. Reads its statements in
// the form in which evidence is compared with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/records/trial.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// The measured steps, from which a trial's metrics come.
struct StepRange {
  std::int64_t first = 0, last = 0;
  std::size_t measured = 0, ranks = 0;
  bool operator==(const StepRange&) const = default;
};

struct Recomputed {
  std::optional<StepRange> steps;  // none without steps.npy, or if the trial has no numbers of ours
  std::string differs;             // "" or the first number that the series do not give; a sentence
  bool evaluated = false;          // whether its evaluations were held to its steps and metrics
  // Statements of the trial that nothing else confirms, with the reason, by name: metrics that no
  // series gives, "draws", "layout", "config.batch_per_worker".
  std::map<std::string, std::string> unchecked;
  // Columns of series with rows that no metric of the trial is made of: "steps.npy: summed".
  std::vector<std::string> columns_of_nothing;
};

// Whether the trial has numbers that its series should give: it ended well, and is not of others.
bool HasNumbers(const Trial& trial);

// Computes times, counts, rounds and results of evaluations. Numbers may differ by 1e-9, relative.
// Without a layout, the density is checked against the column of steps.npy. A listed series must
// not have impossible numbers, and spans must fit their steps.
//
//   files  content by name; files that are not series of the trial are ignored.
Recomputed RecomputeMetrics(const Trial& trial, const std::map<std::string, std::string>& files);

// As above, for a stored trial, whose series are read. A series that cannot be read counts as
// missing.
Recomputed RecomputeMetrics(const Trial& trial, const std::filesystem::path& directory);

// Whether two numbers are one: logarithms of other machines round otherwise.
bool AreEqual(double a, double b);

// Configurations are JSON here: a trial of an earlier bundle lacks keys, and a forged one has any.

// Of a configuration, or a table of it; null, 0 and "" where it has no such member, number or text.
nlohmann::json MemberIn(const nlohmann::json& config, const char* key);
double NumberOf(const nlohmann::json& config, const char* key);
std::string TextOf(const nlohmann::json& config, const char* key);

// Whether ranks ran: of a model nothing was measured.
bool IsLive(const Trial& trial);
bool IsProfile(const Trial& trial);

// Null for a workload that the catalogue does not have.
const workloads::WorkloadDescriptor* WorkloadOf(const nlohmann::json& config);

// "NAME: trial.json has A, its steps give B".
std::string SaidAndGiven(const std::string& name, const nlohmann::json& stored,
                         const nlohmann::json& given, const char* by = "its steps give");

}  // namespace sparfuse::harness
