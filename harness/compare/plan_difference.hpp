// Puts the differences of two machines' fusion plans into words, with the times that each planner
// used.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sparfuse::harness {

// JSON as trials keep it: a plan's keys are its strategy's, and an outcome may be of another
// version.
struct SidePlan {
  std::string side;
  nlohmann::json outcome;      // of a trial: its "plans"
  nlohmann::json config;       // of the trial: how its units are sent
  nlohmann::json environment;  // of the trial: the settings of NCCL
  std::optional<double> achieved_density;
  std::optional<double> sparsify_seconds, exposed_seconds;  // a step's, for the reason
};

// The last PlanSummary of an outcome, without its step; null if there is none.
nlohmann::json LastPlan(const nlohmann::json& outcome);

// "" if all plans are equal or fewer than two are known. Else "h100 makes 12 exchanges: 3 dense by
// all-reduce, 9 by sparse-allgather, 4 of them in 3 parts, density achieved 0.0102 (selection 900
// µs, exposed communication 4.00 ms a step); ...". If a trial planned several times, its last plan
// counts.
std::string PlanDifference(const std::vector<SidePlan>& plans);

}  // namespace sparfuse::harness
