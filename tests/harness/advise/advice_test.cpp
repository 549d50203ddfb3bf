// Tests the answers of `advise`, and the inputs that make two clusters differ.
#include "harness/advise/advice.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "harness/advise/input_effects.hpp"
#include "harness/advise/modelled_cluster.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Four nodes of two cards; every input is exact except those that a test opens.
constexpr const char* kCluster = R"(
title    = "Four nodes of two"
source   = "test"
hardware = "none"
nodes          = 4
ranks_per_node = 2
[input]
inter_node_gbps          = { value = 10, low = 10, high = 10, kind = "declared", source = "t" }
inter_node_us            = { value = 5, low = 5, high = 5, kind = "declared", source = "t" }
intra_node_gbps          = { value = 400, low = 400, high = 400, kind = "declared", source = "t" }
intra_node_us            = { value = 2, low = 2, high = 2, kind = "declared", source = "t" }
memory_gbytes_per_s      = { value = 2000, low = 2000, high = 2000, kind = "declared", source = "t" }
kernel_us                = { value = 4, low = 4, high = 4, kind = "declared", source = "t" }
compute_tflops           = { value = 10, low = 10, high = 10, kind = "declared", source = "t" }
host_link_gbytes_per_s   = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
host_memory_gbytes_per_s = { value = 100, low = 100, high = 100, kind = "declared", source = "t" }
exchange_host_us         = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
selection_us             = { value = 20, low = 20, high = 20, kind = "declared", source = "t" }
selection_ns_an_element  = { value = 0.1, low = 0.1, high = 0.1, kind = "declared", source = "t" }
[selection_costs]
topk = 1.0
)";

// The cluster with exchange_host_us between `low` and `high`.
std::string WithHost(double value, double low, double high) {
  return testing::Replaced(
      kCluster,
      "value = 20, low = 20, high = 20, kind = \"declared\", source = \"t\" }\n"
      "selection_us",
      "value = " + std::to_string(value) + ", low = " + std::to_string(low) + ", high = " +
          std::to_string(high) + ", kind = \"declared\", source = \"t\" }\nselection_us");
}

class Advising : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / (name + ".toml")) << text;
  }
  static AdviceRequest Ask(const std::string& cluster, std::vector<std::string> methods = {}) {
    return {.workload = "digits-resnet",
            .cluster = cluster,
            .workers = {4, 8},
            .methods = std::move(methods)};
  }
  Advice Answer(const AdviceRequest& request) {
    return Adviser(catalog_, folders_, request, {}, nullptr).Answer();
  }

  const Catalog catalog_ = BuiltInCatalog();
  const TemporaryFolder folder_;
  const ProfileFolders folders_{folder_.path()};
};

TEST_F(Advising, RanksByWhatTrialsOfTheSameCellsAndDrawsSay) {
  Write("c", WithHost(20, 5, 80));
  const Advice advice = Answer(Ask("c", {"wfbp", "dense", "syncea", "powersgd"}));
  ASSERT_EQ(advice.rankings.size(), 2u);
  EXPECT_TRUE(advice.left_out.empty());
  for (const Ranking& ranking : advice.rankings) {
    ASSERT_EQ(ranking.methods.size(), 4u);
    std::map<std::string, Outcome> outcomes;
    for (const RankedMethod& each : ranking.methods) {
      const auto drawn = [&](int draw) {
        return DeclaredProfile(DrawnCluster(folders_, "c", draw), each.cell);
      };
      outcomes[each.cell.method] =
          RunModelledTrial(FirstTrial(each.cell), drawn(0), drawn, folder_.path());
    }
    const std::vector<double> dense = outcomes["dense"].draws["step_seconds"];
    double last = 0;
    for (const RankedMethod& each : ranking.methods) {
      Outcome& outcome = outcomes[each.cell.method];
      EXPECT_DOUBLE_EQ(each.step_seconds, *outcome.metrics["step_seconds"].value);
      EXPECT_DOUBLE_EQ(each.throughput.value, *outcome.metrics["throughput"].value);
      EXPECT_GE(each.step_seconds, last);
      last = each.step_seconds;
      std::vector<double> ratios = outcome.draws["step_seconds"];
      ASSERT_EQ(ratios.size(), static_cast<std::size_t>(kDraws));
      for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = dense[i] / ratios[i];
      const Interval band =
          BandOfDraws(*outcomes["dense"].metrics["step_seconds"].value / each.step_seconds, ratios);
      ASSERT_TRUE(each.over_dense);
      EXPECT_DOUBLE_EQ(each.over_dense->low, band.low) << each.cell.method;
      EXPECT_DOUBLE_EQ(each.over_dense->high, band.high);
      EXPECT_LE(each.over_best.value, 1);
    }
    EXPECT_LT(ranking.methods.front().throughput.low, ranking.methods.front().throughput.high);
  }
}

