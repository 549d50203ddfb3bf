// Draws an experiment's figures: `sparfuse figure`.
#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

int FigureVerb(Program& program, const std::string& experiment, const std::filesystem::path& out) {
  const auto loaded = program.LoadWithResults(experiment);
  DrawExperiment(program, "figure", *loaded,
                 out.empty() ? FiguresFolder(program, loaded->experiment.id) : out);
  return kDone;
}

}  // namespace sparfuse::harness
