// Tests the numbers that figures draw, and their tables: panels, bars, gains, published numbers.
#include "harness/report/figures/figure_numbers.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "harness/records/cell_keys.hpp"
#include "harness/report/figures/panels.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;
using Rows = std::vector<Row>;

// Cells on a declared cluster, each with one trial, and published rows of a paper that calls the
// methods a, b and c A, B and C.
class Figures : public ::testing::Test {
 protected:
  Cell& Add(const std::string& method, int workers, NamedValues<double> metrics,
            double density = 0.01) {
    Cell& cell = cells_.emplace_back();
    cell.config.method = cell.label = method;
    cell.config.workload = "m";
    cell.config.workers = workers;
    cell.config.mode = Mode::kModelled;
    cell.config.cluster = "lab";
    cell.config.sparsifier = density < 1 ? "dgc" : "none";
    cell.config.density = density;
    trials_.emplace_back().metrics = std::move(metrics);
    return cell;
  }

  json& AddRow(const std::string& method, int workers, const std::string& value,
               const std::string& metric = "throughput") {
    return rows_.emplace_back(json{{"artifact", "Fig1"},
                                   {"model", "M"},
                                   {"workers", std::to_string(workers)},
                                   {"network", "A100; 10 Gbps"},
                                   {"method", method},
                                   {"sparsifier", "DGC(assumed)"},
                                   {"density", "0.01"},
                                   {"metric", metric},
                                   {"value", value},
                                   {"unit", "units/s"},
                                   {"confidence", "digitised; by eye"},
                                   {"of", "m"}});
  }

  json Completed(json figure, const std::vector<std::string>& calibration = {}) {
    part_.cells.assign(cells_.begin(), cells_.end());
    result_ = {};
    result_.part = &part_;
    figure["cells"] = json::array();
    for (std::size_t i = 0; i < part_.cells.size(); ++i) {
      Cell& cell = part_.cells[i];
      cell.json = ToJson(cell.config);
      CellResult& made = result_.cells.emplace_back();
      made.cell = &cell;
      if (!trials_[i].metrics.empty()) made.trials[0] = &trials_[i];
      if (trials_[i].metrics.empty()) made.failure = "not run";
      result_.settings.push_back(CanonicalWithout(cell.json, MethodKeys()));
      figure["cells"].push_back(i);
    }
    if (!rows_.empty()) {
      figure["published"] = {{"paper", "Paper"},
                             {"methods", {{"a", {"A"}}, {"b", {"B"}}, {"c", {"C"}}}},
                             {"rows", rows_}};
    }
    CompleteFigure(figure, result_, calibration, catalog_);
    return figure;
  }

  static Rows RowsIn(const json& figure, std::size_t table = 0, std::size_t group = 0) {
    return figure["tables"][table]["groups"][group][1].get<Rows>();
  }
  static Row Rests(const json& figure) {
    Row rests;
    for (const json& panel : figure["panels"]) rests.push_back(panel["rest"]);
    return rests;
  }

  Catalog catalog_ = SmallCatalog();
  std::deque<Cell> cells_;
  std::deque<TrialRow> trials_;
  Part part_;
  PartResult result_;
  json rows_ = json::array();
};

TEST_F(Figures, ADenseCellStandsInThePanelOfEachDensity) {
  Add("a", 8, {{"throughput", 1}}, 1);
  Add("b", 8, {{"throughput", 2}}, 0.01);
  Add("b", 8, {{"throughput", 2}}, 0.001);
  const json figure = Completed({{"kind", "grouped_bars"}});
  EXPECT_EQ(Rests(figure),
            Row({"density 0.001, cluster lab, modelled", "density 0.01, cluster lab, modelled"}));
  EXPECT_EQ(figure["panels"][0]["cells"], json({0, 2}));
  EXPECT_EQ(figure["panels"][1]["cells"], json({0, 1}));
  EXPECT_EQ(figure["panels"][0]["head"], "m");
  EXPECT_TRUE(figure["tables"].empty());  // nothing is published
}

TEST_F(Figures, WorkloadsHavePanelsInOrderOfAppearanceAndTablesTheirNames) {
  for (const char* name : {"table:two@0123456789ab", "table:one@0123456789ab"})
    Add("a", 8, {{"throughput", 1}}).config.workload = name;
  const json figure = Completed({{"kind", "bytes"}});
  ASSERT_EQ(figure["panels"].size(), 2u);
  EXPECT_EQ(figure["panels"][0]["head"], "two");
  EXPECT_EQ(figure["panels"][1]["head"], "one");
}

