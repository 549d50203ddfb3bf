// Tests declared clusters: what is calibrated on which bars, and the mistakes of files.
#include "harness/clusters/declared_cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/base/error.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/published/published.hpp"
#include "tests/support/harness_fixture.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kResults = fs::path(SPARFUSE_SOURCE_DIRECTORY) / "results";

std::string ErrorOf(const auto& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string TextOf(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The committed local cluster with one text in it replaced.
std::string LocalWith(const std::string& old, const std::string& now) {
  std::string text = TextOf(kResults / "profiles" / "safusion-local.toml");
  const auto at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

DeclaredCluster Parse(const std::string& text) {
  return ParseDeclaredCluster(TomlFile::Parse(text, "cluster.toml"), kResults / "profiles");
}

TEST(DeclaredCluster, CalibrationComesAsNearToItsReferencesAsItCan) {
  const DeclaredCluster& local = LoadDeclaredCluster(kResults / "profiles", "safusion-local");
  ASSERT_EQ(local.references.size(), 4u);  // two bars of two parts each
  const auto published = ReadPublished(kResults / "published" / "published-numbers.csv");
  double squares = 0;
  for (const ReferenceStep& step : local.references) {
    EXPECT_DOUBLE_EQ(ModelledSeconds(local, step), step.modelled_seconds);
    squares += std::pow(std::log(step.modelled_seconds / step.seconds), 2);
    const char* metric =
        step.part == StepPart::kSparsify ? "time/iter:Sparsification" : "time/iter:NOCT";
    for (const PublishedNumber& row : published) {
      if (row.artifact == step.bar->artifact && row.method == "WFBP" && row.metric == metric) {
        EXPECT_DOUBLE_EQ(step.seconds, *row.value * 1e-3);
      }
    }
  }
  for (std::size_t i = 0; i < local.inputs.size(); ++i) {
    if (!local.inputs[i].calibrated) continue;
    for (const double factor : {0.98, 1.02}) {
      DeclaredCluster moved = local;
      moved.inputs[i].value *= factor;
      double off = 0;
      for (const ReferenceStep& step : moved.references)
        off += std::pow(std::log(ModelledSeconds(moved, step) / step.seconds), 2);
      EXPECT_GE(off, squares - 1e-9) << local.inputs[i].name << " x " << factor;
    }
  }
}

TEST(DeclaredCluster, APublishedResultIsNoInput) {
  const std::string error = ErrorOf([&] {
    Parse(LocalWith("value = 12, kind = \"declared\"", "value = 12, kind = \"published figure\""));
  });
  EXPECT_NE(error.find("published figure"), std::string::npos) << error;
  EXPECT_NE(error.find("data sheet"), std::string::npos) << error;
}

TEST(DeclaredCluster, MistakesNameFileLineKeyAndWhatWasExpected) {
  const auto error = [](const std::string& old, const std::string& now) {
    return ErrorOf([&] { Parse(LocalWith(old, now)); });
  };
  EXPECT_NE(error("inter_node_us  ", "inter_node_ns  ").find("inter_node_us"), std::string::npos);
  EXPECT_NE(error("value = 100,", "value = -1,").find("a number from 1e-09 to 1000000000"),
            std::string::npos);
  EXPECT_NE(error("\"resnet152-imagenet\"", "\"resnet152-imagenets\"").find("did you mean"),
            std::string::npos);
  EXPECT_NE(error("\"exchange_host_us\"]", "\"exchange_host\"]").find("is no input of this file"),
            std::string::npos);
  EXPECT_NE(error("value = 100,", "value = 100, low = 120,").find("low"), std::string::npos);
  EXPECT_NE(error("SAFusion (HPDC 25)/Fig15a/WFBP", "SAFusion (HPDC 25)/Fig15z/WFBP")
                .find("a bar of results/published"),
            std::string::npos);
}

CellConfig ConfigOf(const std::string& workload, int batch,
                    std::map<std::string, double> inputs = {}) {
  CellConfig config;
  config.workload = workload;
  config.batch_per_worker = batch;
  config.workers = 8;
  config.inputs = std::move(inputs);
  return config;
}

TEST(DeclaredCluster, TimesOfAWorkloadFollowItsWork) {
  const DeclaredCluster& local = LoadDeclaredCluster(kResults / "profiles", "safusion-local");
  const json own = DeclaredProfile(local, ConfigOf("resnet152-imagenet", 16)).front().at("profile");
  EXPECT_NEAR(own.at("backward").at("forward_seconds").get<double>(), 22.14e-3, 1e-9);
  double backward = 0;
  for (const json& tensor : own.at("backward").at("tensors"))
    backward += tensor.at("seconds").get<double>();
  EXPECT_NEAR(backward, 30.87e-3, 1e-9);
  const json twice =
      DeclaredProfile(local, ConfigOf("resnet152-imagenet", 32)).front().at("profile");
  EXPECT_NEAR(twice.at("backward").at("forward_seconds").get<double>(), 2 * 22.14e-3, 1e-9);
  const double ratio = workloads::LayersOf("resnet50-imagenet").macs() /
                       workloads::LayersOf("resnet152-imagenet").macs();
  const json small =
      DeclaredProfile(local, ConfigOf("resnet50-imagenet", 16)).front().at("profile");
  EXPECT_NEAR(small.at("backward").at("forward_seconds").get<double>(), ratio * 22.14e-3, 1e-9);
}

TEST(DeclaredCluster, FactorsScaleTheInputsOfTheirGroupAlone) {
  const DeclaredCluster& local = LoadDeclaredCluster(kResults / "profiles", "safusion-local");
  const auto profile = [&](const std::map<std::string, double>& inputs) {
    return DeclaredProfile(local, ConfigOf("bert-large-squad", 4, inputs)).front().at("profile");
  };
  const json base = profile({});
  const json slower = profile({{"host_overhead", 2}});
  EXPECT_DOUBLE_EQ(slower.at("exchange_host_seconds"),
                   2 * base.at("exchange_host_seconds").get<double>());
  EXPECT_EQ(slower.at("backward"), base.at("backward"));
  EXPECT_EQ(slower.at("links"), base.at("links"));
  const json wider = profile({{"bandwidth", 2}});
  EXPECT_DOUBLE_EQ(wider.at("links").at("inter_node").at("seconds_per_byte").get<double>() * 2,
                   base.at("links").at("inter_node").at("seconds_per_byte").get<double>());
  EXPECT_EQ(wider.at("links").at("inter_node").at("alpha_seconds"),
            base.at("links").at("inter_node").at("alpha_seconds"));
}

TEST(DeclaredCluster, SaysHowMuchLongerTheSideLaneTakes) {
  const auto slowdown = [](const DeclaredCluster& cluster, double factor) {
    const json profile =
        DeclaredProfile(cluster, ConfigOf("bert-large-squad", 4, {{"side", factor}}))
            .front()
            .at("profile");
    return KernelCosts(profile).side_slowdown;
  };
  const std::string given = "side_slowdown            = { value = 1.35,";
  const DeclaredCluster local = Parse(LocalWith(given, given));
  EXPECT_DOUBLE_EQ(slowdown(local, 1), 1.35);
  EXPECT_DOUBLE_EQ(slowdown(local, 2), 2.7);
  EXPECT_DOUBLE_EQ(slowdown(local, 0.5), 1);  // no faster than alone
  const DeclaredCluster without = Parse(LocalWith(given, "# {"));
  EXPECT_DOUBLE_EQ(slowdown(without, 1), 1);
  const std::string error = ErrorOf([&] { Parse(LocalWith("value = 1.35", "value = 0.9")); });
  EXPECT_NE(error.find("a number from 1 to 100"), std::string::npos) << error;
}

// Without the input, of 0 and of 12 us a message, of both classes of links.
TEST(DeclaredCluster, FurtherMessagesOfARoundCostWhatIsDeclared) {
  const std::string line = "message_us               = { value = 0,";
  const auto profile = [](const DeclaredCluster& cluster, std::map<std::string, double> inputs) {
    return DeclaredProfile(cluster, ConfigOf("bert-large-squad", 4, std::move(inputs)))
        .front()
        .at("profile");
  };
  const DeclaredCluster none = Parse(LocalWith(line, "message_us = { value = 0.0,"));
  const DeclaredCluster some = Parse(LocalWith(line, "message_us = { value = 12,"));
  const std::string text = TextOf(kResults / "profiles" / "safusion-local.toml");
  const auto begin = text.find("message_us ");
  const std::string undeclared = std::string(text).erase(begin, text.find('\n', begin) - begin);
  EXPECT_EQ(profile(Parse(undeclared), {}), profile(none, {}));
  EXPECT_EQ(Parse(undeclared).inputs.size() + 1, none.inputs.size());
  CostModel cost;
  AddDeclaredLinks(cost, profile(some, {{"latency", 2}}));
  for (const LinkCost& link : cost.links) EXPECT_DOUBLE_EQ(link.seconds_per_extra_message, 24e-6);
  AddDeclaredLinks(cost, profile(none, {}));
  for (const LinkCost& link : cost.links) EXPECT_EQ(link.seconds_per_extra_message, 0);
  const auto refused = [&](const std::string& now) {
    return ErrorOf([&] { Parse(LocalWith(line, now)); });
  };
  EXPECT_NE(refused("message_us = { value = -1,").find("a number from 0 to 1000000000"),
            std::string::npos);
  EXPECT_NE(refused("message_us = { valu = 0,").find("valu"), std::string::npos);
}

TEST(DeclaredCluster, AnotherClusterTakesCalibrationOverAndScalesIt) {
  const DeclaredCluster& local = LoadDeclaredCluster(kResults / "profiles", "safusion-local");
  const DeclaredCluster& cloud = LoadDeclaredCluster(kResults / "profiles", "safusion-cloud");
  const json there = DeclaredProfile(local, ConfigOf("bert-large-squad", 4)).front();
  const json here = DeclaredProfile(cloud, ConfigOf("bert-large-squad", 4)).front();
  EXPECT_EQ(here.at("calibration"), there.at("calibration"));
  EXPECT_NEAR(here.at("profile").at("backward").at("forward_seconds").get<double>(),
              cloud.Value("compute_ratio") *
                  there.at("profile").at("backward").at("forward_seconds").get<double>(),
              1e-12);
  EXPECT_EQ(here.at("profile").at("exchange_host_seconds"),
            there.at("profile").at("exchange_host_seconds"));
  EXPECT_NEAR(cloud.Value("selection_ns_an_element") * cloud.Value("memory_gbytes_per_s"),
              local.Value("selection_ns_an_element") * local.Value("memory_gbytes_per_s"), 1e-9);
}

TEST(DeclaredCluster, DrawsKeepWithinTheirRangesAndAreTheSameEverywhere) {
  const ProfileFolders profiles(kResults / "profiles");
  const DeclaredCluster& local = LoadDeclaredCluster(profiles, "safusion-local");
  const DeclaredCluster& cloud = LoadDeclaredCluster(profiles, "safusion-cloud");
  int below = 0;
  constexpr int kCount = 32;
  for (int draw = 1; draw <= kCount; ++draw) {
    const DeclaredCluster& drawn = DrawnCluster(profiles, "safusion-local", draw);
    const DeclaredCluster& there = DrawnCluster(profiles, "safusion-cloud", draw);
    for (const DeclaredInput& input : drawn.inputs) {
      if (input.kind == "calibrated") continue;
      EXPECT_GE(input.value, input.low * (1 - 1e-12)) << input.name;
      EXPECT_LE(input.value, input.high * (1 + 1e-12)) << input.name;
    }
    const double ratio = drawn.Value("kernel_us") / local.Value("kernel_us");
    below += ratio < 1;
    EXPECT_NEAR(there.Value("kernel_us") / cloud.Value("kernel_us"), ratio, 1e-9);
    EXPECT_NEAR(there.Value("exchange_host_us"), drawn.Value("exchange_host_us"), 1e-9);
  }
  EXPECT_GT(below, kCount / 5);
  EXPECT_LT(below, 4 * kCount / 5);
}

TEST(DeclaredCluster, OneInputAtAnEndLeavesTheOthersAndIsCalibratedAgain) {
  const ProfileFolders profiles(kResults / "profiles");
  const DeclaredCluster& cloud = LoadDeclaredCluster(profiles, "safusion-cloud");
  const std::vector<std::string> open = OpenInputs(profiles, "safusion-cloud");
  EXPECT_GT(std::ranges::count(open, "inter_node_us"), 0);
  EXPECT_EQ(std::ranges::count(open, "exchange_host_us"), 0);  // is solved for
  for (const std::string input : {"kernel_us", "inter_node_us"}) {
    ASSERT_EQ(std::ranges::count(open, input), 1) << input;
    const DeclaredCluster moved = ClusterAtEnd(profiles, "safusion-cloud", input, RangeEnd::kHigh);
    for (const DeclaredInput& each : cloud.inputs) {
      const double now = moved.Value(each.name, each.families.empty() ? "" : each.families[0]);
      if (each.kind == "calibrated") continue;
      EXPECT_DOUBLE_EQ(now, each.name == input ? each.high : each.value) << each.name;
    }
  }
  // What staging takes of the measured exposed communication is not left to what is solved for.
  const auto solved = [&](RangeEnd end) {
    return ClusterAtEnd(profiles, "safusion-cloud", "exchange_host_ns_an_element", end)
        .Value("exchange_host_us", "bert");
  };
  EXPECT_LT(solved(RangeEnd::kHigh), solved(RangeEnd::kLow));
}

// Data-sheet values alone: nothing of another cluster.
constexpr const char* kAlone = R"(
title    = "Two nodes of eight"
source   = "test"
hardware = "H100"
nodes          = 2
ranks_per_node = 8
[input]
inter_node_gbps          = { value = 400, kind = "data sheet", source = "t" }
network_cards            = { value = 8, kind = "data sheet", source = "t" }
inter_node_us            = { value = 5, kind = "declared", source = "t" }
intra_node_gbps          = { value = 3600, kind = "data sheet", source = "t" }
intra_node_us            = { value = 2, kind = "declared", source = "t" }
memory_gbytes_per_s      = { value = 3350, kind = "data sheet", source = "t" }
kernel_us                = { value = 4, kind = "declared", source = "t" }
compute_tflops           = { value = 300, kind = "declared", source = "t" }
host_link_gbytes_per_s   = { value = 50, kind = "data sheet", source = "t" }
host_memory_gbytes_per_s = { value = 200, kind = "declared", source = "t" }
exchange_host_us         = { value = 20, kind = "declared", source = "t" }
update_host_us_a_tensor  = { value = 3, kind = "declared", source = "t" }
)";

TEST(DeclaredCluster, StandsAlone) {
  const DeclaredCluster alone = Parse(kAlone);
  EXPECT_TRUE(alone.references.empty());
  CellConfig config = ConfigOf("bert-large-squad", 4);
  config.ranks_per_node = 8;
  config.workers = 16;
  const json profile = DeclaredProfile(alone, config).front().at("profile");
  const workloads::LayerTable& layers = workloads::LayersOf("bert-large-squad");
  EXPECT_NEAR(profile.at("backward").at("forward_seconds").get<double>(),
              2 * 4 * layers.macs() / 300e12, 1e-12);
  EXPECT_NEAR(profile.at("links").at("inter_node").at("seconds_per_byte").get<double>(), 1 / 400e9,
              1e-18);  // of the node's eight cards
  const double update = profile.at("backward").at("update_seconds");
  config.workers = 1;
  EXPECT_NEAR(update - DeclaredProfile(alone, config)
                           .front()
                           .at("profile")
                           .at("backward")
                           .at("update_seconds")
                           .get<double>(),
              3e-6 * static_cast<double>(layers.tensors.size()), 1e-12);
}

TEST(DeclaredCluster, StatedStepsOfOneCardAndOfSeveralCalibrate) {
  const std::string step =
      "[[compute]]\nworkload = \"resnet50-imagenet\"\nbatch_per_worker = 64\n"
      "samples_per_s = 400\nkind = \"measured\"\nsource = \"t\"\n";
  std::string text = kAlone;
  const DeclaredCluster one = Parse(text + step);
  ASSERT_EQ(one.compute.size(), 1u);
  EXPECT_NEAR(one.compute[0].forward_seconds + one.compute[0].backward_seconds +
                  UpdateSeconds(one, "resnet50-imagenet"),
              64.0 / 400, 1e-12);
  const std::string reference =
      "[[reference]]\nworkload = \"resnet50-imagenet\"\nbatch_per_worker = 64\nworkers = 16\n"
      "method = \"dense\"\nsource = \"t\"\n";
  const std::string calibrate = "calibrate = [\"exchange_host_us\"]\n";
  const DeclaredCluster met = Parse(calibrate + text + step + reference + "step_ms = 250\n");
  ASSERT_EQ(met.references.size(), 1u);
  EXPECT_NEAR(met.references[0].modelled_seconds, 0.25, 1e-6);
  EXPECT_EQ(met.Find("exchange_host_us")->kind, "calibrated");
  const std::string impossible =
      ErrorOf([&] { Parse(calibrate + text + step + reference + "step_ms = 100\n"); });
  EXPECT_NE(impossible.find("100 ms measured"), std::string::npos) << impossible;
  EXPECT_NE(impossible.find("forward and backward take"), std::string::npos) << impossible;
}

TEST(DeclaredCluster, AnAllReduceTakesWhatItsCurveSays) {
  const std::string curve =
      "[[curve]]\noperation = \"all-reduce\"\nranks = 16\nbytes = [8, 1000000, 100000000]\n"
      "us = [100, 1100, 60100]\nkind = \"imported\"\nsource = \"t\"\n";
  const DeclaredCluster cluster = Parse(std::string(kAlone) + curve);
  CellConfig config = ConfigOf("resnet50-imagenet", 64);
  config.ranks_per_node = 8;
  config.workers = 16;
  CostModel cost;
  AddDeclaredLinks(cost, DeclaredProfile(cluster, config).front().at("profile"));
  const CostModel::Phases phases = cost.AllReducePhases({}, false, 1'000'000);
  EXPECT_NEAR(phases.alone(), 1100e-6, 1e-9);
  config.workers = 8;  // within a node: by its links
  cost = {};
  AddDeclaredLinks(cost, DeclaredProfile(cluster, config).front().at("profile"));
  EXPECT_TRUE(cost.all_reduce.empty());
  const std::string wrong = ErrorOf([&] {
    Parse(std::string(kAlone) + curve.substr(0, curve.find("us =")) +
          "us = [1, 2]\nkind = \"imported\"\nsource = \"t\"\n");
  });
  EXPECT_NE(wrong.find("expected as many"), std::string::npos) << wrong;
}

constexpr const char* kFile = R"(id = "e"
[defaults]
mode     = "modelled"
cluster  = "safusion-local"
workload = "resnet152-imagenet"
method   = "safusion"
workers  = 8
)";

Experiment Load(const std::string& text) {
  static const Catalog catalog = BuiltInCatalog();
  return ParseExperiment(TomlFile::Parse(text, "e.toml"), catalog, kResults / "profiles",
                         kResults / "published");
}

TEST(DeclaredCluster, AnExperimentNamesWhatItsClustersAreCalibratedWith) {
  const std::string silent = ErrorOf([] { Load(kFile); });
  EXPECT_NE(silent.find("e.toml"), std::string::npos) << silent;
  EXPECT_NE(silent.find("\"SAFusion (HPDC 25)/Fig15b/WFBP\""), std::string::npos) << silent;
  const std::string calibration =
      "calibration = [\"SAFusion (HPDC 25)/Fig15a/WFBP\", \"SAFusion (HPDC 25)/Fig15b/WFBP\"]\n";
  EXPECT_EQ(Load(calibration + kFile).parts.front().cells.size(), 1u);
}

TEST(DeclaredCluster, ACellMustFitItsCluster) {
  const std::string calibration =
      "calibration = [\"SAFusion (HPDC 25)/Fig15a/WFBP\", \"SAFusion (HPDC 25)/Fig15b/WFBP\"]\n";
  const auto error = [&](const std::string& line) {
    return ErrorOf([&] { Load(calibration + kFile + line + "\n"); });
  };
  EXPECT_NE(
      error("ranks_per_node = 1\ninputs = { bandwith = 2 }").find("did you mean \"bandwidth\""),
      std::string::npos);
  EXPECT_NE(error("inputs = { bandwidth = 0 }").find("a number from 0.001 to 1000"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              std::string text = calibration + kFile;
              text.replace(text.find("workers  = 8"), 12, "workers  = 9");
              Load(text);
            }).find("has 8 devices"),
            std::string::npos);
  EXPECT_TRUE(Load(calibration + kFile + "inputs = { bandwidth = 1 }\n")
                  .parts.front()
                  .cells.front()
                  .config.inputs.empty());
}

TEST(Published, QuotedFieldsRangesAndMistakes) {
  const std::string header =
      "paper,artifact,workload,model,dataset,workers,network,method,sparsifier,density,metric,"
      "value,unit,source,confidence\n";
  const auto rows =
      ParsePublished(header + "P,F1,w,m,d,8,n,\"A, \"\"B\"\"\",s,0.01,x,1.5e-3,s,src,high\n" +
                         "P,text,w,m,d,8,n,A,s,0.01,x,28.20-58.28,%,src,high\n",
                     "numbers.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].method, "A, \"B\"");
  EXPECT_DOUBLE_EQ(rows[0].value.value(), 1.5e-3);
  EXPECT_FALSE(rows[1].value.has_value());
  EXPECT_EQ(rows[1].stated, "28.20-58.28");
  EXPECT_NE(ErrorOf([&] {
              ParsePublished(header + "P,F1\n", "numbers.csv");
            }).find("numbers.csv:2: 2 fields"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              ParsePublished(header + "P,F1,w,m,d,8,n,A,s,0.01,x,,s,src,h\n", "numbers.csv");
            }).find("value is empty"),
            std::string::npos);
}

}  // namespace
}  // namespace sparfuse::harness
