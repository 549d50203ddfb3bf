// Tests the comparisons between systems, and the reasons why some are not made.
#include "harness/compare/comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/compare/comparison_table.hpp"
#include "harness/records/node.hpp"
#include "harness/store/origin.hpp"
#include "tests/harness/compare/modelled/compared_sides.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json ConfigOf(const std::string& method, int workers) {
  const bool dense = method == "dense";
  return {{"method", method},
          {"workload", "digits-resnet"},
          {"workers", workers},
          {"kind", "throughput"},
          {"mode", "measured"},
          {"sparsifier", dense ? "none" : "topk"},
          {"density", dense ? 1.0 : 0.01}};
}

class Comparing : public ::testing::Test, protected TwoSides {
 protected:
  Comparing()
      : TwoSides([](const TrialRow& row) {
          return json{{"plans", json::array({row.provenance["plan"]})}};
        }) {}

  TrialRow& Add(std::size_t side, const std::string& method, int block, double throughput,
                int workers = 2) {
    TrialRow row;
    row.part = "p";
    row.mode = "measured";
    row.method = method;
    row.workers = workers;
    row.config = ConfigOf(method, workers);
    row.config_hash = method + std::to_string(workers);
    row.provenance = {{"machine", {{"placement", json::array({"n1", "n2"})}}},
                      {"software", {{"mpi", "4.1"}}},
                      {"plan", {{"unit_sizes", "1,1"}}}};
    row.revisions = {{"method:" + method, 1}};
    row.block = block;
    row.metrics = {{"throughput", throughput},
                   {"step_seconds", 1 / throughput},
                   {"exposed_communication_seconds", 0.5 / throughput}};
    return AddRow(side, std::move(row));
  }

  // Adds blocks of dense and of a method that is `times` times as fast.
  void AddBlocks(std::size_t side, double dense, double times, int blocks = 4) {
    for (int block = 0; block < blocks; ++block) {
      const double noise = 1 + 0.002 * block;
      Add(side, "dense", block, dense * (1 + 0.1 * block));
      Add(side, "wfbp", block, dense * (1 + 0.1 * block) * times * noise);
    }
  }

  void AddEqualSides() {
    for (const std::size_t side : {0u, 1u}) AddBlocks(side, 100, 1.5);
  }

  SystemComparison Compared() const { return CompareSystems(sides_, request_); }
  const ComparedCell& Only(const SystemComparison& comparison) const {
    EXPECT_EQ(comparison.parts.size(), 1u);
    EXPECT_EQ(comparison.parts.at(0).cells.size(), 1u);
    return comparison.parts[0].cells[0];
  }
  // The verdict of the only cell.
  SideVerdict Verdict() const { return Only(Compared()).verdicts.at(0); }

  CompareRequest request_;
};

TEST_F(Comparing, RatiosAreWithinBlocksAndAbsoluteValuesDecideNothing) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 900, 1.5);
  const SideVerdict verdict = Verdict();
  EXPECT_EQ(verdict.why_not, "");
  EXPECT_EQ(verdict.contrast.agreement, Agreement::kAgree);
  EXPECT_NEAR(verdict.contrast.ratio.value, 1, 1e-9);
}

TEST_F(Comparing, SaysOnWhichMachineTheGainIsLarger) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 100, 2.0);
  EXPECT_EQ(Verdict().contrast.agreement, Agreement::kSecond);
  EXPECT_NEAR(Verdict().contrast.ratio.value, 0.75, 1e-9);
}

TEST_F(Comparing, AMethodThatNeverReachedItsTargetHasNoRatioAndSaysSo) {
  request_.metric = "samples_to_target";
  AddEqualSides();
  const auto set = [&](std::size_t side, bool dense, bool wfbp) {
    for (TrialRow& row : sides_[side].rows) {
      json config = ConfigOf(row.method, row.workers);
      config["target"] = 0.9;
      row.config = config;
      row.metrics = {};
      if (!(row.method == "dense" ? dense : wfbp)) continue;
      for (const char* metric : {"steps_to_target", "samples_to_target"})
        row.metrics.Set(metric, 100);
    }
  };
  set(0, true, true);
  set(1, true, false);
  EXPECT_EQ(Verdict().why_not, "b: target not reached");
  set(1, false, true);
  EXPECT_EQ(Verdict().why_not, "b: target not reached of dense");
  set(1, true, true);
  EXPECT_EQ(Verdict().why_not, "");
}