TEST_F(Figures, LinksAreInFullInHeadingsAloneAndSortBySpeed) {
  for (const double gbps : {100.0, 10.0}) {
    Cell& cell = Add("a", 2, {{"throughput", 1}});
    cell.config.mode = Mode::kEmulated;
    cell.config.cluster = "";
    cell.config.link = LinkShape{.gbps = gbps, .alpha_us = 200};
  }
  const json figure = Completed({{"kind", "breakdown"}});
  EXPECT_EQ(Rests(figure),
            Row({"2 workers, 10 Gbit/s, emulated", "2 workers, 100 Gbit/s, emulated"}));
  EXPECT_EQ(figure["panels"][0]["heading"],
            "m, 2 workers, 10 Gbit/s link, 200 µs per message, emulated");
}

TEST_F(Figures, RatiosStandBesideThePapersRatiosAndItsText) {
  Add("a", 8, {{"throughput", 100}});
  Add("b", 8, {{"throughput", 180}});
  Add("a", 16, {{"throughput", 200}});
  Add("b", 16, {{"throughput", 300}});
  AddRow("A", 8, "1000");
  AddRow("B", 8, "2000");
  AddRow("Z", 8, "500");
  json& stated = AddRow("B vs A", 8, "90");
  stated["stated"] = true;
  stated["unit"] = "%";
  const json figure = Completed({{"kind", "grouped_bars"}, {"normalise", "a"}});
  EXPECT_EQ(figure["tables"][0]["columns"],
            json({"method", "workers", "ours", "published", "ours / a", "published / a",
                  "of the ratios: ours / published − 1", "n", "published in"}));
  EXPECT_EQ(RowsIn(figure), (Rows{{"b", "8", "180 units/s", "2\u2009000 units/s", "1.80x",
                                   "2.00x (text 1.90x)", "-10.0 %", "1", "Fig1"},
                                  {"Z", "8", "–", "500 units/s", "–", "0.50x", "–", "–", "Fig1"},
                                  {"b", "16", "300 units/s", "–", "1.50x", "–", "–", "1", "–"}}));
  const json& bar = figure["panels"][0]["bars"][0];
  EXPECT_EQ(bar["value"], 1.8);
  EXPECT_EQ(bar["low"], nullptr);
  EXPECT_EQ(bar["cell"], 1);
  EXPECT_EQ(bar["printed"], json({{1, 2.0}, {3, 1.9}}));
  EXPECT_EQ(figure["panels"][0]["bars"][1]["cell"], nullptr);
  EXPECT_EQ(figure["names"], json::array({{"b", "b"}}));
  EXPECT_EQ(figure["published"]["source"], "Published: Paper, Fig1 (M); digitised.");
}

TEST_F(Figures, NumbersThatAreNoRatiosNameTheUnitThatStandsForThePapers) {
  Add("a", 8, {{"throughput", 1100}});
  AddRow("A", 8, "1000 +- 3")["unit"] = "samples/s (per node)";
  const json figure = Completed({{"kind", "grouped_bars"}});
  EXPECT_EQ(RowsIn(figure),
            (Rows{{"a", "8", "1\u2009100 units/s", "1\u2009000 units/s", "+10.0 %", "1", "Fig1"}}));
  EXPECT_EQ(figure["tables"][0]["notes"][1],
            "The paper calls the unit samples/s, which is taken as units/s.");
}

TEST_F(Figures, PublishedPlacesAreFoundByDensityAndStandBetweenOurs) {
  Add("a", 8, {{"throughput", 1}}, 0.1);
  Add("a", 8, {{"throughput", 2}}, 0.01);
  AddRow("A", 8, "5")["density"] = "0.05";
  const json figure = Completed({{"kind", "grouped_bars"}, {"x", "density"}});
  EXPECT_EQ(figure["panels"][0]["places"], json({"0.01", "0.05", "0.1"}));
  EXPECT_EQ(RowsIn(figure)[1], Row({"a", "0.05", "–", "5.00 units/s", "–", "–", "Fig1"}));
}

TEST_F(Figures, AMethodWithTwoCellsAtAPlaceHasItsLabels) {
  Add("a", 8, {{"throughput", 1}});
  Cell& other = Add("a", 8, {{"throughput", 2}});
  other.label = "a (ranges)";
  other.config.method_options.planner = "layer-wise";
  AddRow("A", 8, "5");
  const json figure = Completed({{"kind", "grouped_bars"}});
  const std::vector<Row> names = {{"a", "a"}, {"a (ranges)", "a (ranges)"}};
  EXPECT_EQ(figure["names"], json(names));
  EXPECT_EQ(RowsIn(figure).size(), 2u);
}

