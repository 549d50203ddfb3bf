// Finds the values in a log, line by line.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/imports/import_map.hpp"
#include "harness/imports/imported_result.hpp"

namespace sparfuse::harness {

// What the lines of a log say together.
struct LoggedTraining {
  std::vector<ImportedStep> steps;  // lines with a time, a rate or a loss; in their order
  std::vector<ImportedEvaluation> evaluations;
  std::vector<std::pair<std::string, double>> system_rates;  // where each stands
  // Keys of the setting that lines say ("workers"), the first of each.
  std::map<std::string, GivenText> said;
};

// `given` has the constants steps_per_epoch and warmup. What cannot be read becomes a problem.
LoggedTraining ReadLoggedLines(std::string_view text, const std::string& name, const ImportMap& map,
                               const GivenValues& given, Problems& problems);

}  // namespace sparfuse::harness