TEST_F(Advising, TheOpenInputDecides) {
  Write("c", WithHost(100, 10, 1000));
  const Advice advice = Answer(Ask("c", {"wfbp", "dense"}));
  for (const Ranking& ranking : advice.rankings) {
    ASSERT_TRUE(ranking.deciding);
    ASSERT_FALSE(ranking.deciding->effects.empty());
    const InputEffect& first = ranking.deciding->effects.front();
    EXPECT_EQ(first.input, "exchange_host_us");
    EXPECT_GT(first.share, 0.99);
    EXPECT_FALSE(first.measure.empty());
    EXPECT_GT(ranking.deciding->variance_together, 0);
  }
  // At an end of the range, the result equals that of a file that declares this end.
  Write("low", WithHost(10, 10, 10));
  const Advice low = Answer(Ask("low", {"wfbp", "dense"}));
  const Ranking& ranking = advice.rankings.front();
  const auto seconds = [&](const std::string& method) {
    for (const RankedMethod& each : low.rankings.front().methods) {
      if (each.cell.method == method) return each.step_seconds;
    }
    return 0.0;
  };
  EXPECT_NEAR(ranking.deciding->effects.front().ratio_low,
              seconds(ranking.second) / seconds(ranking.methods.front().cell.method), 1e-9);
}

TEST_F(Advising, OfSeveralOpenInputsTheOneThatMattersComesFirst) {
  Write("c", testing::Replaced(WithHost(100, 10, 1000), "value = 4, low = 4, high = 4",
                               "value = 4, low = 3.9, high = 4.1"));
  const Advice advice = Answer(Ask("c", {"wfbp", "dense"}));
  const InputEffects& found = *advice.rankings.front().deciding;
  ASSERT_EQ(found.effects.size(), 2u);
  EXPECT_EQ(found.effects.front().input, "exchange_host_us");
  EXPECT_EQ(found.effects.back().input, "kernel_us");
  for (std::size_t i = 1; i < found.effects.size(); ++i) {
    EXPECT_GE(found.effects[i - 1].variance, found.effects[i].variance);
    EXPECT_LT(found.effects[i].share, 0.01);
  }
}

TEST_F(Advising, WideRangesLeaveMethodsUndecided) {
  // wfbp exchanges each tensor separately: the host's time for an exchange decides whether that
  // pays.
  const auto undecided = [&](const std::string& cluster, double value, double low, double high) {
    Write(cluster, WithHost(value, low, high));
    const Advice advice = Answer(Ask(cluster, {"wfbp", "dense"}));
    const Ranking& ranking = advice.rankings.front();
    EXPECT_FALSE(ranking.methods.front().undecided);
    return ranking.methods.back().undecided;
  };
  double turns = 0;  // the value at which the order changes
  std::string before;
  for (const double host : {1.0, 10.0, 30.0, 100.0, 300.0, 1000.0}) {
    const std::string name = "at" + std::to_string(static_cast<int>(host));
    Write(name, WithHost(host, host, host));
    const std::string winner =
        Answer(Ask(name, {"wfbp", "dense"})).rankings.front().methods.front().cell.method;
    if (!before.empty() && winner != before) turns = host;
    before = winner;
  }
  ASSERT_GT(turns, 0);
  EXPECT_TRUE(undecided("wide", turns, turns / 100, turns * 100));
  EXPECT_FALSE(undecided("narrow", 100 * turns, 99 * turns, 101 * turns));
}

