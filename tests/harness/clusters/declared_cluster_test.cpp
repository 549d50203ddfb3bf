// Tests declared clusters: what is calibrated on which bars, and the mistakes of files.
#include "harness/clusters/declared_cluster.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/error.hpp"
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

TEST(DeclaredCluster, AModelledStepOfTheCalibrationBarIsTheBar) {
  const DeclaredCluster& local = LoadDeclaredCluster(kResults / "profiles", "safusion-local");
  ASSERT_EQ(local.references.size(), 2u);
  const auto published = ReadPublished(kResults / "published" / "published-numbers.csv");
  for (const ReferenceWorkload& reference : local.references) {
    // What the solved selection times give for all tensors is the bar's sparsification.
    const workloads::LayerTable& layers = workloads::LayersOf(reference.workload);
    const double sparsify =
        local.selection_seconds_once * static_cast<double>(layers.tensors.size()) +
        local.selection_seconds_each * static_cast<double>(layers.numel());
    EXPECT_NEAR(sparsify, reference.sparsify_seconds, 1e-9);
    EXPECT_GT(reference.host_seconds, 0);
    EXPECT_LT(reference.host_seconds, reference.exposed_seconds);
    for (const PublishedNumber& row : published) {
      if (row.artifact == reference.bar.artifact && row.method == "WFBP" &&
          row.metric == "time/iter:NOCT") {
        EXPECT_DOUBLE_EQ(reference.exposed_seconds, *row.value * 1e-3);
      }
    }
  }
}

TEST(DeclaredCluster, OnlyTheBarsOfWfbpMayCalibrate) {
  const std::string bar = "SAFusion (HPDC 25)/Fig15a/WFBP";
  for (const char* other : {"SAFusion (HPDC 25)/Fig15a/SAFusion", "SAFusion (HPDC 25)/Fig14a/WFBP",
                            "SAFusion repo (cost model)/Fig15a/WFBP"}) {
    const std::string error = ErrorOf([&] { Parse(LocalWith(bar, other)); });
    EXPECT_NE(error.find("cluster.toml:"), std::string::npos) << error;
    EXPECT_NE(error.find(other), std::string::npos) << error;
    EXPECT_NE(error.find("there to be predicted"), std::string::npos) << error;
  }
}

TEST(DeclaredCluster, APublishedResultIsNoInput) {
  const std::string error = ErrorOf([&] {
    Parse(LocalWith("value = 12, kind = \"declared\"", "value = 12, kind = \"published figure\""));
  });
  EXPECT_NE(error.find("published figure"), std::string::npos) << error;
  EXPECT_NE(error.find("data sheet"), std::string::npos) << error;
}

TEST(DeclaredCluster, EveryCommittedClusterIsCalibratedOnThoseBarsAlone) {
  const auto clusters = ProfileFolders(kResults / "profiles").Names(".toml");
  EXPECT_FALSE(clusters.empty());
  for (const std::string& name : clusters) {
    for (const auto& reference : LoadDeclaredCluster(kResults / "profiles", name).references) {
      EXPECT_EQ(reference.bar.paper, "SAFusion (HPDC 25)");
      EXPECT_EQ(reference.bar.method, "WFBP");
      EXPECT_TRUE(reference.bar.artifact == "Fig15a" || reference.bar.artifact == "Fig15b");
    }
  }
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
  EXPECT_NE(error("dgc                = 1.0", "dgc = 2.0").find("expected dgc = 1"),
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
  EXPECT_DOUBLE_EQ(slower.at("exchange_dispatch_seconds"),
                   2 * base.at("exchange_dispatch_seconds").get<double>());
  EXPECT_EQ(slower.at("backward"), base.at("backward"));
  EXPECT_EQ(slower.at("links"), base.at("links"));
  // At twice the share of 1/2 all of it goes with the elements: 391 tensors of a mean size take it.
  const json carried = profile({{"host_carried", 2}});
  EXPECT_DOUBLE_EQ(carried.at("exchange_dispatch_seconds"), 0);
  EXPECT_DOUBLE_EQ(carried.at("exchange_seconds_per_element"),
                   2 * base.at("exchange_seconds_per_element").get<double>());
  const workloads::LayerTable& layers = workloads::LayersOf("bert-large-squad");
  EXPECT_NEAR(carried.at("exchange_seconds_per_element").get<double>() *
                  static_cast<double>(layers.numel()),
              2 * base.at("exchange_dispatch_seconds").get<double>() *
                  static_cast<double>(layers.tensors.size()),
              1e-9);
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
  EXPECT_DOUBLE_EQ(here.at("profile").at("backward").at("forward_seconds").get<double>(),
                   cloud.ComputeRatio() *
                       there.at("profile").at("backward").at("forward_seconds").get<double>());
  EXPECT_EQ(here.at("profile").at("exchange_dispatch_seconds"),
            there.at("profile").at("exchange_dispatch_seconds"));
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
