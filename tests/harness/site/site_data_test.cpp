// Tests the data of the pages over a store: the place and meaning of each number.
#include "harness/site/site_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/files/canonical.hpp"
#include "harness/store/scrubber.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json MachineOfCores(int cores) {
  return {{"cpu_model", "cpu"}, {"cores", cores}, {"memory_gib", 4}, {"gpus", json::array()}};
}

class TheSite : public ::testing::Test {
 protected:
  TrialRow& Add(const json& system, const std::string& method, int block, double throughput,
                const std::string& mode = "measured", const std::string& experiment = "e") {
    TrialRow row;
    row.trial_id = "t" + std::to_string(rows_.size());
    row.experiment = experiment;
    row.part = "p";
    row.kind = "throughput";
    row.mode = mode;
    row.method = method;
    row.workload = "digits-resnet";
    row.workers = 2;
    const bool dense = method == "dense";
    row.config = {{"method", method},
                  {"workload", row.workload},
                  {"workers", 2},
                  {"kind", "throughput"},
                  {"mode", mode},
                  {"sparsifier", dense ? "none" : "topk"},
                  {"density", dense ? 1.0 : 0.01}};
    row.config_hash = method + mode;
    row.system = system;
    row.system_hash = ContentHash(system);
    row.provenance = json::object();
    row.revisions = {{"method:" + method, 1}};
    row.status = "ok";
    row.block = block;
    row.started_utc = "2026-01-01T00:00:0" + std::to_string(block) + "Z";
    row.metrics = {{"throughput", throughput}, {"step_seconds", 1 / throughput}};
    row.units = {{"throughput", "images/s"}};
    rows_.push_back(row);
    return rows_.back();
  }

  void AddBlocks(const json& system, double dense, double times,
                 const std::string& mode = "measured") {
    for (int block = 0; block < 3; ++block) {
      Add(system, "dense", block, dense * (1 + block), mode);
      Add(system, "wfbp", block, dense * (1 + block) * times, mode);
    }
  }

  std::vector<SiteSystem> Systems() const { return SystemsOf(rows_, described_, "nowhere"); }
  json Data() const { return SiteData(Systems(), catalog_, compare_); }

  // The only cell of a method on the system at index `system`.
  static json CellOf(const json& data, std::size_t system, const std::string& method) {
    json found;
    for (const json& cell : data["cells"]) {
      if (cell["method"] != method || cell["system"] != data["systems"][system]["key"]) continue;
      EXPECT_TRUE(found.is_null());
      found = cell;
    }
    return found;
  }

  std::vector<TrialRow> rows_;
  std::vector<DescribedSystem> described_;
  SiteCatalog catalog_ = {json::array({{{"name", "wfbp"}, {"title", "WFBP"}}}), json::array()};
  CompareRequest compare_;
};

TEST_F(TheSite, RatiosAreOfOneSystemAndNameTheirTrials) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  const json data = Data();
  const json cell = CellOf(data, 0, "wfbp");
  EXPECT_NEAR(cell["ratio"]["value"].get<double>(), 1.5, 1e-9);
  EXPECT_EQ(cell["ratio"]["n"], 3);
  EXPECT_EQ(cell["reference"], "densemeasured");
  EXPECT_EQ(cell["trials"], json::array({"t1", "t3", "t5"}));
  EXPECT_EQ(cell["unit"], "images/s");
  const json dense = CellOf(data, 0, "dense");
  EXPECT_TRUE(dense["is_reference"].get<bool>());
  EXPECT_TRUE(dense["ratio"].is_null());
  EXPECT_NEAR(dense["absolute"]["value"].get<double>(), 100 * std::cbrt(6), 1e-6);
  EXPECT_TRUE(data["pairs"].empty());
}

