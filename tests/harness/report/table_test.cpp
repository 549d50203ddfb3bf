// Tests the columns that tell cells apart in tables, results as numbers, and the tables of profile
// trials.
#include "harness/report/tables/table.hpp"

#include <gtest/gtest.h>

#include "harness/report/tables/columns.hpp"
#include "tests/harness/report/made_results.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

Part MakePart(const Catalog& catalog, const std::string& axes) {
  return ParseExperiment(TomlFile::Parse("id = \"t\"\n[defaults]\nmode = \"measured\"\n"
                                         "workload = \"digits-resnet\"\nworkers = 2\n" +
                                             axes,
                                         "f.toml"),
                         catalog, "/nonexistent")
      .parts[0];
}

std::vector<std::string> TitlesOf(const std::vector<KeyColumn>& columns) {
  std::vector<std::string> titles;
  for (const KeyColumn& column : columns) titles.push_back(column.title);
  return titles;
}

using Titles = std::vector<std::string>;

// The field of a row in the column of this heading.
std::string FieldOf(const Table& table, std::size_t row, const std::string& column) {
  const auto found = std::ranges::find(table.columns, column);
  return table.rows.at(row).at(static_cast<std::size_t>(found - table.columns.begin()));
}

TEST(Columns, AreOfTheUsualKeysWhereTheseTellCellsApart) {
  const Catalog catalog = SmallCatalog();
  // dense and wfbp differ in options, feedback, sparsifier and density, all implied by the method.
  const Part part = MakePart(catalog, "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n");
  EXPECT_EQ(TitlesOf(KeyColumnsOf(part)), Titles({"workload", "workers", "sparsifier", "density"}));
}

TEST(Columns, AreMadeOfEveryOtherKeyInWhichCellsDiffer) {
  const Catalog catalog = SmallCatalog();
  const Part part = MakePart(catalog,
                             "method = \"wfbp\"\n[[axis]]\nfeedback = [\"none\", \"residual\"]\n"
                             "[[axis]]\nsteps = [5, 10]\n"
                             "[[axis]]\nrecipe = [{ learning_rate = 0.1 }, { learning_rate = 1 }]\n"
                             "[[axis]]\nsparsifier_options = [{}]\n");
  const auto columns = KeyColumnsOf(part);
  EXPECT_EQ(TitlesOf(columns),
            Titles({"workload", "workers", "feedback", "learning_rate", "steps"}));
  std::set<std::string> rows;
  for (const auto& row : ResultTable(ResultOf(part, catalog, {}), catalog).rows) {
    rows.insert(row[3] + " " + row[4] + " " + row[5]);
  }
  EXPECT_EQ(rows.size(), part.cells.size());
  EXPECT_TRUE(rows.contains("residual 0.1 5"));
}

TEST(Columns, TellTablesInTablesAndWhatSomeCellsLackApart) {
  const auto config = [](const json& inputs, const json& link) {
    return json({{"method", "wfbp"},
                 {"workload", "w"},
                 {"workers", 2},
                 {"inputs", inputs},
                 {"link", link}});
  };
  const json fast = {{"gbps", 1}, {"alpha_us", 100}};
  const json slow = {{"gbps", 1}, {"alpha_us", 500}};
  const std::vector<json> configs = {config(json::object(), fast), config({{"host", 2}}, fast),
                                     config({{"host", {{"alpha_us", 3}}}}, fast),
                                     config(json::object(), slow), config(json::object(), nullptr)};
  const auto columns = KeyColumnsOf(configs);
  // Two keys of the same name have their whole path.
  EXPECT_EQ(TitlesOf(columns),
            Titles({"workload", "workers", "link", "inputs.host.alpha_us", "link.alpha_us"}));
  EXPECT_EQ(KeyText(configs[4], columns[2]), "unshaped");
  EXPECT_EQ(KeyText(configs[3], columns[2]), "1 Gbit/s");
  EXPECT_EQ(KeyText({{"inputs", {{"host", {{"alpha_us", 0.1234567}}}}}}, columns[3]), "0.1234567");
  EXPECT_EQ(KeyText(configs[3], columns[3]), "–");
  EXPECT_EQ(KeyValue(configs[3], columns[4]), 500);
}

