// Says in words how the fusion plans of two machines differ, and what each had to plan with.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sparfuse::harness {

struct SidePlan {
  std::string side;
  nlohmann::json outcome;                                   // of a trial: its "plans"
  std::optional<double> sparsify_seconds, exposed_seconds;  // a step's, for the reason
};

// "" where all plans are equal or fewer than two are known, else "h100 makes 12 exchanges, 3 of
// them dense (selection 0.9 ms, exposed communication 4 ms a step); ...". Of trials that planned
// several times the last plan.
std::string PlanDifference(const std::vector<SidePlan>& plans);

}  // namespace sparfuse::harness
