#include "harness/cli/verdicts.hpp"

#include <fmt/format.h>

#include <map>
#include <string_view>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool IsModelled(const Cell& cell) { return cell.config.modelled(); }

}  // namespace

json NotRunOf(const Experiment& experiment, const std::vector<PartResult>& results) {
  json list = json::array();
  for (const auto& [what, reason] : experiment.not_run) {
    list.push_back({{"experiment", experiment.id}, {"what", what}, {"reason", reason}});
  }
  for (const auto& result : results) {
    std::map<std::string, std::size_t> absent;  // by mode
    for (const auto& cell : result.cells) {
      if (cell.failure == "not run") ++absent[NameOf(cell.cell->config.mode)];
    }
    for (const auto& [mode, count] : absent) {
      list.push_back({{"experiment", experiment.id},
                      {"what", fmt::format("{} of {} cells of part \"{}\", {}", count,
                                           result.cells.size(), result.part->title, mode)},
                      {"reason", fmt::format("no trial in the store yet; `sparfuse reproduce {}` "
                                             "runs them",
                                             experiment.id)}});
    }
  }
  return list;
}

bool AnyClaimFails(const std::vector<PartResult>& results, bool modelled_only) {
  for (const auto& result : results) {
    for (const auto& judged : JudgeClaims(result)) {
      const auto& cells = result.part->cells;
      const bool counts = !modelled_only || (IsModelled(cells[judged.claim->of_cell]) &&
                                             IsModelled(cells[judged.claim->over_cell]));
      if (counts && judged.fails_strict()) return true;
    }
  }
  return false;
}

std::string VerdictCounts(const std::vector<PartResult>& results) {
  std::map<std::string_view, std::size_t> counts;
  std::size_t claims = 0;
  for (const auto& result : results) {
    for (const auto& judged : JudgeClaims(result)) {
      ++counts[VerdictName(judged.verdict)];
      ++claims;
    }
  }
  std::string text = fmt::format("{} claims", claims);
  const char* separator = ": ";
  for (const auto& [verdict, count] : counts) {
    text += fmt::format("{}{} {}", separator, count, verdict);
    separator = ", ";
  }
  return text;
}

}  // namespace sparfuse::harness
