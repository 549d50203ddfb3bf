// Tests the reading of other programs' tables: units, complete lists of errors, stored and doubted
// values.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/imports/imports.hpp"
#include "tests/harness/imports/our_catalog.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;
using testing::Replaced;

constexpr const char* kMap = R"(
source = "A paper, table 3"
system = "lab"
per = "system"
metric = "throughput"
unit = "images/s"
[columns]
workload = "model"
workers = "gpus"
value = "rate"
[workloads]
"ResNet-50" = "resnet50-imagenet"
[methods]
"WFBP, dense" = "horovod-fusion"
)";

constexpr const char* kHeader = "model,method,gpus,rate\n";

std::vector<ImportedResult> TableBy(const std::string& map, const std::string& text) {
  return ReadResultTable(text, "numbers.csv", ParseImportMap(map, "map.toml", ImportForm::kTable),
                         OurCatalog());
}

std::vector<ImportedResult> Table(const std::string& text) { return TableBy(kMap, text); }

// A table of kHeader's columns.
std::vector<ImportedResult> Rows(const std::string& rows) { return Table(kHeader + rows); }

std::string TableError(const std::string& text) {
  return ErrorOf([&] { Table(text); });
}

std::string RowsError(const std::string& rows) { return TableError(kHeader + rows); }

// kMap, whose rates are `per` "worker" or "system".
std::string MapPer(const std::string& per) {
  return Replaced(kMap, "per = \"system\"", "per = \"" + per + "\"");
}

// Spreadsheets of sweeps have as many columns as runs.
TEST(ImportTable, ManyColumnsAreLookedAtOnce) {
  std::string names, cells;
  for (int i = 0; i < 200'000; ++i) {
    names += fmt::format(",c{}", i);
    cells += ",1";
  }
  const auto results = Table("model,method,gpus,rate,batch_per_worker" + names +
                             "\nResNet-50,dense,8,2000,32" + cells + "\n");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].value, 2000);
}

TEST(ImportTable, ARowIsAResult) {
  const auto results = Table(
      "model,method,gpus,rate,batch_per_worker,density\n"
      "ResNet-50,dense,8,2000 +- 20,32,\n"
      "resnet50-imagenet,safusion,8,3000,32,0.01\n");
  ASSERT_EQ(results.size(), 2u);
  const ImportedResult& dense = results[0];
  EXPECT_EQ(dense.where, "numbers.csv:2");
  EXPECT_EQ(dense.setting.workload, "resnet50-imagenet");
  EXPECT_EQ(dense.setting.sparsifier, "none");
  EXPECT_EQ(dense.setting.density, 1);
  EXPECT_EQ(dense.value, 2000);
  EXPECT_DOUBLE_EQ(dense.deviation, 0.01);
  Trial trial = TrialOf(dense);
  // 8 workers * 32 images / 2000 images/s
  EXPECT_DOUBLE_EQ(trial.metrics["step_seconds"].value.value(), 0.128);
  EXPECT_EQ(trial.config["mode"], "imported");
  EXPECT_EQ(trial.experiment, "imported");
  EXPECT_EQ(trial.part, "lab");
  EXPECT_EQ(trial.system.source, "A paper, table 3");
  trial.trial_id = "imported/lab/x";
  EXPECT_EQ(TrialOf(ToJson(trial)), trial);
  EXPECT_EQ(results[1].setting.density, 0.01);
  EXPECT_EQ(results[1].setting.sparsifier, "");  // the source does not state it
}

TEST(ImportTable, NumbersOfOneWorkerAreMultiplied) {
  const auto results = TableBy(MapPer("worker"), std::string(kHeader) + "ResNet-50,dense,8,250\n");
  EXPECT_EQ(results.at(0).value, 2000);
  EXPECT_EQ(results[0].stated, "250 images/s, of a worker");
}