TEST_F(Comparing, AStoreAgainstItselfNeverDiffers) {
  AddBlocks(0, 100, 1.5);
  for (int block = 0; block < 4; ++block) Add(0, "safusion", block, 80 + 30 * block);
  sides_[1].rows = sides_[0].rows;
  const SystemComparison comparison = Compared();
  ASSERT_EQ(comparison.parts.at(0).cells.size(), 2u);
  for (const ComparedCell& cell : comparison.parts[0].cells) {
    const Agreement agreement = cell.verdicts[0].contrast.agreement;
    EXPECT_TRUE(agreement == Agreement::kAgree || agreement == Agreement::kUndecided);
    EXPECT_DOUBLE_EQ(cell.verdicts[0].contrast.ratio.value, 1);
  }
  EXPECT_TRUE(comparison.differences.empty());
}

// Both stores count blocks from 0: a ratio of one store's method to the other's dense belongs to no
// machine.
TEST_F(Comparing, BlocksOfTwoStoresOnLikeMachinesAreNotOne) {
  AddBlocks(1, 100, 1.5);
  const auto add = [&](const char* origin, const char* method, double throughput) {
    Add(0, method, 0, throughput).origin = origin;
    sides_[0].rows.back().provenance["machine"]["placement"] = json::array({"n1", "n1"});
  };
  add("one", "dense", 100);
  add("one", "wfbp", 150);
  add("two", "dense", 200);
  TellStoresApart(sides_[0].rows, "");
  EXPECT_EQ(Only(Compared()).sides[0].ratios, std::vector<double>{1.5});
  add("two", "wfbp", 320);
  TellStoresApart(sides_[0].rows, "");
  EXPECT_EQ(Only(Compared()).sides[0].ratios, (std::vector<double>{1.5, 1.6}));
}

TEST_F(Comparing, ASideWithoutTheReferenceIsNotComparable) {
  AddBlocks(0, 100, 1.5);
  for (int block = 0; block < 4; ++block) Add(1, "wfbp", block, 100);
  EXPECT_EQ(Verdict().why_not, "b: no dense in this setting to compare with");
}

TEST_F(Comparing, OtherRevisionsAreNotComparable) {
  AddEqualSides();
  for (TrialRow& row : sides_[1].rows) {
    if (row.method == "wfbp") row.revisions = {{"method:wfbp", 2}};
  }
  EXPECT_EQ(Verdict().why_not, "method:wfbp has revision 1 and 2");
}

TEST_F(Comparing, SoAreOtherRevisionsOfTheReference) {
  AddEqualSides();
  for (TrialRow& row : sides_[1].rows) {
    if (row.method == "dense") row.revisions = {{"method:dense", 7}};
  }
  EXPECT_EQ(Verdict().why_not, "method:dense has revision 1 and 7");
}

TEST_F(Comparing, ARatioWithinASideIsOfOneRevision) {
  AddEqualSides();
  for (TrialRow& row : sides_[0].rows)
    row.revisions = {{"method:" + row.method, 1}, {"engine:live", row.method == "dense" ? 1 : 2}};
  EXPECT_EQ(Verdict().why_not, "a: dense was run with another revision of engine:live");
}

TEST_F(Comparing, OfSeveralRevisionsTheNewestCounts) {
  AddBlocks(0, 100, 1.5);
  for (TrialRow& row : sides_[0].rows) row.revisions = {{"older", 1}};
  AddBlocks(0, 100, 2.0);
  AddBlocks(1, 100, 2.0);
  EXPECT_EQ(Verdict().contrast.agreement, Agreement::kAgree);
}

TEST_F(Comparing, AnotherRegimeHasNoVerdict) {
  AddEqualSides();
  for (TrialRow& row : sides_[1].rows)
    row.metrics.Set("exposed_communication_seconds", 0.1 * row.metrics.at("step_seconds"));
  EXPECT_SAYS(Verdict().why_not,
              "other regime: the reference exposes communication of 1 and 0.111");
}

