// Runs a modelled trial: in the controller, without moving gradients.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace sparfuse::harness {

// Simulates the cell and leaves steps.npy, spans.npy and trace.json in `directory`; returns the
// outcome (docs/results-format.md).
//
// `profiles` holds outcomes of profile trials, each with its "config": of this workload, batch and
// threads, for one or more numbers of ranks at once. config.cluster says what is modelled:
// "this-machine": all ranks on this machine, as a live trial runs them (they share its cores);
// "machines-like-this": a machine like this one for every rank.
//
// Throws Error{kConfig} naming what the profiles lack.
nlohmann::json RunModelledTrial(const nlohmann::json& config, const nlohmann::json& profiles,
                                const std::filesystem::path& directory);

}  // namespace sparfuse::harness