TEST_F(Figures, RowsOfAnotherSettingAreSaidToBe) {
  Add("a", 8, {{"throughput", 1}});
  AddRow("A", 64, "5");
  const json figure = Completed({{"kind", "breakdown"}});
  EXPECT_EQ(figure["panels"][0]["rows"], json({0}));
  EXPECT_EQ(figure["published"]["elsewhere"],
            "The paper's setting differs: 64 workers, A100, 10 Gbps.");
  rows_[0]["workers"] = "8";
  EXPECT_EQ(Completed({{"kind", "breakdown"}})["published"]["elsewhere"], "");
}

TEST_F(Figures, PartsOfAStepStandBesideThePapersInMilliseconds) {
  Add("a", 8, {{"step_seconds", 0.3}, {"exposed_communication_seconds", 0.081}});
  AddRow("A", 8, "60", "time/iter:NOCT")["unit"] = "ms";
  AddRow("Z", 8, "2", "time/iter:Forward")["unit"] = "s";
  EXPECT_EQ(RowsIn(Completed({{"kind", "breakdown"}})),
            (Rows{{"a", "NOCT", "81.0 ms", "60.0 ms", "+35.0 %", "1"},
                  {"Z", "Forward", "–", "2\u2009000 ms", "–", "–"}}));
  const json figure = Completed({{"kind", "breakdown"}}, {"Paper/Fig1/A"});
  EXPECT_EQ(RowsIn(figure)[0][4], "calibration input");
  EXPECT_EQ(figure["published"]["rows"][0]["calibrated"], true);
  EXPECT_EQ(figure["published"]["rows"][1]["calibrated"], false);
}

TEST_F(Figures, GainsAreOverTheVariantBefore) {
  Add("c", 8, {{"throughput", 150}});
  Add("a", 8, {{"throughput", 100}});
  Add("b", 8, {{"throughput", 120}});
  AddRow("B", 8, "600");
  AddRow("C", 8, "660");
  json& stated = AddRow("C vs B", 8, "12.39");
  stated["stated"] = true;
  stated["unit"] = "%";
  const json figure = Completed({{"kind", "ablation"}, {"methods", {"a", "b", "c"}}});
  EXPECT_EQ(figure["variants"], json({"a", "b", "c"}));
  EXPECT_EQ(RowsIn(figure), (Rows{{"b over a", "8", "+20.0 %", "–", "–", "1"},
                                  {"c over b", "8", "+25.0 %", "+10.0 %", "up to 12.39 %", "1"}}));
  EXPECT_EQ(figure["panels"][0]["steps"][0]["largest"], nullptr);
  EXPECT_EQ(figure["panels"][0]["steps"][1]["largest"][0], 1);
  EXPECT_NEAR(figure["panels"][0]["steps"][1]["largest"][1].get<double>(), 10, 1e-9);
  EXPECT_EQ(figure["panels"][0]["steps"][1]["stated"], 2);
  EXPECT_EQ(Completed({{"kind", "ablation"}})["variants"], json({"c", "a", "b"}));
}

TEST_F(Figures, FinalMetricsOverTheReferencesStandBesidePublishedRatios) {
  part_.reference = "a";
  Add("a", 8, {{"final_metric", 0.8}});
  Add("b", 8, {{"final_metric", 0.6}});
  AddRow("B", 8, "0.977");
  const json figure = Completed({{"kind", "normalised_bars"}});
  EXPECT_EQ(figure["tables"][0]["columns"],
            json({"method", "workload", "ours", "ours / a", "published / a",
                  "of the ratios: ours / published − 1", "n", "published in"}));
  EXPECT_EQ(RowsIn(figure), (Rows{{"b", "m", "0.600", "0.75x", "0.98x", "-23.2 %", "1", "Fig1"}}));
  const json& panel = figure["panels"][0];
  EXPECT_EQ(panel["head"], "");
  EXPECT_EQ(panel["places"], json::array({"m"}));
  ASSERT_EQ(panel["bars"].size(), 1u);
  EXPECT_EQ(panel["bars"][0]["printed"], json::array({json::array({0, 0.977})}));
  EXPECT_EQ(figure["normalise"], "a");
}

