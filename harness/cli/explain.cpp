// Compares the step times of two cells, phase by phase: `sparfuse explain`.
#include "harness/report/explain.hpp"

#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/step_differences.hpp"

namespace sparfuse::harness {

int ExplainVerb(Program& program, const ExplainRequest& request, const std::filesystem::path& out) {
  const auto loaded = program.LoadWithResults(request.experiment);
  const ExplainedCells cells =
      ChooseExplained(loaded->parts, loaded->results, *loaded->rows, request);
  std::vector<std::string> more;
  for (const auto& [option, cell] :
       {std::pair("--of", cells.of), std::pair("--over", cells.over)}) {
    more.push_back(option);
    more.push_back(cell->cell->config_hash);
  }
  // Python reads the parts of steps from the series, their statistics are made here.
  const auto folder = ReportFile(program, loaded->experiment.id).parent_path();
  const auto parts = folder / "explained-parts.json";
  const auto differences = folder / "explained-differences.json";
  DrawExperiment(program, "parts", *loaded, parts, more);
  const nlohmann::json found = ReadJsonFile(parts);
  const bool same_mode = cells.of->cell->config.mode == cells.over->cell->config.mode;
  WriteFileDurably(differences,
                   StepDifferences(found["of"], found["over"], same_mode).dump(1) + "\n");
  more.insert(more.end(), {"--differences", differences.string()});
  if (program.json()) more.push_back("--json");
  DrawExperiment(program, "explain", *loaded,
                 out.empty() ? FiguresFolder(program, loaded->experiment.id) : out, more);
  return kDone;
}

}  // namespace sparfuse::harness
