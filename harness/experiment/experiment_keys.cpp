#include "harness/experiment/experiment_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/experiment/claims_and_figures.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

// {table, name, type, unit, default, meaning}, without the keys of cells and of kinds of figures.
std::vector<KeyRow> OwnRows() {
  const std::string id = fmt::format("string, 1 to {} characters", kLongestId);
  return {
      {kTopTable, "id", id, "", "", "the experiment's name: letters, digits, '-', '_' and '/'"},
      {kTopTable, "title", "string", "", "id", "heads the report"},
      {kTopTable, "paper", "string", "", "\"\"", "the paper whose experiment this is"},
      {kTopTable, "minutes", "number, " + Text(kMinutes), "minutes", "none",
       "what the trials take on two cores, for `sparfuse list experiments`"},
      {kTopTable, "calibration", "list of strings", "", "[]",
       "the published numbers that the file's declared clusters were calibrated with, each "
       "\"PAPER/ARTIFACT/METHOD\", or that and /MODEL/WORKERS/NETWORK of one row of many; no claim "
       "may be about them"},
      {kTopTable, "published", "table", "", "none", "[published]: the paper's own numbers"},
      {kTopTable, "not_run", "tables", "", "none",
       "[[not_run]]: what the paper has and no cell stands for"},
      {kTopTable, "part", "tables", "", "one part, \"main\"",
       "[[part]]: the experiment's parts; in a file that has them, reference, axis, exclude, claim "
       "and figure stand in a part, and defaults, repeat and quiet of the file hold for every "
       "part"},
      {"[[part]]", "id", id, "", "", "names the part and its folder of trials"},
      {"[[part]]", "title", "string", "", "id", "heads the part in the report"},
      {kPartTable, "reference", "string", "", "\"dense\" where a cell has it",
       "the method that others are compared with"},
      {kPartTable, "defaults", "table", "", "{}",
       "[defaults]: keys of a cell that hold for every cell"},
      {kPartTable, "axis", "tables", "", "none",
       fmt::format("[[axis]]: lists of values of keys of a cell; lists of one axis move together, "
                   "axes multiply, the first outermost; at most {} cells in a file",
                   kMostCells)},
      {kPartTable, "exclude", "tables", "", "none", "[[exclude]]: cells that have no meaning"},
      {kPartTable, "repeat", "table", "", "{}", "[repeat]: how often and with which seeds"},
      {kPartTable, "quiet", "table", "", "{}",
       "[quiet]: from when on a live trial is called disturbed"},
      {kPartTable, "claim", "tables", "", "none", "[[claim]]: what a metric should show"},
      {kPartTable, "figure", "tables", "", "none", "[[figure]]: what is drawn"},
      {"[[exclude]]", "when", "table of keys of a cell", "", "",
       "the cells that are left out: those that have all of these values (a list: one of them)"},
      {"[[exclude]]", "reason", "string", "", "", "why; tables print it"},
      {"[repeat]", "blocks", "integer, " + Text(kBlocks), "trials a cell", "1",
       fmt::format("how often each cell is run, each time with another seed; at most {} trials in "
                   "a part",
                   kMostTrials)},
      {"[repeat]", "seed", "integer, " + Text(kSeeds), "", "1",
       "seed of block 0; block b has seed + b"},
      {"[repeat]", "timeout_seconds", "number, " + Text(kTimeoutSeconds), "seconds", "600",
       "how long a whole trial may take"},
      {"[repeat]", "predict", "true or false", "", "false",
       "live throughput cells get a modelled twin, in the part \"ID.predicted\""},
      {"[repeat]", "interleave", "true or false", "", "true",
       "live throughput cells of a block that one set of processes can run take turns in one "
       "launch; false: a launch for each"},
      {"[quiet]", "other_cpu", "number, " + Text(kShareOfCores), "of the cores", "0.05",
       "what other processes may take during the measured steps"},
      {"[quiet]", "stolen", "number, " + Text(kShareOfCores), "of the cores", "0.02",
       "what the hypervisor may take"},
      {"[quiet]", "slowdown", "number, " + Text(kSlowdown), "", "1.2",
       "how much longer than usual a fixed computation between the steps may take"},
      {"[quiet]", "reruns", "integer, " + Text(kReruns), "", "2",
       "how often a disturbed throughput trial runs again at once"},
      {"[[not_run]]", "what", "string", "", "", "what the paper has"},
      {"[[not_run]]", "reason", "string", "", "", "why no cell stands for it"},
      {"[published]", "paper", "string", "", "",
       "the paper, as a file of results/published names it"},
      {"[published]", "methods", "table", "", "{}",
       "what the paper calls our methods: { our-method = \"its name\" } or a list of names; of a "
       "method's file its path, as where a cell names it"},
      {"[[claim]]", "quote", "string", "", "", "the sentence that is looked at"},
      {"[[claim]]", "metric", "name of a metric", "", "", "what it is about"},
      {"[[claim]]", "source", "string", "", "\"\"",
       "where the number stands: \"SAFusion (HPDC 25)/Fig14a\""},
      {"[[claim]]", "of", "table of keys of a cell", "", "",
       "the one cell that has all of these values"},
      {"[[claim]]", "over", "table of keys of a cell", "", "none",
       "the one cell that `of` is divided by; without it the value of `of` alone is looked at"},
      {"[[claim]]", "for_each", "list of keys of a cell", "", "[]",
       "makes a claim of each combination that the cells matching `of` have of these keys; `over` "
       "gets them too"},
      {"[[claim]]", "difference", "true or false", "", "false",
       "of less over, instead of their ratio"},
      {"[[claim]]", "stated", "number", "the metric's", "none",
       "the number that the paper states; exactly one of stated, expect, equals, less_than, "
       "at_most, at_least and more_than is given"},
      {"[[claim]]", "figure", "number", "the metric's", "none",
       "beside stated: the number in the paper's figure"},
      {"[[claim]]", "judge", "\"stated\", \"figure\"", "", "\"stated\"",
       "beside stated: which of the two numbers is compared with"},
      {"[[claim]]", "expect", "\"less\", \"at_most\", \"at_least\", \"more\"", "", "none",
       "how `of` stands to `over`: the whole interval below or above 1 (a difference: 0), or not "
       "beyond it by more than 8 %"},
      {"[[claim]]", "equals", "number", "the metric's", "none", "every block's value is this"},
      {"[[claim]]", "less_than", "number", "the metric's", "none", "the interval is below it"},
      {"[[claim]]", "at_most", "number", "the metric's", "none", "the interval is not above it"},
      {"[[claim]]", "at_least", "number", "the metric's", "none", "the interval is not below it"},
      {"[[claim]]", "more_than", "number", "the metric's", "none", "the interval is above it"},
      {"[[figure]]", "kind", "string", "", "", "a name of `sparfuse list figures`"},
      {"[[figure]]", "name", id, "", "the kind", "names the picture's file"},
      {"[[figure]]", "title", "string", "", "the kind's", "stands over the picture"},
      {"[[figure]]", "where", "table of keys of a cell", "", "{}",
       "chooses cells: each key has the value, or one of a list; keys of a cell may also stand in "
       "the figure itself"},
      {"[[figure]]", "methods", "list of methods", "", "all", "chooses cells by method, in order"},
      {"[[figure]]", "link_gbps", "number or list", "Gbit/s", "all", "chooses cells by their link"},
  };
}