TEST_F(Comparing, CardsThatReachEachOtherByPcieAreAnotherRegimeThanByNvlink) {
  AddEqualSides();
  const auto set_cards = [&](std::size_t side, json cards, const char* close, const char* far) {
    for (TrialRow& row : sides_[side].rows) {
      row.provenance["machine"] = {{"placement", {"n1", "n1"}},
                                   {"cards", std::move(cards)},
                                   {"gpus",
                                    {{"topology",
                                      {{{"cards", {0, 1}}, {"kind", close}},
                                       {{"cards", {0, 2}}, {"kind", far}},
                                       {{"cards", {1, 2}}, {"kind", far}}}}}}};
      cards = row.provenance["machine"]["cards"];
    }
  };
  set_cards(0, {"cuda:0 H100", "cuda:1 H100"}, "NV18", "SYS");
  set_cards(1, {"cuda:0 H100", "cuda:1 H100"}, "PHB", "SYS");
  EXPECT_EQ(Verdict().why_not, "other regime: cards reach each other by NVLink and by PCIe");
  const SystemComparison comparison = Compared();
  const std::string text = TextOf({comparison, sides_, request_});
  EXPECT_NE(text.find("within a node, cards by NVLink"), std::string::npos) << text;
  const json numbers = ComparisonJson({comparison, sides_, request_});
  EXPECT_EQ(numbers["settings"][0]["regimes"][1]["links"], "within a node, cards by PCIe");
  EXPECT_NEAR(numbers["settings"][0]["regimes"][0]["communication"].get<double>(), 1, 1e-9);
  // The regime follows from the used cards and their worst link.
  set_cards(0, {"cuda:0 H100", "cuda:2 H100"}, "NV18", "SYS");
  EXPECT_EQ(Verdict().why_not,
            "other regime: cards reach each other through the system and by PCIe");
  for (TrialRow& row : sides_[0].rows)
    row.provenance["environment"] = {{"CUDA_VISIBLE_DEVICES", "0,2,1"}};
  set_cards(1, {"cuda:0 H100", "cuda:1 H100"}, "NV18", "SYS");
  EXPECT_EQ(Verdict().why_not, "");  // cuda:2 is card 1
  // A single card has no links.
  set_cards(0, {"cuda:0 H100", "cuda:0 H100"}, "SYS", "SYS");
  EXPECT_EQ(Verdict().why_not, "");
}

// The ratio of the other blocks would be a choice among blocks.
TEST_F(Comparing, ABlockWithAZeroIsNotLeftOut) {
  AddEqualSides();
  request_.metric = "exposed_communication_seconds";
  EXPECT_EQ(Verdict().why_not, "");
  for (TrialRow& row : sides_[1].rows) {
    if (row.block == 2 && row.method == "wfbp") row.metrics.Set("exposed_communication_seconds", 0);
  }
  EXPECT_EQ(Verdict().why_not, "b: exposed_communication_seconds is not above 0 in 1 of 4 blocks");
}

TEST_F(Comparing, RanksOfOneNodeAreAnotherRegimeThanNodes) {
  AddEqualSides();
  for (TrialRow& row : sides_[1].rows)
    row.provenance["machine"]["placement"] = json::array({"n1", "n1"});
  EXPECT_EQ(Verdict().why_not, "other regime: ranks are linked between nodes and within a node");
}

TEST_F(Comparing, TheReferenceOfEqualSparsityComesFirst) {
  request_.reference = "topk-sum";
  for (std::size_t side : {0, 1}) {
    for (int block = 0; block < 3; ++block) {
      Add(side, "wfbp", block, 150);
      for (const double density : {0.01, 0.1}) {
        TrialRow& row = Add(side, "topk-sum", block, density == 0.01 ? 100 : 50);
        row.config["density"] = density;
        row.config_hash += std::to_string(density);
      }
    }
  }
  EXPECT_NEAR(Only(Compared()).sides[0].ratio->value, 1.5, 1e-9);
}

TEST_F(Comparing, NamesWhatDiffersAndWhatIsHiddenWithinASide) {
  AddEqualSides();
  sides_[1].rows[2].provenance["software"]["mpi"] = "5.0";
  const auto differences = Compared().differences;
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].name, "system.cpu_model");
  EXPECT_EQ(differences[0].values, (std::vector<std::string>{"cpu a", "cpu b"}));
  EXPECT_FALSE(differences[0].hidden);
  EXPECT_EQ(differences[1].name, "software.mpi");
  EXPECT_EQ(differences[1].values, (std::vector<std::string>{"4.1", "4.1 | 5.0"}));
  EXPECT_TRUE(differences[1].hidden);
}

