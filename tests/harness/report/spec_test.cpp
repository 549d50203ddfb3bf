// Tests the content of spec.json for the figures, and the differences that `explain` shows.
#include "harness/report/spec.hpp"

#include <gtest/gtest.h>

#include "harness/catalog/revisions.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

class Spec : public ::testing::Test {
 protected:
  json Of(const std::string& text, const std::map<std::string, double>& metrics,
          const std::string& head = "") {
    const Catalog catalog = SmallCatalog();
    const Experiment experiment = ParseExperiment(
        TomlFile::Parse("id = \"t\"\n" + head +
                            "[defaults]\nworkload = \"digits-resnet\"\nworkers = 2\n" + text,
                        "t.toml"),
        catalog, "/nonexistent");
    const auto parts = PartsWithTwins(experiment);
    std::vector<TrialRow> rows;
    for (const Part& part : parts) {
      for (const Cell& cell : part.cells) {
        TrialRow row;
        row.trial_id = "t/" + std::to_string(rows.size());
        row.directory = "trials/" + row.trial_id;
        row.config_hash = cell.config_hash;
        row.revisions = nlohmann::json(RevisionsOf(catalog, cell.config));
        row.system_hash = "here";
        row.system = {
            {"cpu_model", "CPU"}, {"cores", 1}, {"memory_gib", 4}, {"gpus", json::array()}};
        if (cell.config.modelled()) row.system = {{"cluster", cell.config.cluster}};
        row.provenance = {{"source", {{"commit", "0123456789abcdef"}, {"dirty", true}}},
                          {"layout", {{"name", "weight"}}}};
        if (disturbed_) row.quiet = {{"disturbed", true}, {"why", "other work"}};
        row.status = "ok";
        row.metrics = metrics;
        row.units = {{"throughput", "images/s"}};
        MakeDirectories(folder_.path() / row.directory);
        WriteFileDurably(folder_.path() / row.directory / "outcome.json",
                         json({{"plans", {{{"step", 0}, {"tensors", {{"dense", 3}}}}}},
                               {"layout", json::array({1, 2, 3, 4, 5, 6, 7})}})
                             .dump());
        rows.push_back(row);
      }
    }
    return ExperimentSpec(experiment, parts, ResultsOf(parts, catalog, rows, "here"), catalog,
                          folder_.path());
  }

  TemporaryFolder folder_;
  bool disturbed_ = false;  // every trial
};

TEST_F(Spec, CellsHaveTheirTrialsNumbersAndRatios) {
  const json spec =
      Of("mode = \"measured\"\n[[axis]]\nmethod = [\"dense\", "
         "\"wfbp\"]\n[[figure]]\nkind = \"grouped_bars\"\nmethods = [\"wfbp\"]\n"
         "normalise = \"wfbp\"\n",
         {{"throughput", 5}}, "reference = \"dense\"\n");
  const json& part = spec["parts"][0];
  const json& wfbp = part["cells"][1];
  EXPECT_EQ(wfbp["trials"][0]["directory"], "trials/t/1");
  EXPECT_EQ(wfbp["config"]["device"], "cpu");
  EXPECT_EQ(wfbp["link"], json({"unshaped", "unshaped link"}));
  EXPECT_EQ(wfbp["declared"], false);
  EXPECT_EQ(spec["form"], kSpecForm);
  EXPECT_EQ(wfbp["metrics"]["throughput"]["unit"], "images/s");
  EXPECT_EQ(wfbp["metrics"]["throughput"]["values"], json({{"0", 5.0}}));
  EXPECT_EQ(wfbp["metrics"]["throughput"]["geometric"]["low"], nullptr);
  EXPECT_EQ(wfbp["ratios"]["dense"]["cell"], 0);
  EXPECT_EQ(wfbp["ratios"]["dense"]["metrics"]["throughput"]["value"], 1.0);
  EXPECT_TRUE(part["cells"][0]["ratios"].contains("wfbp"));  // the figure divides by it
  EXPECT_EQ(wfbp["reference"], 0);
  EXPECT_EQ(part["figures"][0]["cells"], json({1}));
  EXPECT_TRUE(wfbp["oversubscribed"]);  // two ranks on one core
  EXPECT_EQ(wfbp["sources"], json({"0123456789 with changes"}));
  EXPECT_EQ(spec["provenance"]["trials"], 2);
  EXPECT_FALSE(spec["provenance"]["facts"].contains("layout.name"));
  EXPECT_TRUE(spec["headlines"][0].get<std::string>().starts_with("wfbp: 1.00x the throughput"));
  EXPECT_EQ(wfbp["metrics"]["throughput"]["geometric"]["text"], "5.00 images/s");
  EXPECT_EQ(wfbp["ratios"]["dense"]["metrics"]["throughput"]["text"], "1.00x");
  EXPECT_EQ(part["table"]["rows"].size(), 2u);
  EXPECT_EQ(part["table"]["columns"].size(), part["table"]["alignment"].get<std::string>().size());
  EXPECT_TRUE(spec["csv"].get<std::string>().starts_with("what,part,method,"));
}

