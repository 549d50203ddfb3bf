#include "harness/experiment/experiment_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/experiment/claims_and_figures.hpp"
#include "harness/published/published.hpp"

namespace sparfuse::harness {
namespace {

constexpr Range kShareOfCores{0.001, 1};
constexpr const char* kCellTables = "table of keys of a cell";

const std::string& IdType() {
  static const std::string kType = fmt::format("string, 1 to {} characters", kLongestId);
  return kType;
}

}  // namespace

template <>
RecordKeys KeysOf<GivenHead>() {
  using H = GivenHead;
  static const auto kKeys = KeyTable<H>(
      Given<&H::id>("id", "", "the experiment's name: letters, digits, '-', '_' and '/'",
                    {.type = IdType().c_str()}),
      Given<&H::title>("title", "id", "heading of the report"),
      Given<&H::paper>("paper", "\"\"", "the paper that published this experiment"),
      Given<&H::minutes>("minutes", "none",
                         "time of the trials on two cores, for `sparfuse list experiments`",
                         {.range = {0.001, 1e6}, .unit = "minutes"}),
      Given<&H::calibration>(
          "calibration", "[]",
          "published numbers that calibrated clusters: \"PAPER/ARTIFACT/METHOD\", or "
          "\"PAPER/ARTIFACT/METHOD/MODEL/WORKERS/NETWORK\""),
      Given<&H::published>("published", "none", "[published]: the paper's own numbers",
                           {.type = "table"}),
      Given<&H::not_run>("not_run", "none", "[[not_run]]: results of the paper without a cell",
                         {.type = "tables"}),
      Given<&H::part>("part", "one part, \"main\"",
                      "[[part]]: has its reference, axis, exclude, claim and figure; the file's "
                      "defaults, repeat and quiet hold in all parts",
                      {.type = "tables"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenPartName>() {
  using N = GivenPartName;
  static const auto kKeys =
      KeyTable<N>(Given<&N::id>("id", "", "name of the part and of its folder of trials",
                                {.type = IdType().c_str()}),
                  Given<&N::title>("title", "id", "heading of the part in the report"));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenPart>() {
  using P = GivenPart;
  static const std::string kAxis = fmt::format(
      "[[axis]]: lists of values that move together; axes multiply, the first outermost; at most "
      "{} cells in a file",
      kMostCells);
  static const auto kKeys = KeyTable<P>(
      Given<&P::reference>("reference", "\"dense\" if a cell has it",
                           "the method that others are compared with"),
      Given<&P::defaults>("defaults", "{}", "[defaults]: keys of a cell that hold for every cell",
                          {.type = "table"}),
      Given<&P::axis>("axis", "none", kAxis.c_str(), {.type = "tables"}),
      Given<&P::exclude>("exclude", "none",
                         "[[exclude]]: cells that make no sense and are left out",
                         {.type = "tables"}),
      Given<&P::repeat>("repeat", "{}", "[repeat]: number of repetitions, and seeds",
                        {.type = "table"}),
      Given<&P::quiet>("quiet", "{}",
                       "[quiet]: limits beyond which a live trial is called disturbed",
                       {.type = "table"}),
      Given<&P::claim>("claim", "none", "[[claim]]: the expected value or order of a metric",
                       {.type = "tables"}),
      Given<&P::figure>("figure", "none", "[[figure]]: a drawing of cells", {.type = "tables"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenExclusion>() {
  using E = GivenExclusion;
  static constexpr auto kKeys = KeyTable<E>(
      Given<&E::when>(
          "when", "",
          "the cells that are left out: those that have all of these values (a list: one of them)",
          {.type = kCellTables}),
      Given<&E::reason>("reason", "", "why; tables print it"));
  return kKeys;
}

template <>
RecordKeys KeysOf<Repeat>() {
  using R = Repeat;
  static const std::string kBlocks = fmt::format(
      "how often each cell is run, each time with another seed; at most {} trials in a part",
      kMostTrials);
  static const auto kKeys = KeyTable<R>(
      Given<&R::blocks>("blocks", "1", kBlocks.c_str(),
                        {.range = {1, 10'000}, .unit = "trials a cell"}),
      Given<&R::base_seed>("seed", "1", "seed of block 0; block b has seed + b",
                           {.range = {0, 1e15}}),
      Given<&R::timeout_seconds>("timeout_seconds", "600", "how long a whole trial may take",
                                 {.range = {0.001, 2'592'000}, .unit = "seconds"}),
      Given<&R::predict>("predict", "false",
                         "live throughput cells get a modelled twin, in the part \"ID.predicted\""),
      Given<&R::interleave>("interleave", "true",
                            "live throughput cells of a block that one set of processes can run "
                            "take turns in one launch; false: a launch for each"));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenQuiet>() {
  using Q = GivenQuiet;
  static constexpr auto kKeys = KeyTable<Q>(
      Given<&Q::other_cpu, Q>(
          "other_cpu", "0.05",
          "processor time that other processes may take during the measured steps",
          {.range = kShareOfCores, .unit = "of the cores"}),
      Given<&Q::stolen, Q>("stolen", "0.02", "processor time that the hypervisor may take",
                           {.range = kShareOfCores, .unit = "of the cores"}),
      Given<&Q::slowdown, Q>(
          "slowdown", "1.2",
          "how much longer than usual a fixed computation between the steps may take",
          {.range = {1.001, 100}}),
      Given<&Q::link, Q>(
          "link", "0.05",
          "how far an emulated link's measured rate may be off its label, or change during a trial",
          {.range = {0.001, 1}, .unit = "of its rate"}),
      Given<&Q::reruns, Q>("reruns", "2",
                           "how often a disturbed throughput trial runs again at once",
                           {.range = {0, 100}}));
  return kKeys;
}

template <>
RecordKeys KeysOf<NotRun>() {
  static constexpr auto kKeys =
      KeyTable<NotRun>(Given<&NotRun::what>("what", "", "the paper's result"),
                       Given<&NotRun::reason>("reason", "", "the reason why it has no cell"));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenClaim>() {
  using C = GivenClaim;
  static constexpr auto kKeys = KeyTable<C>(
      Given<&C::quote>("quote", "", "the sentence that is judged"),
      Given<&C::metric>("metric", "", "the metric that is judged", {.type = "name of a metric"}),
      Given<&C::source>("source", "\"\"", "the published number: \"SAFusion (HPDC 25)/Fig14a\""),
      Given<&C::of>("of", "", "the one cell that has all of these values", {.type = kCellTables}),
      Given<&C::over>(
          "over", "none",
          "the one cell that `of` is divided by; without it the value of `of` alone is judged",
          {.type = kCellTables}),
      Given<&C::for_each>("for_each", "[]",
                          "makes a claim of each combination that the cells matching `of` have of "
                          "these keys; `over` gets them too",
                          {.type = "list of keys of a cell"}),
      Given<&C::difference>("difference", "false", "`of` minus `over`, instead of their ratio"),
      Given<&C::stated>("stated", "none",
                        "the paper's number; a claim has one of stated, expect, equals, less_than, "
                        "at_most, at_least and more_than",
                        {.unit = "the metric's"}),
      Given<&C::figure>("figure", "none", "with stated: the number in the paper's figure",
                        {.unit = "the metric's"}),
      Given<&C::judge>("judge", "\"stated\"",
                       "with stated: the one of the two numbers with which the result is compared",
                       {.choices = {"stated", "figure"}}),
      Given<&C::expect>("expect", "none",
                        "the relation of `of` to `over`: the whole interval below or above 1 (a "
                        "difference: 0), or not beyond it by more than 8 %",
                        {.choices = {"less", "at_most", "at_least", "more"}}),
      Given<&C::equals>("equals", "none", "every block has this value", {.unit = "the metric's"}),
      Given<&C::less_than>("less_than", "none", "the interval is below it",
                           {.unit = "the metric's"}),
      Given<&C::at_most>("at_most", "none", "the interval is not above it",
                         {.unit = "the metric's"}),
      Given<&C::at_least>("at_least", "none", "the interval is not below it",
                          {.unit = "the metric's"}),
      Given<&C::more_than>("more_than", "none", "the interval is above it",
                           {.unit = "the metric's"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenFigure>() {
  using F = GivenFigure;
  static const auto kKeys = KeyTable<F>(
      Given<&F::kind>("kind", "", "a name of `sparfuse list figures`"),
      Given<&F::name>("name", "the kind", "name of the picture's file", {.type = IdType().c_str()}),
      Given<&F::title>("title", "the kind's", "title over the picture"),
      Given<&F::where>("where", "{}",
                       "chooses cells by keys with a value, or a list of values; the figure itself "
                       "may also have keys of cells",
                       {.type = kCellTables}),
      Given<&F::methods>("methods", "all", "chooses cells by method, in order",
                         {.type = "list of methods"}),
      Given<&F::link_gbps>("link_gbps", "all", "chooses cells by their link",
                           {.type = "number or list", .unit = "Gbit/s"}),
      Given<&F::x>("x", "workers", "the axis: \"method_options.planner_options.degree\"",
                   {.type = "a key of cells, or a way into a table of one"}),
      Given<&F::y>("y", "throughput; of trained models final_metric", "the drawn metric",
                   {.type = "name of a metric"}),
      Given<&F::metric>("metric", "y", "the same as y", {.type = "name of a metric"}),
      Given<&F::series>("series", "method", "the key whose values have colours of their own",
                        {.type = "a key of cells"}),
      Given<&F::normalise>("normalise", "none",
                           "the method to which ratios are drawn, within each group",
                           {.type = "a method"}),
      Given<&F::reference>("reference", "the part's", "the method that others are divided by",
                           {.type = "a method"}),
      Given<&F::rank>("rank", "0", "the rank whose step is drawn", {.range = {0, 65'535}}),
      Given<&F::log_y>("log_y", "true", "a logarithmic axis"),
      Given<&F::targets>("targets", "the cells'", "values of the metric that training has to reach",
                         {.type = "list of numbers"}),
      Given<&F::modelled>("modelled", "none",
                          "the part that models steps of these methods on other clusters",
                          {.type = "id of a part"}),
      Given<&F::published>("published", "none", "draw [published] values with ours",
                           {.type = "table"}));
  return kKeys;
}

namespace {

// The kinds that have a [[figure]] key; "" if every kind has it.
std::string KindsWith(const std::string& key) {
  std::vector<std::string> kinds;
  for (const FigureKind& kind : FigureKinds()) {
    if (std::ranges::count(kind.keys, key) > 0) kinds.push_back(kind.name);
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::vector<KeyRow> AllRows() {
  std::vector<KeyRow> rows;
  const auto add = [&](const std::string& table, std::vector<GivenKey> keys) {
    for (GivenKey& key : keys) rows.push_back({std::move(key), table});
  };
  add(kTopTable, GivenKeysOf(KeysOf<GivenHead>()));
  add("[[part]]", GivenKeysOf(KeysOf<GivenPartName>()));
  add(kPartTable, GivenKeysOf(KeysOf<GivenPart>()));
  add("[[exclude]]", GivenKeysOf(KeysOf<GivenExclusion>()));
  add("[repeat]", GivenKeysOf(KeysOf<Repeat>()));
  add("[quiet]", GivenKeysOf(KeysOf<GivenQuiet>()));
  add("[[not_run]]", GivenKeysOf(KeysOf<NotRun>()));
  add("[published]", PublishedKeys());
  add("[[claim]]", GivenKeysOf(KeysOf<GivenClaim>()));
  for (GivenKey& key : GivenKeysOf(KeysOf<GivenFigure>())) {
    const std::string kinds = KindsWith(key.name);
    if (!kinds.empty()) key.meaning += "; of " + kinds;
    rows.push_back({std::move(key), kinds.empty() ? "[[figure]]" : kFigureKindTable});
  }
  add("published of a [[figure]]", PublishedKeysOfFigures());
  add(kCellTable, GivenKeysOf(KeysOf<CellConfig>()));
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