// Keys of single kinds of figures.
std::vector<KeyRow> FigureRows() {
  std::vector<KeyRow> rows = {
      {"", "x", "a key of cells, or a way into a table of one", "", "workers",
       "what runs along the axis: \"method_options.planner_options.degree\""},
      {"", "y", "name of a metric", "", "throughput; of trained models final_metric",
       "what is drawn"},
      {"", "metric", "name of a metric", "", "y", "the same as y"},
      {"", "series", "a key of cells", "", "method", "what has a colour of its own"},
      {"", "normalise", "a method", "", "none", "draws ratios to it, within each group"},
      {"", "reference", "a method", "", "the part's", "what others are divided by"},
      {"", "rank", "integer, " + Text(kFigureRanks), "", "0", "whose step is drawn"},
      {"", "log_y", "true or false", "", "true", "a logarithmic axis"},
      {"", "published", "table", "", "none", "[published] values that stand beside ours"}};
  for (KeyRow& row : rows) {
    std::vector<std::string> kinds;
    for (const FigureKind& kind : FigureKinds()) {
      if (std::ranges::count(kind.keys, row.name) > 0) kinds.push_back(kind.name);
    }
    row.table = kFigureKindTable;
    row.meaning += fmt::format("; of {}", fmt::join(kinds, ", "));
  }
  const std::string published = "published of a [[figure]]";
  for (KeyRow row : std::vector<KeyRow>{
           {"", "artifact", "string", "", "none",
            "the paper's figure or table, of a figure that shows one workload"},
           {"", "artifacts", "table", "", "none", "by workload: { our-workload = \"Fig14a\" }"},
           {"", "models", "table", "", "{}",
            "by workload, where an artifact shows several: { our-workload = \"ResNet-152\" }"},
           {"", "metric", "string", "", "the figure's y", "what the paper calls the metric"},
           {"", "stated", "string or list", "", "none",
            "artifacts of the text whose gains \"A vs B\" are drawn"},
           {"", "x", "a key of cells", "", "the figure's x", "what runs along the axis"}}) {
    row.table = published;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<KeyRow> AllRows() {
  std::vector<KeyRow> rows = OwnRows();
  for (KeyRow& row : FigureRows()) rows.push_back(std::move(row));
  for (const GivenKey& key : GivenKeysOfCells()) {
    rows.push_back({kCellTable, key.name, key.type, key.unit, key.fallback, key.meaning});
  }
  return rows;
}

}  // namespace

const std::vector<KeyRow>& ExperimentKeys() {
  static const std::vector<KeyRow> kRows = AllRows();
  return kRows;
}

std::vector<std::string> KeysOf(std::string_view table) {
  std::vector<std::string> names;
  for (const KeyRow& row : ExperimentKeys()) {
    if (row.table == table) names.push_back(row.name);
  }
  return names;
}

}  // namespace sparfuse::harness