TEST(ImportTable, TheOrderOfRowsDoesNotMatter) {
  std::vector<std::string> rows;
  for (const char* method : {"dense", "safusion", "oktopk"}) {
    for (const int workers : {1, 4, 16})
      rows.push_back(std::string("ResNet-50,") + method + "," + std::to_string(workers) + "," +
                     std::to_string(100 * workers) + "\n");
  }
  const auto trials = [&] {
    auto results = Rows(fmt::format("{}", fmt::join(rows, "")));
    Doubt(results, OurCatalog());
    std::vector<json> all;
    for (const ImportedResult& result : results) all.push_back(ToJson(TrialOf(result)));
    std::ranges::sort(all);
    return all;
  };
  const auto before = trials();
  EXPECT_EQ(before.size(), 9u);
  std::mt19937 draw(7);
  for (int i = 0; i < 10; ++i) {
    std::ranges::shuffle(rows, draw);
    EXPECT_EQ(trials(), before);
  }
}

TEST(ImportTable, ErrorsSayWhereWhatAndWhatWasExpected) {
  const std::string missing = TableError("method,gpus,rate\ndense,8,1\n");
  ExpectIn("map.toml:8: columns: workload = \"model\": numbers.csv has no such column", missing);
  ExpectIn("nothing was imported", missing);
  ExpectIn(
      "numbers.csv:1: no column \"method\" among model, gpus, rate: expected one, --column "
      "method=NAME or --set method=...",
      TableError("model,gpus,rate\nResNet-50,8,1\n"));
  ExpectIn("numbers.csv:2: method = \"safuson\": expected one of `sparfuse list methods`, or",
           RowsError("ResNet-50,safuson,8,1\n"));
  ExpectIn("did you mean \"safusion\"?", RowsError("ResNet-50,safuson,8,1\n"));
  ExpectIn("numbers.csv:2: model = \"ResNet-51\": expected one of `sparfuse list workloads`",
           RowsError("ResNet-51,dense,8,1\n"));
  ExpectIn("numbers.csv:2: gpus = \"8.5\": expected a whole number from 1",
           RowsError("ResNet-50,dense,8.5,1\n"));
  ExpectIn("numbers.csv:2: rate = \"fast\": expected a number",
           RowsError("ResNet-50,dense,8,fast\n"));
  ExpectIn("numbers.csv:2: rate = \"-1\", unit \"images/s\": expected a number above 0",
           RowsError("ResNet-50,dense,8,-1\n"));
  ExpectIn("numbers.csv:3: 3 fields: expected 4",
           RowsError("ResNet-50,dense,8,1\nResNet-50,dense,8\n"));
  ExpectIn(
      "numbers.csv:3: throughput of dense, resnet50-imagenet, 8 workers, density 1: expected "
      "this result once, or each with a `run` of its own: numbers.csv:2 has it",
      RowsError("ResNet-50,dense,8,1\nResNet-50,dense,8,2\n"));
  ExpectIn("numbers.csv: no rows", RowsError(""));
  ExpectIn("two columns \"gpus\"", TableError("model,method,gpus,rate,gpus\n"));
  ExpectIn("numbers.csv:2: metrics.throughput.value = 1e+300: expected a rate above 0",
           RowsError("ResNet-50,dense,8,1e300\n"));
  // All errors at once.
  const std::string both = RowsError("ResNet-51,dense,8,1\nResNet-50,dens,0,1\n");
  ExpectIn("numbers.csv:2", both);
  ExpectIn("numbers.csv:3: method", both);
  ExpectIn("numbers.csv:3: gpus", both);
}

TEST(ImportTable, WhoseRateItIsHasToBeSaid) {
  const std::string map = Replaced(kMap, "per = \"system\"\n", "");
  const std::string text = std::string(kHeader) + "ResNet-50,dense,8,1\n";
  ExpectIn("numbers.csv:2: no per: expected worker or system",
           ErrorOf([&] { TableBy(map, text); }));
}