TEST_F(Advising, WinnersAlongASweepAreThoseOfFilesThatDeclareItsPoints) {
  Write("c", kCluster);
  const std::vector<std::string> methods = {"wfbp", "dense", "syncea", "powersgd"};
  const Advice advice = Answer(Ask("c", methods));
  std::size_t changes = 0;
  for (const Sweep& sweep : advice.sweeps) {
    for (std::size_t i = 1; i < sweep.winners.size(); ++i)
      changes += sweep.winners[i].second != sweep.winners[i - 1].second;
    if (sweep.along != "inter_node_gbps" || sweep.workers != 8) continue;
    ASSERT_EQ(sweep.winners.size(), 5u);
    for (const auto& [gbps, winner] : sweep.winners) {
      const std::string name = "at" + std::to_string(static_cast<int>(10 * gbps));
      Write(name, testing::Replaced(kCluster, "value = 10, low = 10, high = 10",
                                    "value = " + std::to_string(gbps)));
      const Advice there = Answer(Ask(name, methods));
      EXPECT_EQ(there.rankings.back().methods.front().cell.method, winner) << gbps;
    }
  }
  EXPECT_EQ(advice.changes.size(), changes);
}

TEST_F(Advising, PhasePointsHaveTheWinnersOfTheRanking) {
  Write("c", WithHost(20, 5, 80));
  Adviser adviser(catalog_, folders_, Ask("c", {"wfbp", "dense", "syncea"}), {}, nullptr);
  const Advice advice = adviser.Answer();
  const auto phase = adviser.Phase({1, 4}, {4, 8});
  ASSERT_EQ(phase.size(), 4u);
  for (std::size_t i = 0; i < 2; ++i) {
    const Ranking& ranking = advice.rankings[i];
    EXPECT_EQ(phase[i].winner, ranking.methods.front().cell.method);
    std::vector<std::string> undecided;
    for (const RankedMethod& each : ranking.methods) {
      if (each.undecided) undecided.push_back(each.cell.method);
    }
    EXPECT_EQ(phase[i].undecided, undecided);
  }
}

// If start-ups take no time, a method that synchronises behind the update needs the rate of its
// bytes: 8 B / c * U / (1 - U). A method that synchronises seldom needs less.
TEST_F(Advising, UtilisationsNeedTheRatesThatBytesSayWhereNothingElseTakesTime) {
  const auto instant = [](const std::string& input, double value) {
    return input + " = { value = " + std::to_string(value) + ", low = " + std::to_string(value) +
           ", high = " + std::to_string(value) + ", kind = \"declared\", source = \"t\" }\n";
  };
  std::string text =
      "title = \"t\"\nsource = \"t\"\nhardware = \"none\"\nnodes = 4\nranks_per_node = "
      "1\n[input]\n";
  for (const char* time : {"inter_node_us", "intra_node_us", "kernel_us", "exchange_host_us"})
    text += instant(time, 0);
  for (const char* rate : {"memory_gbytes_per_s", "host_link_gbytes_per_s",
                           "host_memory_gbytes_per_s", "intra_node_gbps"})
    text += instant(rate, 1e8);
  Write("c", text + instant("inter_node_gbps", 10) + instant("compute_tflops", 0.1));
  AdviceRequest request = Ask("c", {"dense", "diloco", "local-sgd", "shadowsync"});
  request.workers = {4};
  Adviser adviser(catalog_, folders_, request, {}, nullptr);
  std::map<std::string, NeededRates> rates;
  for (NeededRates& each : adviser.Rates()) rates[each.method] = std::move(each);
  ASSERT_EQ(rates.size(), 4u);
  for (const char* method : {"diloco", "local-sgd", "shadowsync"}) {
    const NeededRates& each = rates.at(method);
    for (std::size_t u = 0; u < each.gbps.size(); ++u) {
      ASSERT_TRUE(each.gbps[u]) << method;
      EXPECT_NEAR(*each.gbps[u] / each.naive_gbps[u], 1, 0.02) << method << " " << u;
    }
  }
  // One step of 32 hides what it can of an exchange.
  EXPECT_LT(*rates["shadowsync"].gbps[4], 0.3 * *rates["local-sgd"].gbps[4]);
  // Both methods send the same bytes, every 500 and every 32 steps.
  EXPECT_EQ(rates["diloco"].window_steps, 500);
  EXPECT_NEAR(*rates["local-sgd"].gbps[2] / *rates["diloco"].gbps[2], 500.0 / 32, 0.3);
  // Dense sends this model in one exchange behind backward, every step.
  EXPECT_NEAR(*rates["dense"].gbps[0] / rates["dense"].naive_gbps[0], 1, 0.02);
  EXPECT_GT(*rates["dense"].gbps[4], *rates["dense"].gbps[0]);
}