TEST(Table, HasNoPayloadWhereNoneIsCounted) {
  const Catalog catalog = SmallCatalog();
  const Part part = MakePart(catalog, "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n");
  std::vector<TrialRow> rows = {RowOf(catalog, part.cells[0], 0, 0.1),
                                RowOf(catalog, part.cells[1], 0, 0.1)};
  rows[0].metrics.Set("payload_bytes", 1e6);
  rows[1].metrics.Set("payload_bytes", 0);
  const Table table = ResultTable(ResultOf(part, catalog, rows), catalog);
  EXPECT_EQ(FieldOf(table, 0, "payload/step"), "1.00 MB");
  EXPECT_EQ(FieldOf(table, 1, "payload/step"), "–");
}

TEST(Table, ShowsDisturbedTrialsApart) {
  const Catalog catalog = SmallCatalog();
  const Part part = MakePart(catalog, "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n");
  std::vector<TrialRow> rows;
  for (std::size_t i = 0; i < 2; ++i) {
    for (const int block : {0, 1})
      rows.push_back(RowOf(catalog, part.cells[i], block, 0.1 * static_cast<double>(i + 1)));
  }
  rows[1].quiet = rows[2].quiet = rows[3].quiet = {{"disturbed", true}};
  const PartResult result = ResultOf(part, catalog, rows);
  const Table table = ResultTable(result, catalog);
  EXPECT_EQ(FieldOf(table, 0, "throughput"), "640 images/s");
  EXPECT_EQ(FieldOf(table, 0, "n"), "1");
  EXPECT_EQ(FieldOf(table, 1, "throughput"), "disturbed (320 images/s)");
  EXPECT_EQ(FieldOf(table, 1, "step"), "(200 ms)");
  EXPECT_EQ(FieldOf(table, 1, "exchanges/step"), "43.0");  // a count, not a time
  EXPECT_EQ(FieldOf(table, 1, "vs dense (95 %)"), "–");
  EXPECT_EQ(FieldOf(table, 1, "n"), "0");
  EXPECT_NE(table.caption.find("in brackets: disturbed trials"), std::string::npos);
  EXPECT_NE(table.caption.find("preliminary: 1 block(s)"), std::string::npos);
  for (const ResultRecord& record : RecordsOf({part}, {result}, catalog)) {
    if (record.metric == "throughput" && record.keys["method"] == "wfbp") {
      EXPECT_FALSE(record.value.has_value());
      EXPECT_EQ(record.note, "2 of 2 blocks disturbed");
    }
  }
}

TEST(Table, ShowsExchangesAStep) {
  const Catalog catalog = SmallCatalog();
  const Part part = MakePart(catalog, "method = \"wfbp\"\n");
  const std::vector<TrialRow> rows = {RowOf(catalog, part.cells[0], 0, 0.1)};
  const Table table = ResultTable(ResultOf(part, catalog, rows), catalog);
  EXPECT_EQ(FieldOf(table, 0, "exchanges/step"), "43.0");
}

TEST(Table, AColumnHasOneUnitAndTwoBlocksAreMarked) {
  const Catalog catalog = SmallCatalog();
  const Part part = MakePart(catalog, "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n");
  std::vector<TrialRow> rows;
  for (const int block : {0, 1}) {
    rows.push_back(RowOf(catalog, part.cells[0], block, 3));
    rows.push_back(RowOf(catalog, part.cells[1], block, 0.05));
  }
  rows.push_back(RowOf(catalog, part.cells[1], 2, 0.05));
  const Table table = ResultTable(ResultOf(part, catalog, rows), catalog);
  EXPECT_EQ(FieldOf(table, 0, "step"), "3.00 s");
  EXPECT_EQ(FieldOf(table, 1, "step"), "0.0500 s");
  EXPECT_EQ(FieldOf(table, 0, "n"), "2 [1]");
  EXPECT_EQ(FieldOf(table, 1, "n"), "3");
  EXPECT_TRUE(table.notes.at(0).starts_with("n = 2: "));
}