TEST_F(Spec, WhatWasDisturbedIsNotDrawn) {
  disturbed_ = true;
  const json spec = Of("mode = \"measured\"\nmethod = \"wfbp\"\n",
                       {{"throughput", 5}, {"step_seconds", 2}, {"sent_bytes", 7}});
  EXPECT_TRUE(spec["disturbed"].get<std::string>().starts_with("1 of 1 live trials"));
  const json& cell = spec["parts"][0]["cells"][0];
  EXPECT_EQ(cell["failure"], "disturbed");
  EXPECT_EQ(cell["trials"], json::array());
  EXPECT_FALSE(cell["metrics"].contains("throughput"));
  EXPECT_EQ(cell["metrics"]["sent_bytes"]["average"]["value"], 7);
  EXPECT_EQ(cell["disturbed"][0]["why"], "other work");
  EXPECT_EQ(cell["disturbed"][0]["step_seconds"], 2);
}

TEST_F(Spec, PredictionsAndPointsJoinBothEngines) {
  const json spec =
      Of("[[part]]\nid = \"live\"\n[part.defaults]\nmode = \"measured\"\nmethod = \"wfbp\"\n"
         "[part.repeat]\npredict = true\n[[part.figure]]\nkind = \"prediction\"\n"
         "[[part]]\nid = \"curve\"\n[part.defaults]\nmode = \"modelled\"\nmethod = \"wfbp\"\n"
         "cluster = \"this-machine\"\nranks_per_node = 1\n[[part.figure]]\nkind = \"scaling\"\n",
         {{"throughput", 5}, {"step_seconds", 2}});
  ASSERT_EQ(spec["parts"].size(), 3u);
  const json& prediction = spec["parts"][0]["prediction"];
  EXPECT_EQ(prediction["cells"][0]["twin"], 0);
  EXPECT_EQ(prediction["cells"][0]["error"], 0.0);
  EXPECT_EQ(prediction["median_error"], nullptr);  // all cells are oversubscribed
  EXPECT_EQ(prediction["oversubscribed_median_error"], 0.0);
  json numbers = prediction;
  numbers.erase("table");  // a figure has no table
  EXPECT_EQ(spec["parts"][0]["figures"][0]["prediction"], numbers);
  EXPECT_EQ(spec["parts"][2]["cells"][0]["points"], json::parse("[[0, 0]]"));
}

TEST_F(Spec, MissingRatesAreOfTheSparsifiedTensors) {
  const json spec =
      Of("mode = \"measured\"\nmethod = \"wfbp\"\n[[axis]]\nworkers = [1, 2]\n"
         "[[figure]]\nkind = \"dual_line\"\nx = \"workers\"\n",
         {{"tensors_missing", 1}});
  EXPECT_EQ(spec["parts"][0]["cells"][0]["metrics"]["missing_rate"]["average"]["value"], 0.25);
}

}  // namespace
}  // namespace sparfuse::harness
