// Runs a modelled trial: in the controller, without moving gradient data.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/catalog/cell_config.hpp"

namespace sparfuse::harness {

// Simulates the cell and leaves steps.npy, spans.npy and trace.json in `directory`; returns the
// outcome (docs/results-format.md).
//
// `profiles` are outcomes of profile trials, each with its "config": of this workload, batch and
// threads, for one or more numbers of ranks at once. The cell's cluster says what is modelled:
// "this-machine" is all ranks on this machine, as a live trial runs them (they share its cores);
// "machines-like-this" is a machine like this one for every rank.
//
// Throws Error{kConfig} naming what the profiles lack.
nlohmann::json RunModelledTrial(const TrialConfig& trial, const nlohmann::json& profiles,
                                const std::filesystem::path& directory);

}  // namespace sparfuse::harness