TEST(ImportTable, SettingsThatContradictThemselvesAreRefused) {
  const std::string header = "model,method,gpus,rate,density,network_gbps,sparsifier\n";
  ExpectIn("density = \"0.01\": expected 1, or none: dense sends dense gradients",
           TableError(header + "ResNet-50,dense,8,1,0.01,,\n"));
  ExpectIn("density = \"2\": expected a number from 1e-09 to 1",
           TableError(header + "ResNet-50,safusion,8,1,2,,\n"));
  ExpectIn("no ranks_per_node: expected how many workers share a node's network",
           TableError(header + "ResNet-50,dense,8,1,,10,\n"));
  ExpectIn("sparsifier = \"topq\"", TableError(header + "ResNet-50,safusion,8,1,,,topq\n"));
}

TEST(ImportMap, MistakesNameTheirLine) {
  const auto error = [](const std::string& text, ImportForm form = ImportForm::kTable) {
    return ErrorOf([&] { ParseImportMap(text, "m.toml", form); });
  };
  ExpectIn("m.toml:1: ", error("sorce = \"x\"\n"));
  ExpectIn("did you mean \"source\"", error("sorce = \"x\"\n"));
  ExpectIn("m.toml:2: ", error("[columns]\nworkloat = \"x\"\n"));
  ExpectIn("m.toml:1: workers = [8]: expected a string or a number", error("workers = [8]\n"));
  ExpectIn("patterns", error("patterns = ['a']\n"));  // only logs have patterns
  ExpectIn("a list of regular expressions", error("patterns = 'a'\n", ImportForm::kLog));
  ExpectIn("--set wrkers=8: unknown key \"wrkers\"; did you mean \"workers\"?", ErrorOf([] {
             ReadImportMap({"", {}, {"wrkers=8"}, ""}, ImportForm::kTable);
           }));
  ExpectIn("--column workers: expected KEY=COLUMN", ErrorOf([] {
             ReadImportMap({"", {"workers"}, {}, ""}, ImportForm::kTable);
           }));
}

std::vector<std::string> DoubtsOf(std::vector<ImportedResult> results) {
  Doubt(results, OurCatalog());
  std::vector<std::string> doubts;
  for (const ImportedResult& result : results) {
    for (const std::string& doubt : result.doubts) doubts.push_back(result.where + ": " + doubt);
  }
  return doubts;
}

TEST(Plausibility, SystemsNumbersTakenForAWorkersScaleTooWell) {
  const auto curve = [](const std::string& per, std::vector<double> rates) {
    std::string text = kHeader;
    int workers = 1;
    for (const double rate : rates) {
      text += "ResNet-50,dense," + std::to_string(workers) + "," + std::to_string(rate) + "\n";
      workers *= 2;
    }
    return DoubtsOf(TableBy(MapPer(per), text));
  };
  EXPECT_EQ(curve("system", {100, 190, 350}).size(), 0u);
  EXPECT_EQ(curve("worker", {100, 95, 87}).size(), 0u);
  const auto wrong = curve("worker", {100, 190, 350});  // rates of all workers
  ASSERT_EQ(wrong.size(), 2u);
  ExpectIn(
      "numbers.csv:3: 3.8 times the throughput of numbers.csv:2 with 2 times its workers: numbers "
      "of all "
      "workers, taken for one's?",
      wrong[0]);
  const auto other = curve("system", {100, 95, 87});  // rates of one worker
  ASSERT_EQ(other.size(), 2u);
  ExpectIn("numbers of one worker, taken for all's?", other[0]);
  EXPECT_EQ(curve("system", {100}).size(), 0u);  // a single point shows nothing
}

TEST(Plausibility, WorkersThatArePlacedOtherwiseAreOnNoCurve) {
  const std::string header = "model,method,gpus,rate,ranks_per_node\n";
  const auto doubts = [&](const std::string& rows) { return DoubtsOf(Table(header + rows)); };
  // The same number of workers on twice the nodes, in any order of the table's rows.
  EXPECT_TRUE(doubts("ResNet-50,dense,16,1000,8\nResNet-50,dense,16,700,1\n").empty());
  EXPECT_TRUE(doubts("ResNet-50,dense,16,700,1\nResNet-50,dense,16,1000,8\n").empty());
  EXPECT_TRUE(doubts("ResNet-50,dense,8,900,8\nResNet-50,dense,16,700,1\n").empty());
  // A node is filled first, then more nodes are used.
  const std::string filled =
      "ResNet-50,dense,1,100,1\nResNet-50,dense,8,700,8\nResNet-50,dense,16,1300,8\n";
  EXPECT_TRUE(doubts(filled).empty());
  const auto found = doubts(filled + "ResNet-50,dense,32,1250,8\nResNet-50,dense,32,900,1\n");
  ASSERT_EQ(found.size(), 1u);
  ExpectIn("0.962 times the throughput of", found[0]);
}

