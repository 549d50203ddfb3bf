// Tests which inputs of two clusters are said to make a step differ.
#include <gtest/gtest.h>

#include "harness/advise/input_effects.hpp"
#include "harness/advise/modelled_cluster.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/run/model/modelled_cell.hpp"

namespace sparfuse::harness {
namespace {

DeclaredInput Input(const std::string& name, double value) {
  DeclaredInput input;
  input.name = name;
  input.value = input.low = input.high = value;
  return input;
}

DeclaredCluster Cluster() {
  DeclaredCluster cluster;
  cluster.name = "c";
  cluster.nodes = 4;
  cluster.ranks_per_node = 2;
  for (const auto& [name, value] : {std::pair{"inter_node_gbps", 1.0},
                                    {"inter_node_us", 5},
                                    {"intra_node_gbps", 400},
                                    {"intra_node_us", 2},
                                    {"memory_gbytes_per_s", 2000},
                                    {"kernel_us", 4},
                                    {"compute_tflops", 10},
                                    {"host_link_gbytes_per_s", 20},
                                    {"host_memory_gbytes_per_s", 100},
                                    {"exchange_host_us", 20}}) {
    cluster.inputs.push_back(Input(name, value));
  }
  return cluster;
}

CellConfig Cell() {
  static const Catalog catalog = BuiltInCatalog();
  CellConfig cell;
  cell.mode = Mode::kModelled;
  cell.workload = "resnet50-imagenet";
  cell.batch_per_worker = 32;
  cell.workers = 8;
  cell.ranks_per_node = 2;
  cell.cluster = "c";
  cell.method = "dense";
  cell.method_options = ResolveMethodOptions(catalog, NeedEntry(catalog.methods, "method", "dense"),
                                             nlohmann::json::object());
  return cell;
}

double SecondsOf(const DeclaredCluster& cluster, const CellConfig& cell = Cell()) {
  return ModelFirstStep(FirstTrial(cell), DeclaredProfile(cluster, cell)).seconds;
}

TEST(ClusterDifference, OneInputIsTheWholeDifference) {
  const DeclaredCluster slow = Cluster();
  DeclaredCluster fast = Cluster();
  fast.Find("inter_node_gbps")->value = 10;
  const auto found = ExchangedInputs(slow, fast, Cell(), 2);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "inter_node_gbps");
  EXPECT_EQ(found[0].of, "1");
  EXPECT_EQ(found[0].over, "10");
  EXPECT_DOUBLE_EQ(found[0].factor, SecondsOf(slow) / SecondsOf(fast));
  EXPECT_TRUE(ExchangedInputs(slow, slow, Cell(), 2).empty());
}

TEST(ClusterDifference, TheLargestComesFirstAndAnInputThatIsNotStatedHasItsDefault) {
  DeclaredCluster slow = Cluster();
  slow.inputs.push_back(Input("inter_node_efficiency", 0.2));
  DeclaredCluster other = Cluster();
  other.Find("compute_tflops")->value = 1;
  const auto found = ExchangedInputs(slow, other, Cell(), 2);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].what, "inter_node_efficiency");
  EXPECT_EQ(found[0].over, "1");
  EXPECT_GT(found[0].factor, 1);
  EXPECT_EQ(found[1].what, "compute");
  EXPECT_LT(found[1].factor, 1);
}

TEST(ClusterDifference, RanksANodeAreAnInput) {
  DeclaredCluster cluster = Cluster();
  cluster.all_reduce = AllReduceBy::kTwoLevel;  // a ring goes at the network's rate either way
  const auto found = ExchangedInputs(cluster, cluster, Cell(), 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "ranks_per_node");
  CellConfig alone = Cell();
  alone.ranks_per_node = 1;
  EXPECT_DOUBLE_EQ(found[0].factor, SecondsOf(cluster) / SecondsOf(cluster, alone));
}

}  // namespace
}  // namespace sparfuse::harness