// A ring of 8 ranks sends 7 GB of a model of 10^9 floats; a step takes a second.
TEST(RatesOfBytes, AreOfTheWindowOrOfAFragmentThatADelayHides) {
  const double wanted[] = {0.5, 0.75, 0.9, 0.95, 0.99};
  const double blocking[] = {1.867, 5.600, 16.80, 35.47, 184.8};
  const double streaming[] = {1.647, 4.000, 7.636, 10.04, 13.01};
  for (std::size_t u = 0; u < std::size(wanted); ++u) {
    EXPECT_NEAR(RateOfBytes({7e9, 1, 30}, wanted[u]) / blocking[u], 1, 5e-4);
    EXPECT_NEAR(RateOfBytes({7e9, 1, 30, 4, 1}, wanted[u]) / streaming[u], 1, 5e-4);
    // Without a delay, fragments need the rate of the whole.
    EXPECT_DOUBLE_EQ(RateOfBytes({7e9, 1, 30, 4, 0}, wanted[u]),
                     RateOfBytes({7e9, 1, 30}, wanted[u]));
  }
}

TEST_F(Advising, SaysWhichMethodsAreLeftOutAndWhy) {
  Write("c", kCluster);
  const Advice advice = Answer(Ask("c"));
  EXPECT_GT(advice.rankings.front().methods.size(), 20u);
  bool found = false;
  for (const LeftOut& each : advice.left_out) {
    if (each.method != "omnireduce") continue;
    found = true;
    EXPECT_SAYS(each.reason, "block-topk");
    EXPECT_EQ(each.workers, (std::vector<int>{4, 8}));
  }
  EXPECT_TRUE(found);
}

TEST_F(Advising, TheExperimentThatKeepsItHasTheRankedCells) {
  Write("c", kCluster);
  AdviceRequest request = Ask("c");
  request.densities = {0.01, 0.001};
  request.batch = 16;
  const Advice advice = Answer(request);
  const Experiment experiment = ParseExperiment(
      TomlFile::Parse(AdviceToml(advice, nullptr), "advice.toml"), catalog_, folders_);
  std::set<std::string> kept, ranked;
  for (const Cell& cell : experiment.parts.front().cells) kept.insert(cell.config_hash);
  for (const Ranking& ranking : advice.rankings) {
    for (const RankedMethod& each : ranking.methods) ranked.insert(ConfigHash(each.cell));
  }
  EXPECT_EQ(kept, ranked);
}