TEST(Plausibility, AStepTimeContradictsARate) {
  const std::string header = "model,method,gpus,rate,metric,unit,batch_per_worker\n";
  const auto doubts = [&](const std::string& rate) {
    return DoubtsOf(
        TableBy(Replaced(kMap, "metric = \"throughput\"\nunit = \"images/s\"\n", ""),
                header + "ResNet-50,dense,8," + rate +
                    ",throughput,images/s,32\nResNet-50,dense,8,128,step_seconds,ms,32\n"));
  };
  EXPECT_TRUE(doubts("2000").empty());  // 8 * 32 / 0.128
  EXPECT_TRUE(doubts("2100").empty());
  ASSERT_EQ(doubts("250").size(), 1u);
  ExpectIn("one worker's, or the rate of all 8?", doubts("250")[0]);
  ASSERT_EQ(doubts("1000").size(), 1u);
  EXPECT_EQ(doubts("1000")[0].find("one worker"), std::string::npos);
}

TEST(Plausibility, LabelsOfNetworksAreHeldToTheBytesOfAStep) {
  const auto results = [](double gbps, double rate, double alone = 0) {
    std::string text = "model,method,gpus,rate,batch_per_worker,network_gbps,ranks_per_node\n";
    if (alone > 0) text += "ResNet-50,dense,1," + std::to_string(alone) + ",32,,\n";
    text += "ResNet-50,dense,8," + std::to_string(rate) + ",32," + std::to_string(gbps) + ",1\n";
    auto read = Table(text);
    Doubt(read, OurCatalog());
    return read.back();
  };
  // 25 557 032 parameters: 2 * 7 / 8 * 4 bytes of each, 178.9 MB, in a step of 0.128 s: 11.18
  // Gbit/s at least.
  const ImportedResult fast = results(10, 2000);
  ASSERT_TRUE(fast.implied_gbps);
  EXPECT_NEAR(fast.implied_gbps->first, 11.18, 0.01);
  EXPECT_TRUE(std::isinf(fast.implied_gbps->second));
  ASSERT_EQ(fast.doubts.size(), 1u);
  ExpectIn("the network has 10 Gbit/s", fast.doubts[0]);
  EXPECT_TRUE(results(25, 2000).doubts.empty());
  // One worker's step takes 0.1 s, a step of eight 0.512 s: 178.9 MB in 0.412 s are 3.474 Gbit/s.
  const ImportedResult slow = results(100, 500, 320);
  ASSERT_TRUE(slow.implied_gbps);
  EXPECT_NEAR(slow.implied_gbps->second, 3.474, 0.001);
  ASSERT_EQ(slow.doubts.size(), 1u);
  ExpectIn("less than half of 100", slow.doubts[0]);
  EXPECT_TRUE(results(5, 500, 320).doubts.empty());
  EXPECT_TRUE(results(100, 500).doubts.empty());  // the seconds of computation are unknown
}

class ImportStore : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  Store store_{folder_.path()};

  ImportPlan Import(const std::vector<ImportedResult>& results) {
    const StoreLock lock(folder_.path());
    std::vector<std::string> problems;
    const ImportPlan plan = PlanImport(results, store_.OpenIndex(lock, problems).Rows());
    if (plan.refused.empty()) AddImported(store_, lock, plan.add);
    EXPECT_TRUE(problems.empty());
    return plan;
  }

  std::vector<TrialRow> Stored() {
    std::vector<std::string> problems;
    auto rows = store_.Rows(problems);
    EXPECT_TRUE(problems.empty());
    return rows;
  }
};

