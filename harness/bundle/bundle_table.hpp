// Makes the table of a bundle from its trials alone: no experiment file, no catalog, no machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// [{"experiment", "part", "system", "hardware", "config", "revisions", "kind", "mode", "method",
// "workload", "workers", "trials": [ids], "set_aside": {id: why}, "metrics": {name: {"value",
// "low", "high", "n", "unit"}}}]: a row for every configuration, system and set of revisions of a
// part. A value is what `sparfuse table` shows for these trials: over blocks the geometric mean
// with its 95 % interval, the arithmetic one where a value is not above 0. "system" tells clusters
// of like nodes apart ("HASH@ORIGIN", harness/store/origin.hpp), and blocks of two stores are two;
// in bundles of version 1 both were one. JSON, since it is written, compared and printed as it is.
nlohmann::json TableOfTrials(std::vector<TrialRow> rows, int bundle_version);

// "" where two tables say the same, else the first difference: where, and both values. Numbers may
// differ by 1e-9, relative: another machine's logarithm rounds otherwise.
std::string FirstDifference(const nlohmann::json& stored, const nlohmann::json& computed);

}  // namespace sparfuse::harness