// A convolution of 2 x 3 x 3 to 8 channels on 10 x 10 positions gives 800 elements a sample.
TEST(CardMemory, CountsWhatWeightsAndOutputsTake) {
  const workloads::LayerTable layers{{{"c.weight", {8, 2, 3, 3}, 144, 144 * 100.0}, {"b", {8}, 8}},
                                     {}};
  const CardMemory memory = MemoryOf(layers, 0.001, 10);
  EXPECT_NEAR(memory.filled_gbytes, 1e-9 * (16 * 152 + 10 * 8 * 800), 1e-12);
  EXPECT_EQ(memory.larger_batch, 64);  // 0.41 of the 1 MB; 128 fills 0.82
  EXPECT_TRUE(memory.mostly_empty());
  EXPECT_SAYS(NoteOn(memory, 10), "--batch 64");
  EXPECT_EQ(NoteOn(MemoryOf(layers, 0.001, 64), 64), "");
  EXPECT_EQ(NoteOn(MemoryOf(layers, 0, 10), 10), "");
}

TEST_F(Advising, MistakesNameWhatWasExpected) {
  Write("c", kCluster);
  const auto error = [&](auto change) {
    AdviceRequest request = Ask("c", {"wfbp", "dense"});
    change(request);
    return testing::ErrorOf([&] { Answer(request); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_SAYS(text, part);
  };
  says(error([](auto& r) { r.workload = "digits-resne"; }), "did you mean \"digits-resnet\"");
  says(error([](auto& r) { r.cluster = "d"; }), "did you mean \"c\"");
  says(error([](auto& r) { r.methods = {"wfpb"}; }), "did you mean \"wfbp\"");
  says(error([](auto& r) { r.workers = {16}; }), "cluster c has 8 devices (4 nodes of 2)");
  says(error([](auto& r) { r.workers = {0}; }), "--workers 0: expected an integer from 1");
  says(error([](auto& r) { r.densities = {1.5}; }), "--density 1.5: expected a number in (0, 1]");
  says(error([](auto& r) { r.sparsifier = "topkk"; }), "did you mean \"topk\"");
}

TEST_F(Advising, WorksOnAMeasuredProfileWithoutInputsToBlame) {
  const std::filesystem::path project = testing::SourceDirectory() / "results" / "profiles";
  const ProfileFolders folders(project);
  AdviceRequest request = Ask("epyc-2core", {"wfbp", "dense"});
  request.workers = {4};
  request.link = LinkShape{1, 100};
  Adviser adviser(catalog_, folders, request, ReadProfiles(project / "epyc-2core.json"), nullptr);
  const Advice advice = adviser.Answer();
  EXPECT_EQ(advice.rankings.front().methods.size(), 2u);
  EXPECT_FALSE(advice.rankings.front().deciding);
  EXPECT_FALSE(advice.fixed_bandwidth.empty());
  EXPECT_THROW(adviser.Phase({1}, {4}), Error);
}

TEST(InputEffects, VarianceIsThatOfUniformDrawsOnEitherSide) {
  EXPECT_DOUBLE_EQ(VarianceBetweenEnds(-3, 3), 3);  // uniform over [-3, 3]
  EXPECT_DOUBLE_EQ(VarianceBetweenEnds(0, 0), 0);
  EXPECT_DOUBLE_EQ(VarianceBetweenEnds(0, 4), 16.0 / 6 - 1);
  // Both ends move the result the same way.
  EXPECT_DOUBLE_EQ(VarianceBetweenEnds(4, 4), 32.0 / 6 - 4);
}

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
  return ModelUsualStep(FirstTrial(cell), DeclaredProfile(cluster, cell)).seconds;
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
  cluster.all_reduce = AllReduceBy::kTwoLevel;  // a ring runs at the network's rate anyway
  const auto found = ExchangedInputs(cluster, cluster, Cell(), 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "ranks_per_node");
  CellConfig alone = Cell();
  alone.ranks_per_node = 1;
  EXPECT_DOUBLE_EQ(found[0].factor, SecondsOf(cluster) / SecondsOf(cluster, alone));
}

}  // namespace
}  // namespace sparfuse::harness
