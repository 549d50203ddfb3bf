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
// part. A value is the one that `sparfuse table` shows for these trials: the geometric mean over
// blocks with its 95 % interval, or the arithmetic mean if a value is not above 0. "system"
// distinguishes clusters of like nodes ("HASH@ORIGIN", harness/store/origin.hpp). Blocks of two
// stores are two blocks; in bundles of version 1 they were one. It is JSON, because it is written,
// compared and printed in this form.
nlohmann::json TableOfTrials(std::vector<TrialRow> rows, int bundle_version);

// "" if two tables say the same, else the first difference: where, and both values. Numbers may
// differ by 1e-9, relative: another machine's logarithm rounds otherwise.
std::string FirstDifference(const nlohmann::json& stored, const nlohmann::json& computed);

}  // namespace sparfuse::harness
