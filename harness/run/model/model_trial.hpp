// Runs a modelled trial: in the controller, without moving gradient data.
#pragma once

#include <filesystem>
#include <functional>

#include "harness/records/profile.hpp"
#include "harness/records/trial.hpp"

namespace sparfuse::harness {

// Simulates the cell and leaves steps.npy, spans.npy and trace.json in `directory`; returns the
// outcome (docs/results-format.md).
//
// `profiles` are outcomes of profile trials, each with its "config": of this workload, batch and
// threads, for one or more numbers of ranks at once. The cell's cluster says what is modelled:
// "this-machine" is all ranks on this machine, sharing its cores like the ranks of a live trial;
// "machines-like-this" is a machine like this one for every rank.
//
// drawn: gives the profiles of the cell's declared cluster in a draw of its inputs, from 1 to
// kDraws; the outcome's "draws" then has the seconds of each. Null for another cluster.
//
// Throws Error{kConfig} naming the missing part of the profiles.
Outcome RunModelledTrial(const TrialConfig& trial, const ProfileOutcomes& profiles,
                         const std::function<ProfileOutcomes(int draw)>& drawn,
                         const std::filesystem::path& directory);

}  // namespace sparfuse::harness