TEST_F(TheSite, ReferencesOfOtherSystemsAreNotItsOwn) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  const std::size_t first = rows_.size();
  AddBlocks(MachineOfCores(4), 100, 3);
  for (std::size_t i = first; i < rows_.size(); ++i) {  // it has another dense
    if (rows_[i].method != "dense") continue;
    rows_[i].config["method_options"] = {{"threshold_bytes", 1}};
    rows_[i].config_hash = "other dense";
  }
  const json data = Data();
  std::set<double> ratios;
  for (std::size_t i = 0; i < 2; ++i)
    ratios.insert(std::round(10 * CellOf(data, i, "wfbp")["ratio"]["value"].get<double>()));
  EXPECT_EQ(ratios, (std::set<double>{15, 30}));
}

TEST_F(TheSite, MachinesAreComparedTwoAtATimeAndThreeTogether) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  AddBlocks(MachineOfCores(4), 200, 1.5);
  EXPECT_EQ(Data()["pairs"].size(), 1u);
  EXPECT_TRUE(Data()["several"].empty());
  AddBlocks(MachineOfCores(8), 400, 3);
  const json data = Data();
  EXPECT_EQ(data["systems"].size(), 3u);
  EXPECT_EQ(data["pairs"].size(), 3u);
  ASSERT_EQ(data["several"].size(), 1u);
  EXPECT_EQ(data["several"][0]["systems"].size(), 3u);
  for (const json& pair : data["pairs"]) {
    const json& cell = pair["cells"].at(0);
    const double quotient =
        cell["first_ratio"]["value"].get<double>() / cell["second_ratio"]["value"].get<double>();
    EXPECT_EQ(cell["verdict"] == "agree", std::abs(quotient - 1) < 1e-6) << cell.dump(1);
    EXPECT_EQ(cell["config_hash"], "wfbpmeasured");
  }
}

TEST_F(TheSite, ADeclaredClusterIsASystemThatNothingIsComparedWith) {
  const auto cluster = [](const char* profile) {
    return json{{"cluster", "cloud"}, {"profile_hash", profile}, {"kind", "declared"}};
  };
  AddBlocks(MachineOfCores(2), 100, 1.5);
  AddBlocks(cluster("old"), 900, 9, "modelled");
  AddBlocks(cluster("new"), 1000, 2, "modelled");
  const json data = Data();
  ASSERT_EQ(data["systems"].size(), 2u);
  EXPECT_EQ(data["systems"][1]["key"], "cluster cloud");
  EXPECT_TRUE(data["systems"][1]["declared"].get<bool>());
  EXPECT_TRUE(data["pairs"].empty());
  const json cell = CellOf(data, 1, "wfbp");
  EXPECT_EQ(cell["mode"], "modelled");
  EXPECT_NEAR(cell["ratio"]["value"].get<double>(), 2, 1e-9);  // from the newest profile only
  EXPECT_EQ(data["systems"][1]["trials"], 6);
}

TEST_F(TheSite, AMachineAndTheModelOfItAreOneSystemWithTwoKindsOfCells) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  const json model = {
      {"cluster", "this-machine"}, {"profile_hash", "x"}, {"machine", MachineOfCores(2)}};
  AddBlocks(model, 50, 3, "modelled");
  const json data = Data();
  ASSERT_EQ(data["systems"].size(), 1u);
  EXPECT_EQ(data["systems"][0]["hardware"], "cpu, 2 cores, 4 GiB");
  std::map<std::string, double> ratios;
  for (const json& cell : data["cells"]) {
    if (cell["method"] == "wfbp") ratios[cell["mode"]] = cell["ratio"]["value"];
  }
  EXPECT_NEAR(ratios.at("measured"), 1.5, 1e-9);
  EXPECT_NEAR(ratios.at("modelled"), 3, 1e-9);
}