// A node in the form of launch.nodes and of the system of a trial over hosts.
json NodeOf(const std::string& processor, const json& cards, int count) {
  return {{"cpu_model", processor},
          {"cores", 8},
          {"memory_gib", 64},
          {"gpus", cards},
          {"network", json::array({{{"kind", "Ethernet"}, {"gbps", 25.0}}})},
          {"count", count}};
}

void RunOn(SystemSide& side, const std::vector<json>& nodes) {
  for (TrialRow& row : side.rows) {
    row.system = ToJson(SystemOfNodes(NodesIn(nodes)));
    row.provenance["nodes"] = nodes;
  }
}

bool Has(const std::vector<std::string>& sentences, const std::string& sentence) {
  return std::ranges::find(sentences, sentence) != sentences.end();
}

TEST_F(Comparing, NamesTheCardsOfTheNodesThatRan) {
  AddEqualSides();
  RunOn(sides_[0], {NodeOf("EPYC", json::array({"NVIDIA H100"}), 2)});
  RunOn(sides_[1], {NodeOf("EPYC", json::array({"NVIDIA A100"}), 4)});
  EXPECT_EQ(Compared().hardware,
            std::vector<std::string>{"cards of b: NVIDIA A100; of a: NVIDIA H100"});
}

TEST_F(Comparing, NamesUnlikeNodesOfOneSystem) {
  AddEqualSides();
  RunOn(sides_[0], {NodeOf("EPYC", json::array(), 2)});
  RunOn(sides_[1], {NodeOf("EPYC", json::array(), 3), NodeOf("Xeon", json::array(), 1)});
  const SystemComparison comparison = Compared();
  EXPECT_TRUE(
      Has(comparison.hardware,
          "b has different nodes: 3 of EPYC, 8 cores, 64 GiB, network Ethernet 25 Gbit/s; 1 "
          "of Xeon, 8 cores, 64 GiB, network Ethernet 25 Gbit/s"));
  EXPECT_TRUE(Has(comparison.hardware, "processor of b: EPYC | Xeon; of a: EPYC"));
  ASSERT_EQ(comparison.differences.size(), 1u);
  EXPECT_EQ(comparison.differences[0].name, "system.cpu_model");
  EXPECT_TRUE(comparison.differences[0].hidden);
}

TEST_F(Comparing, HostsAndCoresOfRanksAreHiddenWhereTheyVaryWithinASetting) {
  for (const std::size_t side : {0, 1}) {
    for (const int workers : {2, 4}) {
      for (const char* method : {"dense", "wfbp"}) {
        for (int block = 0; block < 3; ++block) {
          TrialRow& row = Add(side, method, block, 100 + block, workers);
          row.system["cpu_model"] = "cpu";
          row.provenance["launch"] = {{"cores_a_rank", workers == 2 ? "8" : "4"}};
          row.provenance["machine"]["placement"] =
              workers == 2 ? json({"n1", "n2"}) : json({"n1", "n2", "n3", "n4"});
        }
      }
    }
  }
  EXPECT_TRUE(Compared().differences.empty());  // follows from the setting
  sides_[1].rows[2].provenance["launch"]["cores_a_rank"] = "1";
  const auto differences = Compared().differences;
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].name, "launch.cores_a_rank");
  EXPECT_TRUE(differences[0].hidden);
}

TEST_F(Comparing, TrialsOfACellOnAnotherNumberOfHostsAreNotMixedIn) {
  AddEqualSides();
  for (int block = 0; block < 4; ++block) {
    for (const char* method : {"dense", "wfbp"})
      Add(1, method, block, 1000).provenance["machine"]["placement"] = json({"n1", "n1"});
  }
  // The newest trials are within a node; no others of that side are shown.
  EXPECT_EQ(Only(Compared()).sides[1].ratio->value, 1);
  EXPECT_EQ(Verdict().why_not, "other regime: ranks are linked between nodes and within a node");
}