TEST(Table, ClaimsOfOneQuoteNameTheirCells) {
  const Catalog catalog = SmallCatalog();
  const std::string claim =
      "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"wfbp\" }\n"
      "over = { method = \"dense\" }\nstated = 2\n";
  const std::string other =
      "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"dense\" }\n"
      "more_than = 0\n";
  const std::string axis = "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n";
  const Part one = MakePart(catalog, axis + claim);
  EXPECT_EQ(ClaimTable(ResultOf(one, catalog, {})).columns.back(), "verdict");
  const Part two = MakePart(catalog, axis + claim + other);
  const Table table = ClaimTable(ResultOf(two, catalog, {}));
  EXPECT_EQ(table.columns.back(), "over");
  EXPECT_EQ(table.rows[0].back(), "{\"method\":\"dense\"}");
  EXPECT_EQ(table.rows[1][7], "{\"method\":\"dense\"}");
}

// dense at 0.1 s and wfbp at 0.05 s a step in three blocks; syncea is excluded.
class Records : public ::testing::Test {
 protected:
  Records()
      : part_(MakePart(catalog_,
                       "[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n"
                       "[[exclude]]\nwhen = { method = \"syncea\" }\nreason = \"no, none\"\n"
                       "[[claim]]\nquote = \"twice\"\nmetric = \"throughput\"\n"
                       "of = { method = \"wfbp\" }\nover = { method = \"dense\" }\nstated = 1.9\n"
                       "[[claim]]\nquote = \"late\"\nmetric = \"step_seconds\"\n"
                       "of = { method = \"dense\" }\nmore_than = 0.01\n")) {
    for (int block = 0; block < 3; ++block) {
      rows_.push_back(RowOf(catalog_, part_.cells[0], block, 0.1 * (1 + 0.01 * block)));
      rows_.push_back(RowOf(catalog_, part_.cells[1], block, 0.05 * (1 + 0.01 * block)));
    }
  }
  std::vector<ResultRecord> Make() const {
    return RecordsOf({part_}, {ResultOf(part_, catalog_, rows_)}, catalog_);
  }
  json Find(const std::string& what, const std::string& method, const std::string& metric) const {
    for (const json& record : RecordsJson(Make())) {
      if (record["what"] == what && record["method"] == method &&
          (metric.empty() ? record["metric"].is_null() : record["metric"] == metric)) {
        return record;
      }
    }
    return nullptr;
  }

  Catalog catalog_ = SmallCatalog();
  Part part_;
  std::vector<TrialRow> rows_;
};

TEST_F(Records, AreNumbersInBaseUnits) {
  const json step = Find("result", "wfbp", "step_seconds");
  EXPECT_NEAR(step["value"].get<double>(), 0.0505, 1e-5);
  EXPECT_LT(step["low"], step["value"]);
  EXPECT_GT(step["high"], step["value"]);
  EXPECT_EQ(step["n"], 3);
  EXPECT_EQ(step["unit"], "seconds");
  EXPECT_EQ(step["mode"], "measured");
  EXPECT_EQ(step["density"], 0.01);
  EXPECT_EQ(step["hardware"], "CPU, 2 cores, 4 GiB");
  EXPECT_EQ(Find("result", "wfbp", "throughput")["unit"], "images/s");
  EXPECT_EQ(Find("result", "wfbp", "sent_bytes")["value"], 2500000.0);
  EXPECT_EQ(Find("result", "wfbp", "sent_bytes")["unit"], "bytes");
  EXPECT_EQ(Find("result", "wfbp", "exchanges")["value"], 43.0);
  const json exposed = Find("result", "wfbp", "exposed_communication_seconds");
  EXPECT_EQ(exposed["value"], 0.0);  // no interval: 0 has no logarithm
  EXPECT_EQ(exposed["low"], nullptr);
  EXPECT_EQ(exposed["n"], 3);
}