TEST_F(ImportStore, ImportingTwiceIsImportingOnce) {
  const auto results = Rows("ResNet-50,dense,8,2000\nResNet-50,safusion,8,3000\n");
  EXPECT_EQ(Import(results).add.size(), 2u);
  const ImportPlan again = Import(results);
  EXPECT_EQ(again.add.size(), 0u);
  EXPECT_EQ(again.present, 2u);
  // More rows of the same file: the stored ones stay.
  const auto more = Rows("ResNet-50,oktopk,8,1000\nResNet-50,dense,8,2000\n");
  const ImportPlan third = Import(more);
  EXPECT_EQ(third.add.size(), 1u);
  EXPECT_EQ(third.present, 1u);
  // Another number, or another run.
  const ImportPlan changed = Import(Rows("ResNet-50,dense,8,2001\n"));
  ASSERT_EQ(changed.refused.size(), 1u);
  ExpectIn("numbers.csv:2: throughput of dense", changed.refused[0]);
  ExpectIn("has throughput = 2000 images/s", changed.refused[0]);
  EXPECT_EQ(Import(Table("model,method,gpus,rate,run\nResNet-50,dense,8,2001,1\n")).add.size(), 1u);
  const auto rows = Stored();
  EXPECT_EQ(rows.size(), 4u);
  for (const TrialRow& row : rows) EXPECT_TRUE(row.imported());
}

// An id names a number's setting and value: files with the same row give one trial, and a corrected
// row gives another.
TEST_F(ImportStore, IdsAreOfTheNumber) {
  const auto id = [&](const std::string& row, const std::string& file) {
    const TemporaryFolder folder;
    const Store store(folder.path());
    const StoreLock lock(folder.path());
    auto results = Rows(row);
    results[0].file = file;
    results[0].sha256 = Sha256Hex(file);
    const ImportedResult* only = &results[0];
    return AddImported(store, lock, std::span(&only, 1)).at(0);
  };
  const std::string one = id("ResNet-50,dense,8,2000\n", "a.csv");
  EXPECT_EQ(id("ResNet-50,dense,8,2000\n", "b.csv"), one);
  EXPECT_NE(id("ResNet-50,dense,8,2001\n", "a.csv"), one);
}

TEST_F(ImportStore, WhatWasCalledBadMayBeImportedAnew) {
  Import(Rows("ResNet-50,dense,8,2000\n"));
  store_.Annotate(StoreLock(folder_.path()), Stored().at(0).trial_id, "misread");
  EXPECT_EQ(Import(Rows("ResNet-50,dense,8,2001\n")).add.size(), 1u);
  EXPECT_EQ(Stored().size(), 2u);
}

TEST_F(ImportStore, ACurveIsKept) {
  Import(ReadTrainingLog(
      "s 1 m 10\ns 2 m 20\n", "train.log",
      ParseImportMap("source = 'our run'\nsystem = 'lab'\nworkload = 'resnet50-imagenet'\n"
                     "method = 'dense'\nworkers = 1\nmetric_unit = '%'\n"
                     "patterns = ['s (?<step>\\d+) m (?<metric>\\d+)']\n",
                     "m.toml", ImportForm::kLog),
      OurCatalog()));
  const TrialRow row = Stored().at(0);
  EXPECT_TRUE(SomethingIsAt(folder_.path() / row.directory / "evaluations.npy"));
  EXPECT_EQ(row.kind, "convergence");
}

const workloads::WorkloadDescriptor& Images() {
  return workloads::FindWorkload("resnet50-imagenet");
}
const workloads::WorkloadDescriptor& Tokens() { return workloads::FindWorkload("bert-base-squad"); }

TEST(BaseUnits, RatesAreOfAllWorkers) {
  for (const char* unit : {"images/s", "img/sec", "imgs/s", "Samples/s", "examples / second"}) {
    const auto all = ToBaseUnits(kThroughput, 100, unit, Images(), {8, false, 0});
    EXPECT_EQ(all.expected, "") << unit;
    EXPECT_EQ(all.value, 100) << unit;
    EXPECT_EQ(all.unit, "images/s");
    EXPECT_EQ(ToBaseUnits(kThroughput, 100, unit, Images(), {8, true, 0}).value, 800) << unit;
  }
}

