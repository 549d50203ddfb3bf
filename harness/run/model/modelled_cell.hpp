// Makes the input of a simulation from a cell and the profiles of its cluster.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

// Draws of a declared cluster's inputs that bands are made of.
inline constexpr int kDraws = 32;

// The layout of a cell that is modelled again and again, with profiles that differ in times alone:
// the first question sets it, those that follow share it.
using KnownLayout = std::optional<GradientLayout>;

// profiles: outcomes of profile trials, as RunModelledTrial takes them. Throws Error{kConfig}
// naming what they lack. Plans the cell's units: with some planners as long as a step is simulated.
ModelConfig ConfigureModel(const TrialConfig& trial, const ProfileOutcomes& profiles,
                           KnownLayout* layout = nullptr);

// The steps of a cell's trial that are simulated: those after the dense ones where they vary, else
// one, which all are like. With local steps whole windows behind the first one, which is not like
// the others. all: of what varies as many as the trial has; else one step, or window. Without
// dates (trigger = "idle") as many as the trial has; throws Error{kConfig} if none receives.
std::vector<ModelStep> SimulateCell(const CellConfig& config, const ModelConfig& model, bool all,
                                    int traced_ranks, Recorded recorded = Recorded::kAll);

// Of the slowest rank: a step, or the mean step of a window.
double StepSeconds(std::span<const ModelStep> window);
// Of the first step or window.
double FirstStepSeconds(const CellConfig& config, const ModelConfig& model);

// What a step, or the mean step of a window, takes where nothing but its bounds is known, to be
// shown beside a prediction: what the first rank computes, selects, encodes and decodes within it,
// and what its exchanges occupy links.
struct Formulas {
  double local_seconds = 0, wire_seconds = 0;
  double longest() const { return std::max(local_seconds, wire_seconds); }  // all of one is hidden
  double sum() const { return local_seconds + wire_seconds; }               // nothing is
};
Formulas FormulasOf(std::span<const ModelStep> window);

// What a step takes with one set of profiles.
struct StepModel {
  double seconds = 0;          // of the slowest rank
  double exposed_seconds = 0;  // communication, on the first rank
  double compute_seconds = 0;  // forward, backward and update, on the first rank
  double utilisation = 0;      // what these are of its step
  // By the first rank, in the first step or the mean one of a window; 0 where times alone are
  // recorded.
  double sent_bytes = 0;
  Formulas formulas = {};  // of its first step, or window
};

// What the cell's trial says: the medians of the steps that it simulates.
StepModel ModelSteps(const TrialConfig& trial, const ProfileOutcomes& profiles,
                     Recorded recorded = Recorded::kAll, KnownLayout* layout = nullptr);
// Times of the first of them, which bands are made of. Planned with these profiles: whoever has
// that cluster measures it before he plans.
StepModel ModelFirstStep(const TrialConfig& trial, const ProfileOutcomes& profiles,
                         KnownLayout* layout = nullptr);

}  // namespace sparfuse::harness