TEST_F(Records, OfRatiosClaimsAndExclusions) {
  const json ratio = Find("ratio", "wfbp", "throughput");
  EXPECT_NEAR(ratio["value"].get<double>(), 2, 1e-9);
  EXPECT_EQ(ratio["over"], "dense");
  EXPECT_EQ(ratio["unit"], "");
  EXPECT_EQ(Find("ratio", "dense", "throughput"), nullptr);
  const json claimed = Find("claimed ratio", "wfbp", "throughput");
  EXPECT_NEAR(claimed["value"].get<double>(), 2, 1e-9);
  EXPECT_EQ(claimed["expected"], 1.9);
  EXPECT_EQ(claimed["relation"], "=");
  EXPECT_EQ(claimed["verdict"], "reproduced");
  EXPECT_EQ(claimed["over"], "{\"method\":\"dense\"}");
  const json late = Find("claimed value", "dense", "step_seconds");
  EXPECT_EQ(late["relation"], ">");
  EXPECT_EQ(late["unit"], "seconds");
  EXPECT_EQ(Find("excluded", "syncea", "")["note"], "no, none");
}

TEST_F(Records, SayWhyThereIsNoNumber) {
  rows_.clear();
  const json record = Find("result", "wfbp", "throughput");
  EXPECT_EQ(record["value"], nullptr);
  EXPECT_EQ(record["n"], 0);
  EXPECT_EQ(record["note"], "not run");
  EXPECT_EQ(Find("result", "wfbp", "step_seconds"), nullptr);
}

TEST_F(Records, OfTwinsAreBesideTheirLiveCells) {
  const Part twins = PredictedPart(part_);
  for (std::size_t cell = 0; cell < 2; ++cell) {
    rows_.push_back(RowOf(catalog_, twins.cells[cell], 0, 0.04));
    rows_.back().system = {{"cluster", "this-machine"}, {"profile_hash", "x"}};
  }
  const auto records =
      RecordsOf({part_, twins},
                {ResultOf(part_, catalog_, rows_), ResultOf(twins, catalog_, rows_)}, catalog_);
  for (const json& record : RecordsJson(records)) {
    if (record["what"] != "prediction error" || record["method"] != "wfbp") continue;
    EXPECT_NEAR(record["value"].get<double>(), 0.04 / 0.0505 - 1, 1e-4);
    EXPECT_EQ(record["part"], part_.id);
    return;
  }
  FAIL() << "expected a prediction error of wfbp";
}