TEST(BaseUnits, SamplesOfTokensNeedTheirLength) {
  EXPECT_NE(ToBaseUnits(kThroughput, 10, "sequences/s", Tokens(), {}).expected, "");
  const auto known = ToBaseUnits(kThroughput, 10, "sequences/s", Tokens(), {4, true, 384});
  EXPECT_EQ(known.expected, "");
  EXPECT_EQ(known.value, 10 * 4 * 384);
  EXPECT_EQ(known.unit, "tokens/s");
  // The rate counts tokens already.
  EXPECT_EQ(ToBaseUnits(kThroughput, 10, "tokens/s", Tokens(), {1, false, 384}).value, 10);
}

TEST(BaseUnits, WhatAnotherWorkloadCountsIsRefused) {
  for (const char* unit :
       {"tokens/s", "ms", "steps/s", "images", "images/min", "", "/s", "images/"})
    EXPECT_NE(ToBaseUnits(kThroughput, 1, unit, Images(), {}).expected, "") << unit;
  EXPECT_NE(ToBaseUnits(kThroughput, 1, "images/s", Tokens(), {}).expected, "");
}

TEST(BaseUnits, StepsTakeSeconds) {
  for (const auto& [unit, value] : {std::pair("s", 0.25),
                                    {"ms", 250.0},
                                    {"ms/iteration", 250.0},
                                    {"us/step", 250'000.0},
                                    {"it/s", 4.0},
                                    {"steps/sec", 4.0}}) {
    const auto step = ToBaseUnits(kStepSeconds, value, unit, Images(), {8, true, 0});
    EXPECT_EQ(step.expected, "") << unit;
    EXPECT_DOUBLE_EQ(step.value, 0.25) << unit;
    EXPECT_EQ(step.unit, "s");
  }
  for (const char* unit : {"images/s", "ms/image", "%", "furlongs"})
    EXPECT_NE(ToBaseUnits(kStepSeconds, 1, unit, Images(), {}).expected, "") << unit;
}

TEST(BaseUnits, WhatIsEvaluatedIsAFraction) {
  EXPECT_DOUBLE_EQ(ToBaseUnits(kFinalMetric, 76.1, "%", Images(), {}).value, 0.761);
  EXPECT_EQ(ToBaseUnits(kFinalMetric, 0.761, "1", Images(), {}).unit, "accuracy");
  EXPECT_EQ(ToBaseUnits(kFinalMetric, 0, "%", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kFinalMetric, 76.1, "1", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kFinalMetric, 101, "%", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kFinalMetric, -1, "%", Images(), {}).expected, "");
  const auto& text = workloads::FindWorkload("lstm-wikitext2");
  EXPECT_EQ(ToBaseUnits(kFinalMetric, 109, "perplexity", text, {}).value, 109);
  EXPECT_NE(ToBaseUnits(kFinalMetric, 0.5, "perplexity", text, {}).expected, "");
}

TEST(BaseUnits, TimesToTargetAreSeconds) {
  EXPECT_EQ(ToBaseUnits(kSecondsToTarget, 1.5, "h", Images(), {}).value, 5400);
  EXPECT_EQ(ToBaseUnits(kSecondsToTarget, 2, "minutes", Images(), {}).value, 120);
  EXPECT_NE(ToBaseUnits(kSecondsToTarget, 2, "ms/step", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kSecondsToTarget, 0, "h", Images(), {}).expected, "");
}

// Tables that users have, each with the keys of its map.
std::string TableText(const std::string& name) {
  return ReadFile(testing::SourceDirectory() / "tests/harness/imports/cases" / name);
}

std::vector<ImportedResult> TableCase(const std::string& name, const std::string& more = "",
                                      const char* map = "table.map.toml",
                                      std::vector<std::string>* notes = nullptr) {
  return ReadResultTable(TableText(name), name,
                         ParseImportMap(more + TableText(map), "m.toml", ImportForm::kTable),
                         OurCatalog(), nullptr, notes);
}

TEST(ImportTableCases, AreRead) {
  constexpr const char* kPercent = "tab-06-percent.map.toml";
  constexpr const char* kLatin = "tab-26-latin1-source.map.toml";
  constexpr const char* kTable = "table.map.toml";
  for (const auto& [name, more, map, rows, first, note] :
       {std::tuple("tab-02-thousands.csv", "thousands = \",\"\n", kTable, 3u, 2400.5, ""),
        {"tab-05-oom.csv", "leave_out = [\"OOM\", \"N/A\", \"-\", \"NaN\"]\n", kTable, 3u, 2400.5,
         "4 rows left out: tab-05-oom.csv:5 (Throughput (images/s) = OOM)"},
        {"tab-06-percent.csv", "", kPercent, 2u, 0.759, ""},
        {"tab-11-unknown-method.csv", "leave_out_rows = { Method = [\"BytePS\", \"TernGrad\"] }\n",
         kTable, 3u, 2400.5, "2 rows left out: tab-11-unknown-method.csv:5 (Method = BytePS)"},
        {"tab-16-comment-lines.csv", "leave_out_lines = [\"^#\"]\n", kTable, 3u, 2400.5,
         "leave_out_lines: 1 lines left out"},
        {"tab-17-pandas-index.csv", "", kTable, 3u, 2400.5, ""},
        {"tab-26-latin1-source.csv", "encoding = \"latin-1\"\n", kLatin, 1u, 2400.5, ""}}) {
    std::vector<std::string> notes;
    const auto results = TableCase(name, more, map, &notes);
    ASSERT_EQ(results.size(), rows) << name;
    EXPECT_DOUBLE_EQ(results[0].value, first) << name;
    ASSERT_EQ(notes.size(), *note == '\0' ? 0u : 1u) << name;
    if (*note != '\0') ExpectIn(note, notes[0]);
  }
  EXPECT_EQ(
      TableCase("tab-26-latin1-source.csv", "encoding = \"latin-1\"\n", kLatin)[0].setting.source,
      "M\xc3\xbcller 2025");
}

TEST(ImportTableCases, NameCharactersAndBytes) {
  const auto error = [](const char* name, const char* map = "table.map.toml") {
    return ErrorOf([&] { TableCase(name, "", map); });
  };
  ExpectIn("which has U+2011 (a hyphen) at character 7: expected one of",
           error("tab-22-minus-unicode.csv"));
  ExpectIn("\"2 400.5\": expected a number", error("tab-23-nbsp.csv"));
  ExpectIn("tab-26-latin1-source.csv:2: byte 25 of the line is 0xFC, not valid UTF-8",
           error("tab-26-latin1-source.csv", "tab-26-latin1-source.map.toml"));
}

// A map without the columns of methods and values.
std::string WideMap(const std::string& columns) {
  std::string map = TableText("table.map.toml");
  for (const char* line : {"method = \"Method\"\n", "value = \"Throughput (images/s)\"\n"})
    map.erase(map.find(line), std::string_view(line).size());
  return map.replace(map.find("[columns]\n"), 10, columns);
}

TEST(ImportTableCases, AColumnAMethodIsAResultACell) {
  std::vector<std::string> notes;
  const auto read = [&](const char* name, const std::string& map) {
    notes.clear();
    return ReadResultTable(TableText(name), name, ParseImportMap(map, "m.toml", ImportForm::kTable),
                           OurCatalog(), nullptr, &notes);
  };
  const std::string methods = "[columns]\nvalue = [\"DDP\", \"WFBP\", \"PowerSGD (r=4)\"]\n";
  const auto results =
      read("forms/method-a-column.csv", "leave_out = [\"OOM\"]\n" + WideMap(methods));
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[2].setting.method, "powersgd");
  EXPECT_EQ(results[2].value, 2600);
  EXPECT_EQ(results[4].setting.method, "wfbp");
  EXPECT_EQ(results[4].setting.workers, 16);
  EXPECT_EQ(results[4].value, 4600);
  EXPECT_EQ(notes,
            (std::vector<std::string>{"1 rows and cells left out: "
                                      "forms/method-a-column.csv:3 (PowerSGD (r=4) = OOM)"}));
  std::string workers = WideMap("[columns]\nmethod = \"Method\"\nvalue = [\"8\", \"16\"]\n");
  workers.erase(workers.find("workers = \"GPUs\"\n"), 17);
  const auto scaling = read("forms/workers-a-column.csv",
                            "columns_are = \"workers\"\ndelimiter = \";\"\ndecimal = \",\"\n"
                            "thousands = \".\"\n" +
                                workers);
  ASSERT_EQ(scaling.size(), 4u);
  EXPECT_EQ(scaling[1].setting.workers, 16);
  EXPECT_EQ(scaling[1].value, 4500.1);
  EXPECT_EQ(scaling[2].setting.method, "wfbp");
  ExpectIn(
      "m.toml:8: columns: value: \"WFPB\": forms/method-a-column.csv has no such column; did "
      "you mean \"WFBP\"?",
      ErrorOf([&] {
        read("forms/method-a-column.csv", WideMap("[columns]\nvalue = [\"DDP\", \"WFPB\"]\n"));
      }));
  ExpectIn("method is given besides", ErrorOf([&] {
             read("forms/method-a-column.csv", "method = \"dense\"\n" + WideMap(methods));
           }));
  ExpectIn("columns_are = \"workers\": expected it with a list of columns",
           ErrorOf([] { TableCase("tab-17-pandas-index.csv", "columns_are = \"workers\"\n"); }));
}

