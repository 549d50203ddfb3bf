// Compares the step times of two cells, phase by phase: `sparfuse explain`.
#include "harness/report/explain.hpp"

#include <fmt/format.h>

#include "harness/advise/input_effects.hpp"
#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// Of two cells modelled on one declared cluster, which inputs decide between them, and where most
// of what is exposed is not the links' doing; else null.
json DecidingInputs(const Program& program, const CellConfig& of, const CellConfig& over) {
  const ProfileFolders& profiles = program.store().profiles();
  if (!of.modelled() || of.cluster != over.cluster || !IsDeclared(profiles, of.cluster))
    return nullptr;
  fmt::print(stderr, "which input decides: models {} again with each input at its ends\n",
             of.cluster);
  ModelledCluster cluster(profiles, of.cluster, {});
  cluster.PrepareEnds();
  json found = WriteRecord(EffectsOfInputs(cluster, of, over));
  found["hints"] = json::array();
  for (const CellConfig* cell : {&of, &over}) {
    const ExposedShare exposed = ExposedOf(cluster, *cell);
    if (exposed.mostly_not_links()) found["hints"].push_back(ExposedText(cell->method, exposed));
  }
  return found;
}

// Of one cell modelled on two declared clusters, which of their inputs make the difference; else
// null.
json ExchangedInputsOf(const Program& program, const CellConfig& of, const CellConfig& over) {
  const ProfileFolders& profiles = program.store().profiles();
  CellConfig elsewhere = of;
  elsewhere.cluster = over.cluster;
  elsewhere.ranks_per_node = over.ranks_per_node;
  if (!of.modelled() || of.cluster == over.cluster || !(elsewhere == over) ||
      !IsDeclared(profiles, of.cluster) || !IsDeclared(profiles, over.cluster)) {
    return nullptr;
  }
  json list = json::array();
  for (const ExchangedInput& each :
       ExchangedInputs(LoadDeclaredCluster(profiles, of.cluster),
                       LoadDeclaredCluster(profiles, over.cluster), of, over.ranks_per_node)) {
    list.push_back(
        {{"what", each.what}, {"of", each.of}, {"over", each.over}, {"factor", each.factor}});
  }
  return list;
}

}  // namespace

int ExplainVerb(Program& program, ExplainRequest request, const std::filesystem::path& out) {
  request.results = program.store().results();
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
  const json found = ReadJsonFile(parts);
  const bool same_mode = cells.of->cell->config.mode == cells.over->cell->config.mode;
  json compared = StepDifferences(found["of"], found["over"], same_mode);
  compared["deciding"] = DecidingInputs(program, cells.of->cell->config, cells.over->cell->config);
  compared["exchanged"] =
      ExchangedInputsOf(program, cells.of->cell->config, cells.over->cell->config);
  WriteFileDurably(differences, compared.dump(1) + "\n");
  more.insert(more.end(), {"--differences", differences.string()});
  if (program.json()) more.push_back("--json");
  DrawExperiment(program, "explain", *loaded,
                 out.empty() ? FiguresFolder(program, loaded->experiment.id) : out, more);
  return kDone;
}

}  // namespace sparfuse::harness
