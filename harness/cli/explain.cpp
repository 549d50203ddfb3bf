// Compares the step times of two cells, phase by phase: `sparfuse explain`.
#include "harness/report/explain.hpp"

#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

int ExplainVerb(Program& program, const ExplainRequest& request, const std::filesystem::path& out) {
  const auto loaded = program.LoadWithResults(request.experiment);
  const ExplainedCells cells =
      ChooseExplained(loaded->parts, loaded->results, *loaded->rows, request);
  std::vector<std::string> more;
  if (program.json()) more.push_back("--json");
  for (const auto& [option, cell] :
       {std::pair("--of", cells.of), std::pair("--over", cells.over)}) {
    more.push_back(option);
    for (const auto& [block, trial] : cell->trials) more.push_back(trial->trial_id);
  }
  DrawExperiment(program, "explain", *loaded,
                 out.empty() ? FiguresFolder(program, loaded->experiment.id) : out, more);
  return kDone;
}

}  // namespace sparfuse::harness
