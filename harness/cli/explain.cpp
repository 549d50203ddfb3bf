// Compares the step times of two cells, phase by phase: `sparfuse explain`.

#include <fmt/format.h>

#include "core/base/cpu.hpp"
#include "harness/advise/input_effects.hpp"
#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"
#include "harness/report/explanation.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

constexpr std::size_t kInputsShown = 6;

// The effects of declared clusters' inputs on the two steps, if both are modelled: as JSON, null
// for others, and in paragraphs.
struct InputsFound {
  json deciding, exchanged;
  std::vector<std::string> paragraphs;

  void Add(const Table& table, std::size_t all, const char* smaller) {
    std::string text = Render(table, TableFormat::kAligned);
    text.pop_back();  // the last line feed
    paragraphs.push_back(std::move(text));
    if (const std::size_t rest = all - table.rows.size(); rest > 0)
      paragraphs.push_back(
          fmt::format("({} more input{} with smaller {})", rest, rest == 1 ? "" : "s", smaller));
  }
};

// For two cells on one declared cluster: adds the inputs that decide between them. Names the cause
// if the links do not cause most of the exposed time.
void AddDeciding(const Program& program, const CellConfig& of, const CellConfig& over,
                 const std::string& ratio, InputsFound& found) {
  const ProfileFolders& profiles = program.store().profiles();
  if (!of.modelled() || of.cluster != over.cluster || !IsDeclared(profiles, of.cluster)) return;
  fmt::print(stderr, "deciding inputs: modelling {} again with each input at either end\n",
             of.cluster);
  ModelledCluster cluster(profiles, of.cluster, {});
  cluster.PrepareEnds();
  ThreadPool pool(Processors());
  const InputEffects effects = EffectsOfInputs(cluster, of, over, pool);
  Table table{.columns = {"deciding input", "declared", "share", ratio, "measure it with"},
              .alignment = "llrll"};
  for (const InputEffect& each : effects.effects) {
    if (table.rows.size() == kInputsShown) break;
    table.rows.push_back(RowOf(each));
  }
  if (!table.rows.empty()) found.Add(table, effects.effects.size(), "shares");
  found.deciding = WriteRecord(effects);
  found.deciding["hints"] = json::array();
  for (const CellConfig* cell : {&of, &over}) {
    const ExposedShare exposed = ExposedOf(cluster, *cell);
    if (!exposed.mostly_not_links()) continue;
    const std::string hint = ExposedText(cell->method, exposed);
    found.deciding["hints"].push_back(hint);
    found.paragraphs.push_back("hint: " + hint);
  }
}

// For one cell on two declared clusters: adds the inputs that make the difference.
void AddExchanged(const Program& program, const CellConfig& of, const CellConfig& over,
                  const Explanation& names, InputsFound& found) {
  const ProfileFolders& profiles = program.store().profiles();
  CellConfig elsewhere = of;
  elsewhere.cluster = over.cluster;
  elsewhere.ranks_per_node = over.ranks_per_node;
  if (!of.modelled() || of.cluster == over.cluster || !(elsewhere == over) ||
      !IsDeclared(profiles, of.cluster) || !IsDeclared(profiles, over.cluster)) {
    return;
  }
  const auto inputs =
      ExchangedInputs(LoadDeclaredCluster(profiles, of.cluster),
                      LoadDeclaredCluster(profiles, over.cluster), of, over.ranks_per_node);
  Table table{.columns = {"inputs in which the clusters differ", names.of.name, names.over.name,
                          "step, over that with the other's"},
              .alignment = "lrrr"};
  found.exchanged = json::array();
  for (const ExchangedInput& each : inputs) {
    found.exchanged.push_back(
        {{"what", each.what}, {"of", each.of}, {"over", each.over}, {"factor", each.factor}});
    if (table.rows.size() == kInputsShown) continue;
    const auto stated = [](const std::string& text) { return text.empty() ? kNone : text; };
    table.rows.push_back(
        {each.what, stated(each.of), stated(each.over), fmt::format("{:.3g}x", each.factor)});
  }
  if (inputs.empty()) return;
  found.Add(table, inputs.size(), "factors");
  found.paragraphs.emplace_back(
      "Inputs act on each other: the factors do not multiply to the whole.");
}

}  // namespace

int ExplainVerb(Program& program, const ExplainVerbRequest& asked) {
  ExplainRequest request = asked.cells;
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
  // Python reads the steps' parts from the series, and draws. Numbers and words are made here.
  const auto folder = ReportFile(program, loaded->experiment.id).parent_path();
  const auto parts = folder / "explained-parts.json";
  const auto explained = folder / "explained.json";
  DrawExperiment(program, "parts", *loaded, parts, more);
  const Explanation found =
      Explain(loaded->experiment.id, loaded->results, cells, ReadExplainedSteps(parts));
  const CellConfig &of = cells.of->cell->config, &over = cells.over->cell->config;
  InputsFound inputs;
  AddDeciding(program, of, over, found.over.name + " / " + found.of.name, inputs);
  AddExchanged(program, of, over, found, inputs);
  json written = ToJson(found);
  written["deciding"] = std::move(inputs.deciding);
  written["exchanged"] = std::move(inputs.exchanged);
  written["text"] = WordsOf(found, inputs.paragraphs);
  WriteFileDurably(explained, written.dump(1) + "\n");
  more.insert(more.end(), {"--found", explained.string()});
  if (program.json()) more.push_back("--json");
  DrawExperiment(program, "explain", *loaded,
                 asked.out.empty() ? FiguresFolder(program, loaded->experiment.id) : asked.out,
                 more);
  return kDone;
}

}  // namespace sparfuse::harness