TEST_F(TheSite, WhatFailedIsThereWithItsReasonAndNoNumber) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  TrialRow& failed = Add(MachineOfCores(2), "zen", 0, 1);
  failed.status = "failed";
  failed.failure_kind = "timeout";
  failed.annotations = {"/somewhere/on/this/disk.txt is gone"};
  MakeShareable(rows_, "/nonexistent");  // as for trials that others read
  const json cell = CellOf(Data(), 0, "zen");
  EXPECT_EQ(cell["lacks"], "timeout");
  EXPECT_TRUE(cell["ratio"].is_null());
  EXPECT_TRUE(cell["absolute"].is_null());
  EXPECT_EQ(cell["failed"][0]["message"], "disk.txt is gone");
}

TEST_F(TheSite, DisturbedTimesCountOnlyWhereTheyAreKept) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  for (TrialRow& row : rows_) {
    if (row.block == 2) row.quiet = {{"disturbed", true}, {"why", "other work"}};
  }
  const json apart = CellOf(Data(), 0, "wfbp");
  EXPECT_EQ(apart["ratio"]["n"], 2);
  EXPECT_EQ(apart["apart"], 1);
  compare_.disturbed = DisturbedTrials::kCount;
  const json kept = CellOf(Data(), 0, "wfbp");
  EXPECT_EQ(kept["ratio"]["n"], 3);
  EXPECT_EQ(kept["apart"], 0);
  EXPECT_EQ(kept["disturbed"], 1);
}

TEST_F(TheSite, EqualTrialsGiveEqualDataInWhateverOrderTheyCame) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  AddBlocks(MachineOfCores(4), 300, 1.2);
  SortByAge(rows_);
  const std::string data = Data().dump();
  std::ranges::reverse(rows_);
  SortByAge(rows_);
  EXPECT_EQ(Data().dump(), data);
}

TEST_F(TheSite, MethodsThatThisProgramLacksAreNamedAllTheSame) {
  AddBlocks(MachineOfCores(2), 100, 1.5);
  const json methods = Data()["methods"];
  ASSERT_EQ(methods.size(), 2u);
  EXPECT_TRUE(methods[0]["listed"].is_null());  // dense, of this catalog
  EXPECT_EQ(methods[1]["listed"]["title"], "WFBP");
}

TEST_F(TheSite, SystemsHaveTheNameOfTheOneFileThatDescribesThem) {
  const auto file = [](std::optional<int> cores, std::vector<NodeCard> cards = {}) {
    Node node;
    node.processor = "cpu";
    node.cores = cores;
    node.memory_gib = 4;
    node.cards = std::move(cards);
    return std::vector{node};
  };
  const NodeCard cards{"H100", 80, 2};
  const System two = SystemOf(MachineOfCores(2));
  EXPECT_TRUE(IsDescribedBy(two, file(2)));
  EXPECT_FALSE(IsDescribedBy(two, file(4)));
  EXPECT_FALSE(IsDescribedBy(two, file({})));
  EXPECT_FALSE(IsDescribedBy(two, file(2, {cards})));
  json with_cards = MachineOfCores(2);
  with_cards["gpus"] = {"H100", "H100"};
  EXPECT_TRUE(IsDescribedBy(SystemOf(with_cards), file(2, {cards})));
  json of_nodes = {{"nodes", json::array({MachineOfCores(2)})}};
  EXPECT_TRUE(IsDescribedBy(SystemOf(of_nodes), file(2)));
  of_nodes["nodes"].push_back(MachineOfCores(4));
  EXPECT_FALSE(IsDescribedBy(SystemOf(of_nodes), file(2)));

  AddBlocks(MachineOfCores(2), 100, 1.5);
  AddBlocks(MachineOfCores(4), 100, 1.5);
  described_ = {{"lab", json::object(), file(2)}};
  std::vector<std::string> names;
  for (const SiteSystem& system : Systems()) names.push_back(system.side.name);
  EXPECT_EQ(std::ranges::count(names, "lab"), 1);
  described_.push_back({"the same", json::object(), file(2)});  // both fit, so that neither is used
  for (const SiteSystem& system : Systems()) EXPECT_EQ(system.side.name, system.key);
}

}  // namespace
}  // namespace sparfuse::harness