TEST(ImportTableCases, AreReadInTheFormsOfOtherPrograms) {
  for (const auto& [name, more, rows, last, note] :
       {std::tuple("forms/markdown.md", "delimiter = \"|\"\n", 3u, 4700.2, ""),
        {"forms/spreadsheet.csv", "decimal = \",\"\nthousands = \".\"\n", 2u, 4700.2, ""},
        {"forms/typeset-spaces.csv", "thousands = \" \"\n", 2u, 4500.1,
         "4 spaces of typesetters (as U+00A0) are read as spaces"}}) {
    std::vector<std::string> notes;
    const auto results = TableCase(name, more, "table.map.toml", &notes);
    ASSERT_EQ(results.size(), rows) << name;
    EXPECT_EQ(results.back().value, last) << name;
    ASSERT_EQ(notes.size(), *note == '\0' ? 0u : 1u) << name;
    if (*note != '\0') {
      EXPECT_EQ(notes[0], note);
    }
  }
  const auto windows =
      TableCase("forms/windows.csv", "encoding = \"latin-1\"\n", "tab-26-latin1-source.map.toml");
  EXPECT_EQ(windows.at(0).setting.source, "M\xc3\xbcller \xe2\x80\x93 2025");
  EXPECT_NEAR(windows[0].deviation, 12 / 2400.5, 1e-12);
  ExpectIn("expected a deviation of at most ten times the number",
           RowsError("ResNet-50,dense,8,900 +- 1e308\n"));
}

TEST(ImportMap, FormsMayBeOptions) {
  const auto read = [](std::vector<std::string> values) {
    ImportMapRequest request;
    request.values = std::move(values);
    return ReadImportMap(request, ImportForm::kTable);
  };
  const ImportMap map = read({"delimiter=;", "decimal=,", "leave_out=OOM", "leave_out=-"});
  EXPECT_EQ(map.delimiter, ';');
  EXPECT_EQ(map.leave_out, (std::vector<std::string>{"OOM", "-"}));
  EXPECT_EQ(PlainNumber("0,5", map), "0.5");
  ExpectIn("--set delimiter=x: expected one of \",\", \";\"",
           ErrorOf([&] { read({"delimiter=x"}); }));
  ExpectIn("thousands = \".\": expected another character",
           ErrorOf([&] { read({"thousands=."}); }));
  ExpectIn("--set source=M\\xFCller: expected UTF-8", ErrorOf([&] { read({"source=M\xfcller"}); }));
}

}  // namespace
}  // namespace sparfuse::harness
