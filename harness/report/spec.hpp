// An experiment as JSON: what the figures and the report are told, and what --json prints.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"
#include "harness/report/table.hpp"

namespace sparfuse::harness {

// {id, title, paper, file, calibration, not_run: [{what, reason}], parts: [{id, title, kind, mode,
// reference, blocks, defaults, axes, excluded: [{cell, reason}], cells: [config with config_hash],
// figures, claims}]}, twins of predicted parts included as parts of their own. `results` and
// `parts` are in the same order.
nlohmann::json ExperimentSpec(const Experiment& experiment, const std::vector<Part>& parts,
                              const std::vector<PartResult>& results);

// Result, claim and prediction tables of an experiment, in the order of its parts.
std::vector<Table> TablesOf(const std::vector<Part>& parts, const std::vector<PartResult>& results,
                            const Catalog& catalog);

}  // namespace sparfuse::harness