TEST_F(Comparing, OneSeedOfOneTrialWithAnotherAlgorithmIsNamed) {
  AddEqualSides();
  for (SystemSide& side : sides_) {
    for (TrialRow& row : side.rows) {
      row.system["cpu_model"] = "cpu";
      row.provenance["environment"] = {{"NCCL_ALGO", "Ring"}};
    }
  }
  EXPECT_TRUE(Compared().differences.empty());
  sides_[1].rows[5].provenance["environment"]["NCCL_ALGO"] = "Tree";
  const auto differences = Compared().differences;
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].name, "environment.NCCL_ALGO");
  EXPECT_EQ(differences[0].values, (std::vector<std::string>{"Ring", "Ring | Tree"}));
  EXPECT_TRUE(differences[0].hidden);
  EXPECT_EQ(differences[0].cells,
            std::vector<std::string>{"b: wfbp, , 2 workers, wfbp2: Tree in b5"});
  const std::string text = TextOf({Compared(), sides_, request_});
  EXPECT_SAYS(text, "environment.NCCL_ALGO: b: wfbp, , 2 workers, wfbp2: Tree in b5");
  EXPECT_EQ(ComparisonJson({Compared(), sides_, request_})["differences"][0]["cells"].size(), 1u);
}

TEST_F(Comparing, SoIsOneThatAloneHasItSetEvenWhereMachinesAreAlike) {
  AddBlocks(0, 100, 1.5);
  sides_[0].rows[5].provenance["environment"] = {{"NCCL_ALGO", "Tree"}};
  sides_[1].rows = sides_[0].rows;
  const auto differences = Compared().differences;
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].name, "environment.NCCL_ALGO");
  EXPECT_EQ(differences[0].values, (std::vector<std::string>(2, "Tree | not set")));
  ASSERT_EQ(differences[0].cells.size(), 2u);
  EXPECT_EQ(differences[0].cells[1], "b: wfbp, , 2 workers, wfbp2: Tree in a5");
  EXPECT_TRUE(differences[0].hidden);
}

TEST_F(Comparing, OfAThousandEqualsAtMostOneInTwentyDiffers) {
  constexpr int kCells = 1000;
  std::mt19937_64 random(20261123);
  std::normal_distribution<double> normal(0, 0.05);
  for (const std::size_t side : {0, 1}) {
    for (int workers = 1; workers <= kCells; ++workers) {
      for (int block = 0; block < 4; ++block) {
        const double moved = std::exp(4 * normal(random));  // shared by the whole block
        Add(side, "dense", block, 100 * moved, workers);
        Add(side, "wfbp", block, 150 * moved * std::exp(normal(random)), workers);
      }
    }
  }
  std::size_t claims = 0, cells = 0;
  const SystemComparison comparison = Compared();
  for (const ComparedCell& cell : comparison.parts.at(0).cells) {
    const Agreement agreement = cell.verdicts.at(0).contrast.agreement;
    claims += agreement == Agreement::kFirst || agreement == Agreement::kSecond;
    ++cells;
  }
  EXPECT_EQ(cells, static_cast<std::size_t>(kCells));
  EXPECT_LE(claims, cells / 20);
  EXPECT_GT(claims, 0u);  // the test can detect a claim
}

TEST_F(Comparing, BlocksInWhichTheReferenceMovedAreMarked) {
  for (const std::size_t side : {0, 1}) {
    for (int block = 0; block < 5; ++block) {
      const bool loaded = side == 1 && block == 2;  // half as fast, in the middle of the run
      Add(side, "dense", block, loaded ? 50 : 100);
      Add(side, "wfbp", block, loaded ? 75 : 150);
    }
  }
  const SystemComparison comparison = Compared();
  const ComparedCell& cell = Only(comparison);
  EXPECT_TRUE(cell.sides[0].moved.empty());
  ASSERT_EQ(cell.sides[1].moved.size(), 1u);
  EXPECT_NEAR(cell.sides[1].moved.at(2), 1, 1e-9);
  EXPECT_EQ(cell.verdicts[0].contrast.agreement, Agreement::kAgree);  // ratios are within blocks
  EXPECT_EQ(SummaryOf({comparison, sides_, request_}).at(1),
            "On b dense moved by more than 10 % while a block was measured: 1 of 1 ratios are "
            "marked");
  const std::string text = TextOf({comparison, sides_, request_});
  EXPECT_SAYS(text, "b: dense moved in 1 of 5 blocks (block 2 by 100 %)");
  EXPECT_EQ(ComparisonJson({comparison, sides_, request_})["cells"][0]["second_moved"],
            json({{"2", 1.0}}));
  request_.control = 1.5;
  EXPECT_TRUE(Only(Compared()).sides[1].moved.empty());
}