TEST_F(Figures, SensitivityNamesTheInputThatTurnsTheOrderRound) {
  part_.reference = "a";
  const auto add = [&](double factor, double b, double c) {
    for (const auto& [method, value] : {std::pair("a", 100.0), {"b", b}, {"c", c}}) {
      Cell& cell = Add(method, 8, {{"throughput", value}});
      if (factor != 1) cell.config.inputs = {{"host_overhead", factor}};
    }
  };
  add(1, 150, 140);
  add(0.5, 160, 145);
  add(2, 130, 135);
  const json figure = Completed({{"kind", "sensitivity"}});
  EXPECT_EQ(figure["tables"][0]["columns"],
            json({"input", "factor", "b / a", "c / a", "order that changes", "n"}));
  EXPECT_EQ(RowsIn(figure), (Rows{{"as declared", "1", "1.50x", "1.40x", "", "1"},
                                  {"host overhead", "0.5", "1.60x", "1.45x", "", "1"},
                                  {"host overhead", "2", "1.30x", "1.35x", "c before b", "1"}}));
  EXPECT_EQ(figure["tables"][0]["notes"][0],
            "Order by throughput: 1 of 2 changes reverse part of it.");
}

TEST_F(Figures, WhatHasNotRunSaysSo) {
  Add("a", 8, {});
  Add("b", 8, {});
  AddRow("B", 8, "5");
  const json bars = Completed({{"kind", "grouped_bars"}, {"normalise", "a"}});
  EXPECT_EQ(bars["panels"][0]["bars"][0]["why"], "not run");
  EXPECT_EQ(RowsIn(Completed({{"kind", "ablation"}}))[0][2], "not run");
}

TEST_F(Figures, AZeroIsNoMissingValue) {
  Add("a", 8, {{"tensors_missing", 0}});
  Add("b", 8, {{"throughput", 1}});
  const json figure = Completed({{"kind", "grouped_bars"}, {"y", "tensors_missing"}});
  EXPECT_EQ(figure["panels"][0]["bars"][0]["why"], "exactly 0");
  EXPECT_EQ(figure["panels"][0]["bars"][1]["why"], "no value");
}

TEST(ImportedFor, FindsThoseWhoseStatedSettingIsTheCells) {
  CellConfig dense, sparse;
  dense.method = "a";
  sparse.method = "b";
  sparse.sparsifier = "dgc@safusion";
  sparse.density = 0.01;
  for (CellConfig* config : {&dense, &sparse}) {
    config->workload = "m";
    config->workers = 2;
    config->batch_per_worker = 16;
    config->link = LinkShape{.gbps = 1};
  }
  const auto stands_beside = [&](const CellConfig& config, const json& changed) {
    TrialRow row;
    row.method = "a";
    row.workload = "m";
    row.workers = 2;
    json stated = {{"density", nullptr},
                   {"sparsifier", nullptr},
                   {"batch_per_worker", nullptr},
                   {"network_gbps", nullptr}};
    stated.update(changed);
    if (changed.contains("method")) row.method = changed["method"];
    if (changed.contains("workload")) row.workload = changed["workload"];
    if (changed.contains("workers")) row.workers = changed["workers"];
    row.config = stated;
    PartResult part;
    part.imported.emplace_back().any = &row;
    return !ImportedFor(part, config).empty();
  };
  EXPECT_TRUE(stands_beside(dense, json::object()));
  EXPECT_TRUE(stands_beside(dense, {{"batch_per_worker", 16}, {"network_gbps", 1.0}}));
  EXPECT_TRUE(stands_beside(dense, {{"density", 0.1}}));  // which a dense cell does not have
  EXPECT_TRUE(stands_beside(sparse, {{"method", "b"}, {"density", 0.01}, {"sparsifier", "DGC"}}));
  for (const json& other : {json{{"workers", 4}}, json{{"method", "c"}}, json{{"workload", "n"}},
                            json{{"batch_per_worker", 8}}, json{{"network_gbps", 10.0}}}) {
    EXPECT_FALSE(stands_beside(dense, other)) << other;
  }
  EXPECT_FALSE(stands_beside(sparse, {{"method", "b"}, {"density", 0.1}}));
  EXPECT_FALSE(stands_beside(sparse, {{"method", "b"}, {"sparsifier", "topk"}}));
}

TEST(PublishedNames, SparsifiersHaveOne) {
  for (const char* name : {"DGC(assumed per Exp4 text)", "dgc", "dgc@safusion", "DGC"})
    EXPECT_EQ(PlainName(name), "dgc");
}

}  // namespace
}  // namespace sparfuse::harness
