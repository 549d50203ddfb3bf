// Makes the input of a simulation from a cell and the profiles of its cluster, and runs modelled
// trials: in the controller, without moving gradient data.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "harness/records/profile.hpp"
#include "harness/records/trial.hpp"

namespace sparfuse::harness {

// Draws of a declared cluster's inputs that bands are made of.
inline constexpr int kDraws = 32;

// The layout of a cell that is modelled repeatedly with profiles that differ in times alone. The
// first call sets it, later calls share it.
using KnownLayout = std::optional<GradientLayout>;

// profiles: outcomes of profile trials, as for RunModelledTrial. Throws Error{kConfig} naming their
// missing part. Plans the cell's units; with some planners that takes as long as simulating a step.
ModelConfig ConfigureModel(const TrialConfig& trial, const ProfileOutcomes& profiles,
                           KnownLayout* layout = nullptr);

// The simulated steps of a cell's trial. If steps vary, these are all steps after the dense ones;
// else one step, which all are like. With local steps they are whole windows after the first, which
// differs from the others. all: if steps vary, simulate as many as the trial has; else a usual
// step, or one window. Without dates (trigger = "idle") as many as the trial has; throws
// Error{kConfig} if none of them receives.
std::vector<ModelStep> SimulateCell(const CellConfig& config, const ModelConfig& model, bool all,
                                    int traced_ranks, Recorded recorded = Recorded::kAll);

// The first step, from 0, that is not dense by the method's options, or by its collective's.
int FirstModelledStep(const CellConfig& config, const ModelConfig& model);

// The time of the slowest rank: a step, or the mean step of a window.
double StepSeconds(std::span<const ModelStep> window);
// As above, of a usual step or of the first window.
double UsualStepSeconds(const CellConfig& config, const ModelConfig& model);

// Bounds of a step, or of the mean step of a window, shown next to a prediction: the time in which
// the first rank computes, selects, encodes and decodes, and the time in which its exchanges occupy
// links.
struct Formulas {
  double local_seconds = 0, wire_seconds = 0;
  double longest() const { return std::max(local_seconds, wire_seconds); }  // all of one is hidden
  double sum() const { return local_seconds + wire_seconds; }               // nothing is
};
Formulas FormulasOf(std::span<const ModelStep> window);

// The times of a step with one set of profiles.
struct StepModel {
  double seconds = 0;          // of the slowest rank
  double exposed_seconds = 0;  // communication, on the first rank
  double compute_seconds = 0;  // forward, backward and update, on the first rank
  double utilisation = 0;      // their share of its step
  // Sent by the first rank, in the first simulated step or the mean one of a window; 0 if only
  // times are recorded.
  double sent_bytes = 0;
  Formulas formulas = {};  // of the first simulated step, or window
};

// The values of the cell's trial: the medians of the steps that it simulates.
StepModel ModelSteps(const TrialConfig& trial, const ProfileOutcomes& profiles,
                     Recorded recorded = Recorded::kAll, KnownLayout* layout = nullptr);
// The times of a usual step, from which bands are made. It is planned with these profiles,
// because the owner of such a cluster measures it before planning.
StepModel ModelUsualStep(const TrialConfig& trial, const ProfileOutcomes& profiles,
                         KnownLayout* layout = nullptr);

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
