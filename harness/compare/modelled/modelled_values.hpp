// Holds what the model says beside the measured ratios of a comparison. Nothing of it is measured,
// and no verdict is made of it.
#pragma once

#include <optional>
#include <string>

#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

// What the first side's ratio becomes on another one by that one's profile.
struct Transported {
  std::string lacks;  // "" or why there is none: what is missing, and the command that measures it
  std::optional<Interval> model_first, model_second;  // the model's own ratios, with its bands
  std::optional<Interval> ratio;     // the first's, measured, times the second model over the first
  std::optional<Interval> residual;  // what the other side measured over that
};

// What a side's ratio becomes with the plan of another one.
struct ForcedPlan {
  std::string lacks;                 // "" or why that plan cannot be forced on this side
  bool own = false;                  // it is this side's own, or this is the side that gives it
  std::string units;                 // the plan, "3,40"
  std::string config_hash;           // of the cell that has it given
  std::string lacks_modelled;        // "" or why the model does not say what it would do
  std::optional<Interval> modelled;  // the side's own ratio times what the model makes of the plan
  std::optional<Interval> measured;  // the ratio of trials that had the plan given
  std::optional<Interval> gain;      // what the plan makes of this side's ratio; 1: nothing
  std::optional<Interval> rest;      // the giver's ratio over this side's with that plan
  bool gain_measured = false, rest_measured = false;  // else modelled
};

}  // namespace sparfuse::harness