// Rounds of one launch: a load during a part of a block does not change the blocks' median.
TEST_F(Comparing, TheReferenceAlsoMovesWithinABlock) {
  AddEqualSides();
  request_.control = 0.45;  // AddBlocks moves by up to 15 % between blocks
  const auto set_rounds = [&](std::vector<double> rounds) {
    for (TrialRow& row : sides_[0].rows) {
      if (row.method == "dense" && row.block == 1) row.launch.rounds = rounds;
    }
  };
  set_rounds({0.010, 0.010, 0.010, 0.015, 0.015, 0.015, 0.010, 0.010});
  const SystemComparison comparison = Compared();
  ASSERT_EQ(Only(comparison).sides[0].moved.size(), 1u);
  EXPECT_NEAR(Only(comparison).sides[0].moved.at(1), 0.5, 1e-9);
  set_rounds({0.010, 0.010, 0.010, 0.010, 0.015, 0.010, 0.010, 0.010});  // one round is no move
  EXPECT_TRUE(Only(Compared()).sides[0].moved.empty());
}

TEST_F(Comparing, SaysHowPlansDiffer) {
  AddEqualSides();
  for (TrialRow& row : sides_[1].rows)
    row.provenance["plan"] = {{"unit_sizes", "2"}, {"dense_units", json::array({0})}};
  const std::string plans = Only(Compared()).plans;
  EXPECT_TRUE(plans.starts_with("a makes 2 exchanges")) << plans;
  EXPECT_NE(plans.find("b makes 1 exchange: 1 dense"), std::string::npos) << plans;
}

TEST_F(Comparing, SaysByWhatPlansSendAndWhy) {
  AddEqualSides();
  for (const std::size_t side : {0, 1}) {
    for (TrialRow& row : sides_[side].rows) {
      row.config["method_options"] = {{"strategy", "espresso"}, {"collective", "sparse-allgather"}};
      row.metrics.Set("sparsify_seconds", side == 0 ? 0.0009 : 0.0003);
      row.metrics.Set("exposed_communication_seconds", 0.004);
      row.metrics.Set("achieved_density", 0.0102);
    }
  }
  for (TrialRow& row : sides_[1].rows) {
    row.provenance["plan"] = {{"unit_sizes", "2,1,1"},
                              {"dense_units", {0}},
                              {"partitions", {1, 3, 3}},
                              {"paths", {0, 10, 99}}};
    row.provenance["environment"] = {{"NCCL_ALGO", "Tree"}};
  }
  EXPECT_EQ(
      Only(Compared()).plans,
      "a makes 2 exchanges: 2 by sparse-allgather, density achieved 0.0102 (selection 900 µs, "
      "exposed communication 4.00 ms a step); b makes 3 exchanges: 1 dense by all-reduce, 2 by "
      "sparse-allgather, 2 in 3 parts, 1 whole, 1 gathered by all ranks, 1 by way 99, NCCL "
      "told Tree, density achieved 0.0102 (selection 300 µs, exposed communication 4.00 "
      "ms a step)");
  // Content that no trial of ours writes is no reason to fail.
  for (TrialRow& row : sides_[1].rows)
    row.provenance["plan"] = {
        {"unit_sizes", 7}, {"dense_units", "x"}, {"paths", 1}, {"tensors", 3}};
  EXPECT_NE(Only(Compared()).plans.find("b makes 0 exchanges"), std::string::npos);
}

TEST_F(Comparing, TablesAndNumbersSayTheSame) {
  AddBlocks(0, 100, 1.5);
  AddBlocks(1, 900, 2.0);
  const SystemComparison comparison = Compared();
  EXPECT_EQ(SummaryOf({comparison, sides_, request_}).at(0),
            "a against b: 1 ratio to dense: 1 larger on b");
  const std::string text = TextOf({comparison, sides_, request_});
  EXPECT_NE(text.find("larger on b"), std::string::npos);
  EXPECT_NE(text.find("0.75x"), std::string::npos);
  const json numbers = ComparisonJson({comparison, sides_, request_});
  EXPECT_EQ(numbers["cells"][0]["verdict"], "second");
  EXPECT_NEAR(numbers["cells"][0]["first_over_second"]["value"].get<double>(), 0.75, 1e-9);
  const std::string csv = ComparisonCsv({comparison, sides_, request_});
  EXPECT_EQ(std::ranges::count(csv, '\n'), 2);
  EXPECT_NE(csv.find(",second,"), std::string::npos);
}

}  // namespace
}  // namespace sparfuse::harness
