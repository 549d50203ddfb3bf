#include "harness/report/disturbed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/machine/quiet.hpp"

namespace sparfuse::harness {

std::string DisturbedWarning(const std::vector<PartResult>& results) {
  return DisturbedWarning(std::vector{&results});
}

std::string DisturbedWarning(const std::vector<const std::vector<PartResult>*>& results) {
  std::set<std::string> all;
  std::set<std::string> disturbed;
  std::map<std::string, std::vector<double>> causes;
  bool count = false;
  for (const auto* experiment : results) {
    for (const PartResult& part : *experiment) {
      for (const CellResult& cell : part.cells) {
        if (cell.cell->config.modelled()) continue;
        count = cell.disturbed_trials == DisturbedTrials::kCount;
        for (const auto& [block, trial] : cell.trials) {
          all.insert(trial->trial_id);
          if (!cell.disturbed.contains(block) || !disturbed.insert(trial->trial_id).second)
            continue;
          const nlohmann::json& quiet = trial->quiet;
          if (!quiet.contains("causes")) continue;
          for (const auto& [cause, value] : quiet["causes"].items())
            causes[cause].push_back(value.is_number() ? value.get<double>() : 0);
        }
      }
    }
  }
  if (disturbed.empty()) return "";
  std::vector<std::string> words;
  for (const auto& [cause, values] : causes) {
    words.push_back(CauseWords(cause, Median(values)) +
                    (values.size() > 1 ? fmt::format(" (median of {})", values.size()) : ""));
  }
  return fmt::format("{} of {} live trials were disturbed: {}. Their times {}", disturbed.size(),
                     all.size(), fmt::join(words, ", "),
                     count ? "count all the same (--keep-disturbed)"
                           : "do not count; `sparfuse run --retry-disturbed` runs them again");
}

}  // namespace sparfuse::harness