TEST_F(Records, OneCsvTableHasAllParts) {
  Part other = part_;
  other.id = "other";
  other.claims.clear();
  other.cells.resize(1);
  const std::string csv = RecordsCsv(
      RecordsOf({other, part_},
                {ResultOf(other, catalog_, rows_), ResultOf(part_, catalog_, rows_)}, catalog_));
  EXPECT_TRUE(csv.starts_with(
      "what,part,method,workload,workers,sparsifier,density,metric,unit,over,value,low,high,n,mode,"
      "relation,expected,verdict,quote,hardware,note\n"))
      << csv;
  // If a part's cells do not differ in a key, they leave its column empty.
  EXPECT_SAYS(csv, "\nresult,other,dense,digits-resnet,2,,,throughput,images/s,,");
  EXPECT_NE(csv.find(",\"{\"\"method\"\":\"\"dense\"\"}\","), std::string::npos) << csv;
  EXPECT_NE(csv.find(",\"no, none\"\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",exchanges,,,43.0,43.0,43.0,3,measured,"), std::string::npos) << csv;
}

ProfileOutcome Outcome(int batch) {
  CellConfig config;
  config.kind = TrialKind::kProfile;
  config.workload = "text-gpt";
  config.batch_per_worker = batch;
  config.workers = 2;
  json outcome = {{"config", ToJson(config)}};
  const json curve = json::array({{1, 0.0}, {2000000, 2e-3}});
  outcome["profile"] = {
      {"backward",
       {{"steps", 50},
        {"begin_seconds", 0},
        {"tail_seconds", 0},
        {"forward_seconds", 0.04},
        {"unhooked_seconds", 0.08},
        {"hooked_seconds", 0.09},
        {"update_seconds", 0.001},
        {"tensors",
         json::array({{{"name", "a"}, {"shape", {5}}, {"numel", 5}, {"seconds", 0.02}},
                      {{"name", "b"}, {"shape", {7}}, {"numel", 7}, {"seconds", 0.06}}})}}},
      {"pack", curve},
      {"scale", curve},
      {"clear", curve},
      {"seconds_per_entry", 4e-9},
      {"seconds_per_reduced_element", 1e-9},
      {"dispatch_seconds", 1e-6},
      {"exchange_dispatch_seconds", 2e-6},
      {"selection", {{"topk", json::array({{{"density", 0.01}, {"seconds", curve}}})}}},
      {"relative_errors", {{"/backward/forward_seconds", 0.05}}},
      {"link",
       {{"class", "intra_node"},
        {"round_seconds", curve},
        {"seconds_per_extra_message", 0},
        {"cpu_seconds", 0},
        {"round_cpu_seconds", 0},
        {"cpu_fraction", 0},
        {"fit",
         {{"alpha_seconds", 20e-6},
          {"alpha_standard_error", 1e-6},
          {"seconds_per_byte", 1e-9},
          {"seconds_per_byte_standard_error", 0.0},
          {"points", 3},
          {"relative_residuals", json::array()},
          {"rms_relative_residual", 0.1},
          {"worst_relative_residual", -0.15},
          {"r_squared", 0.99}}}}}};
  return ProfileOutcomeOf(outcome, "outcome");
}

// 2 standard errors of 5 % around 40 ms; alpha 20 +- 12.706 * 1 us with one degree of freedom.
TEST(ProfileTables, SayHowWellTheyKnow) {
  ProfileOutcome outcome = Outcome(32);
  const auto tables = ProfileTables({outcome});
  ASSERT_EQ(tables.size(), 4u);
  EXPECT_EQ(tables[0].rows[0][4], "40.0 ± 3.9");
  EXPECT_EQ(tables[0].rows[0].back(), "–");
  outcome.machine["load_before"] = 0.12;
  EXPECT_EQ(ProfileTables({outcome})[0].rows[0].back(), "0.1");
  EXPECT_EQ(tables[1].rows[0][1], "b");
  EXPECT_EQ(tables[1].rows[0][4], "75.0 %");
  EXPECT_EQ(tables[2].rows[0], (std::vector<std::string>{"select topk", "1.000"}));
  EXPECT_EQ(tables[3].rows[0][4], "20 ± 13");
  EXPECT_EQ(tables[3].rows[0][6], "8.00");
  EXPECT_EQ(tables[3].rows[0][8], "-15.0 %");
}

// No table has two outcomes of the same name.
TEST(ProfileTables, TellOutcomesApart) {
  const auto tables = ProfileTables({Outcome(16), Outcome(32)});
  EXPECT_EQ(tables[0].rows[0][0], "text-gpt, batch 16");
  EXPECT_EQ(tables[0].rows[1][0], "text-gpt, batch 32");
  EXPECT_EQ(tables[1].rows.size(), 4u);
  EXPECT_EQ(tables[2].columns[2], "text-gpt, batch 32 x2");
  EXPECT_EQ(tables[3].rows[1][0], "text-gpt, batch 32");
  ProfileOutcome on_card = Outcome(32);
  on_card.config.device = Place::kCuda;
  EXPECT_EQ(ProfileTables({on_card})[0].rows[0][0], "text-gpt, cuda");
}

}  // namespace
}  // namespace sparfuse::harness
