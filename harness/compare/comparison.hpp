// Compares the results of machines for the same experiments: first ratios within each block of a
// machine, then these ratios between machines. Absolute values are shown and never judged.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/compare/differences.hpp"
#include "harness/compare/side.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

struct CompareRequest {
  std::vector<std::string> experiments;  // ids; empty: all that two sides have
  std::string metric;                    // "": throughput, and of convergence trials final_metric
  std::string reference = "dense";       // the method that ratios are to
  double within = kSameWithin;
  double control = kControlMoved;  // a reference that moves by more flags the block's ratios
  bool lone = false;               // also cells that the first side alone has
  DisturbedTrials disturbed = DisturbedTrials::kApart;
  std::size_t least_sides = 2;  // that have a cell; with 1, cells of one side alone, too
};

// The values of one side for a cell.
struct SideValue {
  std::vector<double> ratios;  // to the reference, by block
  // The blocks in which the reference moved by more than its limit, and by how much.
  std::map<int, double> moved;
  std::optional<Interval> ratio, absolute;
  std::string lacks;  // "" or why there is no ratio
};

// A side against the first one.
struct SideVerdict {
  std::string why_not;  // "" or why they cannot be compared
  Contrast contrast;    // of the first's ratio over this side's, if they are comparable
};

// The model's prediction next to the measured ratios. None of it is measured unless it says so, and
// it makes no verdict.

// The first side's ratio, carried over to another side by that side's profile.
struct Transported {
  std::string lacks;  // "" or why there is none: the missing times, and the command that measures
                      // them
  std::optional<Interval> model_first, model_second;  // the model's own ratios, with its bands
  std::optional<Interval> ratio;     // the first's, measured, times the second model over the first
  std::optional<Interval> residual;  // the other side's measurement over that
};

// A side's ratio with the plan of another side.
struct ForcedPlan {
  std::string lacks;                 // "" or why that plan cannot be forced on this side
  bool own = false;                  // it is this side's own, or this is the side that gives it
  std::string units;                 // the plan, "3,40"
  std::string config_hash;           // of the cell that has it given
  std::string lacks_modelled;        // "" or why the model has no prediction
  std::optional<Interval> modelled;  // the side's own ratio times the plan's effect by the model
  std::optional<Interval> measured;  // the ratio of trials that had the plan given
  std::optional<Interval> gain;      // the effect of the plan on this side's ratio; 1: none
  std::optional<Interval> rest;      // the giver's ratio over this side's with that plan
  bool gain_measured = false, rest_measured = false;  // else modelled
};

struct ComparedCell {
  CellKey key;
  nlohmann::json config;  // as its trials keep it, which may be of another version
  std::string metric, unit;
  std::string reference;                 // config_hash of the cell that ratios are to, or ""
  nlohmann::json reference_config;       // null: none
  std::size_t setting = 0;               // its position in ComparedPart::settings
  std::vector<SideValue> sides;          // as the sides
  std::vector<SideVerdict> verdicts;     // of all sides but the first
  std::string plans;                     // "" or how the sides' fusion plans differ
  std::vector<Transported> transported;  // if asked for, as verdicts
  std::vector<ForcedPlan> forced;        // if asked for, as sides
};

// Cells that differ in their method alone.
struct ComparedSetting {
  nlohmann::json config;        // its reference's, or another cell's if it has none
  std::vector<Regime> regimes;  // by side
};

struct ComparedPart {
  std::string experiment, part;
  std::vector<ComparedCell> cells;  // without the reference's
  std::vector<ComparedSetting> settings;
};

struct SystemComparison {
  std::vector<ComparedPart> parts;
  std::vector<FactDifference> differences;  // of the trials that are compared
  std::vector<std::string> hardware;        // sentences: the differences between the systems
};

// "engine:live": a part that both have, in two revisions; "" if there is none. A ratio of the two
// would mix revisions.
std::string PartOfTwoRevisions(const TrialRow& one, const TrialRow& other);

// Precondition: at least two sides, or request.least_sides of 1.
SystemComparison CompareSystems(const std::vector<SystemSide>& sides,
                                const CompareRequest& request);

}  // namespace sparfuse::harness
