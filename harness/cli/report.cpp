// Writes the report of an experiment or of a paper: `sparfuse report`.
#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

int ReportVerb(Program& program, const std::string& name, const std::filesystem::path& out) {
  const bool paper = program.IsPaper(name);
  const auto all = program.WithResults(program.LoadAll(name));
  const std::string& id = paper ? name : all.front()->experiment.id;
  const std::filesystem::path file = out.empty() ? ReportFile(program, id) : out;
  if (paper) {
    DrawPaper(program, name, all, file);
  } else {
    DrawExperiment(program, "report", *all.front(), file);
  }
  return kDone;
}

}  // namespace sparfuse::harness
