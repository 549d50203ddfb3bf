// Writes an experiment with its results as JSON: all that figures and reports draw.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// Raised when programs that read spec.json must change.
inline constexpr int kSpecForm = 3;

// {form (kSpecForm), id, title, paper, file, calibration, not_run: [{what, reason}],
// preliminary_below, confidence, headlines, disturbed, judged (JudgedClaims), csv (RecordsCsv),
// provenance, parts: [{id, title, kind, mode, reference, blocks, defaults, axes, excluded: [{cell,
// reason}], left_out, cells (CellsJson), imported (ImportedJson), figures (CompleteFigure), claims,
// table (Table), prediction}]}, twins of predicted parts included as parts of their own. `results`
// and `parts` are in the same order; `folder` is the results folder that they come from.
nlohmann::json ExperimentSpec(const Experiment& experiment, const std::vector<Part>& parts,
                              const std::vector<PartResult>& results, const Catalog& catalog,
                              const std::filesystem::path& folder);

// Makes the result, claim and prediction tables of an experiment, in the order of its parts.
std::vector<Table> TablesOf(const std::vector<Part>& parts, const std::vector<PartResult>& results,
                            const Catalog& catalog);

}  // namespace sparfuse::harness
