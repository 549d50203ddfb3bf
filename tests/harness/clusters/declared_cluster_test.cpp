// Tests declared clusters: their calibration, its bars, and the mistakes in files.
#include "harness/clusters/declared_cluster.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "harness/catalog/catalog.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/cluster_text.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/published/published.hpp"
#include "harness/records/record.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "tests/support/calibrated_clusters.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectError;
using testing::Replaced;
namespace fs = std::filesystem;

const fs::path kResults = testing::SourceDirectory() / "results";
const ProfileFolders kProfiles(kResults / "profiles");

std::string TextOf(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The committed local cluster with one text in it replaced.
std::string LocalWith(const std::string& old, const std::string& now) {
  return Replaced(TextOf(kResults / "profiles" / "safusion-local.toml"), old, now);
}

DeclaredCluster Parse(const std::string& text) {
  return ParseDeclaredCluster(TomlFile::Parse(text, "cluster.toml"), kProfiles);
}

// What is said of a cluster's file that is wrong.
std::string WrongIn(const std::string& text) {
  return ErrorOf([&] { Parse(text); });
}

TEST(DeclaredCluster, CalibrationComesAsNearToItsReferencesAsItCan) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  ASSERT_EQ(local.references.size(), 14u);  // six bars of two parts each, and two steps
  const auto published = ReadPublished(kResults / "published" / "published-numbers.csv");
  double squares = 0;
  for (const ReferenceStep& step : local.references) {
    EXPECT_DOUBLE_EQ(Modelled(local, step), step.modelled);
    squares += std::pow(std::log(step.modelled / step.measured), 2);
    const char* metric =
        step.part == StepPart::kSparsify ? "time/iter:Sparsification" : "time/iter:NOCT";
    for (const PublishedNumber& row : published) {
      if (step.part == StepPart::kStep) continue;
      if (row.artifact == step.bar->artifact && row.method == step.bar->method &&
          row.metric == metric) {
        EXPECT_DOUBLE_EQ(step.measured, *row.value * 1e-3);
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
        off += std::pow(std::log(Modelled(moved, step) / step.measured), 2);
      EXPECT_GE(off, squares - 1e-9) << local.inputs[i].name << " x " << factor;
    }
  }
}

TEST(DeclaredCluster, APublishedResultIsNoInput) {
  ExpectError(FailureKind::kConfig, {"published figure", "data sheet"}, [&] {
    Parse(LocalWith("value = 12, kind = \"declared\"", "value = 12, kind = \"published figure\""));
  });
  ExpectError(
      FailureKind::kConfig,
      {"the key \"kind\" is missing: expected one of measured, ", "published text, data sheet"},
      [&] { Parse(LocalWith("value = 12, kind = \"declared\"", "value = 12")); });
}

TEST(DeclaredCluster, MistakesNameFileLineKeyAndWhatWasExpected) {
  const auto error = [](const std::string& old, const std::string& now) {
    return WrongIn(LocalWith(old, now));
  };
  EXPECT_SAYS(error("inter_node_us  ", "inter_node_ns  "), "inter_node_us");
  EXPECT_SAYS(error("value = 100,", "value = -1,"), "a number from 1e-09 to 1000000000");
  EXPECT_SAYS(error("\"resnet152-imagenet\"", "\"resnet152-imagenets\""), "did you mean");
  EXPECT_SAYS(error("[\"exchange_host_us\"", "[\"exchange_host\""), "is not an input of this file");
  EXPECT_SAYS(error("[\"exchange_host_us\"", "[\"exchange_host_us\", \"exchange_host_us\""),
              "\"exchange_host_us\" comes twice: expected each input once");
  EXPECT_SAYS(error("value = 100,", "value = 100, low = 120,"), "low");
  EXPECT_SAYS(error("SAFusion (HPDC 25)/Fig15a/WFBP", "SAFusion (HPDC 25)/Fig15z/WFBP"),
              "a bar of results/published");
}

CellConfig ConfigOf(const std::string& workload, int batch,
                    std::map<std::string, double> inputs = {}, int workers = 8,
                    int ranks_per_node = CellConfig().ranks_per_node) {
  CellConfig config;
  config.workload = workload;
  config.batch_per_worker = batch;
  config.workers = workers;
  config.ranks_per_node = ranks_per_node;
  config.inputs = std::move(inputs);
  return config;
}

Profile ProfileOn(const DeclaredCluster& cluster, const CellConfig& config) {
  return DeclaredProfile(cluster, config).front().profile;
}
CostModel CostOn(const DeclaredCluster& cluster, const CellConfig& config) {
  CostModel cost;
  AddDeclaredLinks(cost, ProfileOn(cluster, config));
  return cost;
}

TEST(DeclaredCluster, TimesOfAWorkloadFollowItsWork) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  const auto times = [&](const char* workload, int batch) {
    return *ProfileOn(local, ConfigOf(workload, batch)).backward;
  };
  EXPECT_NEAR(times("resnet152-imagenet", 16).forward_seconds, 22.14e-3, 1e-9);
  EXPECT_NEAR(times("resnet152-imagenet", 16).backward_seconds(), 30.87e-3, 1e-9);
  EXPECT_NEAR(times("resnet152-imagenet", 32).forward_seconds, 2 * 22.14e-3, 1e-9);
  const double ratio = workloads::LayersOf("resnet50-imagenet").macs() /
                       workloads::LayersOf("resnet152-imagenet").macs();
  EXPECT_NEAR(times("resnet50-imagenet", 16).forward_seconds, ratio * 22.14e-3, 1e-9);
}

TEST(DeclaredCluster, FactorsScaleTheInputsOfTheirGroupAlone) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  const auto profile = [&](const std::map<std::string, double>& inputs) {
    return ProfileOn(local, ConfigOf("bert-large-squad", 4, inputs));
  };
  const Profile base = profile({}), slower = profile({{"host_overhead", 2}});
  EXPECT_DOUBLE_EQ(*slower.exchange_host_seconds, 2 * *base.exchange_host_seconds);
  // Of the passes, only the host's time in the update changes.
  BackwardTimes passes = *slower.backward;
  EXPECT_NEAR(
      passes.update_seconds - base.backward->update_seconds,
      1e-6 * local.Value("update_host_us_a_tensor") * static_cast<double>(passes.tensors.size()),
      1e-12);
  passes.update_seconds = base.backward->update_seconds;
  EXPECT_EQ(passes, *base.backward);
  EXPECT_EQ(slower.links, base.links);
  const DeclaredLink wider = profile({{"bandwidth", 2}}).links.at("inter_node");
  EXPECT_DOUBLE_EQ(wider.seconds_per_byte * 2, base.links.at("inter_node").seconds_per_byte);
  EXPECT_EQ(wider.alpha_seconds, base.links.at("inter_node").alpha_seconds);
}

TEST(DeclaredCluster, SaysHowMuchLongerTheSideLaneTakes) {
  const auto slowdown = [](const DeclaredCluster& cluster, double factor) {
    return KernelCosts(ProfileOn(cluster, ConfigOf("bert-large-squad", 4, {{"side", factor}})))
        .side_slowdown;
  };
  const std::string given = "side_slowdown            = { value = 1.35,";
  const DeclaredCluster local = Parse(LocalWith(given, given));
  EXPECT_DOUBLE_EQ(slowdown(local, 1), 1.35);
  EXPECT_DOUBLE_EQ(slowdown(local, 2), 2.7);
  EXPECT_DOUBLE_EQ(slowdown(local, 0.5), 1);  // no faster than alone
  const DeclaredCluster without = Parse(LocalWith(given, "# {"));
  EXPECT_DOUBLE_EQ(slowdown(without, 1), 1);
  EXPECT_SAYS(WrongIn(LocalWith("value = 1.35", "value = 0.9")), "a number from 1 to 100");
}

TEST(DeclaredCluster, TheHostSelectsAsACoderSaysOrAsItsMemoryIsRead) {
  const auto with = [](const std::string& names, const std::string& lines) {
    return Parse(LocalWith("[selection_costs]",
                           "[[coder]]\nnames = " + names + "\nencode_us = 1\n" + lines +
                               "kind = \"declared\"\nsource = \"s\"\n[selection_costs]"));
  };
  const std::string host = "host_encode_us = 3\nhost_encode_ns_an_element = 2\n";
  const DeclaredCluster declared = with("[\"topk\"]", host);
  const DeclaredCluster streams = with("[\"topk\"]", "");
  const auto seconds = [](const DeclaredCluster& cluster, std::map<std::string, double> inputs,
                          const std::string& coder = "topk") {
    return KernelCosts(ProfileOn(cluster, ConfigOf("bert-large-squad", 4, std::move(inputs))))
        .HostSelectionSeconds(coder, 1'000'000, 0.01);
  };
  const double start = 1e-6 * declared.Value("kernel_us");
  const double to_host = 4e6 / (1e9 * declared.Value("host_link_gbytes_per_s"));
  const double read = 4e6 / (1e9 * declared.Value("host_memory_gbytes_per_s"));
  EXPECT_NEAR(seconds(declared, {}), start + to_host + 3e-6 + 2e-3, 1e-9);
  EXPECT_NEAR(seconds(declared, {{"sparsify", 2}}), start + to_host + 2 * (3e-6 + 2e-3), 1e-9);
  EXPECT_NEAR(seconds(streams, {}), start + to_host + read, 1e-9);
  EXPECT_NEAR(seconds(with("[\"topk\", \"sign\"]", host), {}, "sign"),
              start + to_host + 3e-6 + 2e-3, 1e-9);
  // A host selection rate applies to every coder that does not state its own, but a selection is
  // not faster than reading memory.
  const auto select = [&](double ns) {
    return Parse(LocalWith("[[reference]]",
                           fmt::format("host_selection_ns_an_element = {{ value = {}, kind = "
                                       "\"declared\", source = \"s\" }}\n[[reference]]",
                                       ns)));
  };
  const DeclaredCluster slow = select(1.6), fast = select(1e-6);
  for (const char* coder : {"topk", "dgc", "sign"}) {
    EXPECT_NEAR(seconds(slow, {}, coder), start + to_host + 1.6e-3, 1e-9) << coder;
    EXPECT_NEAR(seconds(fast, {}, coder), start + to_host + read, 1e-9) << coder;
  }
}

// A later table replaces the directions that it states, and each direction is drawn separately.
TEST(DeclaredCluster, ACoderIsStatedDirectionByDirection) {
  const auto coder = [](const std::string& lines) {
    return "[[coder]]\nnames = [\"sign\", \"topk\"]\n" + lines +
           "spread = 2\nkind = \"declared\"\nsource = \"s\"\n";
  };
  const auto with = [](const std::string& tables) {
    return Parse(LocalWith("[selection_costs]", tables + "[selection_costs]"));
  };
  const auto cost = [](const DeclaredCluster& cluster) {
    return KernelCosts(ProfileOn(cluster, ConfigOf("bert-large-squad", 4)));
  };
  const CostModel plain = cost(with(""));
  const CostModel decodes = cost(with(coder("decode_us = 7\n")));
  constexpr std::size_t kElements = 1'000'000;
  for (const char* name : {"sign", "topk"})
    EXPECT_NEAR(decodes.DecompressSeconds(name, kElements, 10, 4), 7e-6, 1e-12) << name;
  EXPECT_EQ(decodes.EncodeSeconds("sign", kElements), plain.EncodeSeconds("sign", kElements));
  EXPECT_EQ(decodes.SelectionSeconds("topk", kElements, 0.01),
            plain.SelectionSeconds("topk", kElements, 0.01));
  const DeclaredCluster apart = with(coder("encode_us = 1\ndecode_us = 2\n") +
                                     coder("decode_us = 7\n") + coder("host_encode_us = 3\n"));
  const CostModel both = cost(apart);
  EXPECT_NEAR(both.EncodeSeconds("sign", kElements), 1e-6, 1e-12);
  EXPECT_NEAR(both.SelectionSeconds("topk", kElements, 0.01), 1e-6, 1e-12);
  EXPECT_NEAR(both.DecompressSeconds("topk", kElements, 10, 4), 7e-6, 1e-12);
  EXPECT_GT(both.HostSelectionSeconds("sign", kElements, 0.01), 3e-6);
  std::set<std::string> names;
  for (const Coder& each : apart.coders) names.insert(NameOfInput(each));
  EXPECT_EQ(names,
            (std::set<std::string>{"coder/sign", "coder/sign/decode", "coder/sign/host_encode",
                                   "coder/topk", "coder/topk/decode", "coder/topk/host_encode"}));
  EXPECT_SAYS(ErrorOf([&] { with(coder("")); }),
              "expected one of encode_*, host_encode_* and decode_* at least");
}

// Without the input, with 0 and with 12 us a message, on both classes of links.
TEST(DeclaredCluster, FurtherMessagesOfARoundCostWhatIsDeclared) {
  const std::string line = "message_us               = { value = 0,";
  const auto profile = [](const DeclaredCluster& cluster, std::map<std::string, double> inputs) {
    return ProfileOn(cluster, ConfigOf("bert-large-squad", 4, std::move(inputs)));
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
  const auto refused = [&](const std::string& now) { return WrongIn(LocalWith(line, now)); };
  EXPECT_SAYS(refused("message_us = { value = -1,"), "a number from 0 to 1000000000");
  EXPECT_SAYS(refused("message_us = { valu = 0,"), "valu");
}

TEST(DeclaredCluster, AnotherClusterTakesCalibrationOverAndScalesIt) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  const DeclaredCluster& cloud = LoadDeclaredCluster(kProfiles, "safusion-cloud");
  const ProfileOutcome there = DeclaredProfile(local, ConfigOf("bert-large-squad", 4)).front();
  const ProfileOutcome here = DeclaredProfile(cloud, ConfigOf("bert-large-squad", 4)).front();
  EXPECT_EQ(here.calibration, there.calibration);
  EXPECT_NEAR(here.profile.backward->forward_seconds,
              cloud.Value("compute_ratio") * there.profile.backward->forward_seconds, 1e-12);
  EXPECT_EQ(here.profile.exchange_host_seconds, there.profile.exchange_host_seconds);
  EXPECT_NEAR(cloud.Value("selection_ns_an_element") * cloud.Value("memory_gbytes_per_s"),
              local.Value("selection_ns_an_element") * local.Value("memory_gbytes_per_s"), 1e-9);
}

// BERT-large keeps the computation from its own bars. The host's times of its exchanges come from
// ResNet-152's bars, here and on the cluster that takes over the calibration.
TEST(DeclaredCluster, ItsNameLeavesAWorkloadsReferencesOut) {
  const std::string rest = " without bert-large-squad";
  const DeclaredCluster& all = LoadDeclaredCluster(kProfiles, "safusion-local");
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local" + rest);
  EXPECT_EQ(local.name, "safusion-local" + rest);
  EXPECT_FALSE(local.references.empty());
  for (const ReferenceStep& step : local.references) EXPECT_EQ(step.workload, "resnet152-imagenet");
  EXPECT_EQ(local.ComputeOf("bert-large-squad")->backward_seconds,
            all.ComputeOf("bert-large-squad")->backward_seconds);
  const DeclaredCluster& cloud = LoadDeclaredCluster(kProfiles, "safusion-cloud" + rest);
  EXPECT_EQ(cloud.calibrated_on, local.name);
  for (const char* input : {"exchange_host_us", "exchange_host_ns_an_element"}) {
    EXPECT_EQ(local.Value(input, "vit"), local.Value(input, "resnet")) << input;
    EXPECT_EQ(cloud.Value(input, "vit"), local.Value(input, "resnet")) << input;
    EXPECT_NE(all.Value(input, "vit"), all.Value(input, "resnet")) << input;
  }
  EXPECT_TRUE(IsDeclared(kProfiles, cloud.name));
  NeedCluster(kProfiles, cloud.name);
  EXPECT_SAYS(
      ErrorOf([&] { LoadDeclaredCluster(kProfiles, "safusion-local without bert-base-squad"); }),
      "no reference has workload bert-base-squad");
  EXPECT_SAYS(ErrorOf([&] {
                LoadDeclaredCluster(kProfiles,
                                    "safusion-local without bert-large-squad, resnet152-imagenet");
              }),
              "leaves none to calibrate with");
}

TEST(DeclaredCluster, DrawsKeepWithinTheirRangesAndAreTheSameEverywhere) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  const DeclaredCluster& cloud = LoadDeclaredCluster(kProfiles, "safusion-cloud");
  int below = 0;
  constexpr int kCount = 16;
  for (int draw = 1; draw <= kCount; ++draw) {
    const DeclaredCluster& drawn = DrawnCluster(kProfiles, "safusion-local", draw);
    const DeclaredCluster& there = DrawnCluster(kProfiles, "safusion-cloud", draw);
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

TEST(DeclaredCluster, WhatCalibrationMustMeetIsDrawnToo) {
  const DeclaredCluster& stated = LoadDeclaredCluster(kProfiles, "safusion-local");
  std::set<double> costs;
  for (int draw = 1; draw <= 4; ++draw) {
    const DeclaredCluster& drawn = DrawnCluster(kProfiles, "safusion-local", draw);
    ASSERT_EQ(drawn.references.size(), stated.references.size());
    for (std::size_t i = 0; i < stated.references.size(); ++i) {
      const double ratio = drawn.references[i].measured / stated.references[i].measured;
      EXPECT_NE(ratio, 1);
      EXPECT_LE(std::abs(std::log(ratio)), std::log(stated.references[i].spread) + 1e-12);
    }
    costs.insert(drawn.Value("exchange_host_us", "resnet"));
  }
  EXPECT_EQ(costs.size(), 4u);
  const std::vector<std::string> open = OpenInputs(kProfiles, "safusion-local");
  const std::string bar = "reference/resnet152-imagenet/wfbp/8/exposed communication";
  EXPECT_EQ(std::ranges::count(open, bar), 1);
  // References that calibrate nothing are not open inputs.
  for (const std::string& name : OpenInputs(kProfiles, "hkbu-rdma")) {
    if (!name.starts_with("reference/")) continue;
    EXPECT_EQ(std::ranges::count(OpenInputs(kProfiles, "hkbu-ipoib"), name), 1) << name;
  }
}

TEST(DeclaredCluster, OneInputAtAnEndLeavesTheOthersAndIsCalibratedAgain) {
  const DeclaredCluster& cloud = LoadDeclaredCluster(kProfiles, "safusion-cloud");
  const std::vector<std::string> open = OpenInputs(kProfiles, "safusion-cloud");
  EXPECT_GT(std::ranges::count(open, "inter_node_us"), 0);
  EXPECT_EQ(std::ranges::count(open, "exchange_host_us"), 0);  // solved for
  for (const std::string input : {"kernel_us", "inter_node_us"}) {
    ASSERT_EQ(std::ranges::count(open, input), 1) << input;
    const DeclaredCluster moved = ClusterAtEnd(kProfiles, "safusion-cloud", input, RangeEnd::kHigh);
    for (const DeclaredInput& each : cloud.inputs) {
      const double now = moved.Value(each.name, each.families.empty() ? "" : each.families[0]);
      if (each.kind == "calibrated") continue;
      EXPECT_DOUBLE_EQ(now, each.name == input ? each.high : each.value) << each.name;
    }
  }
  // The less backward hides, the smaller is the solved share of the exposed communication.
  const auto solved = [&](RangeEnd end) {
    return ClusterAtEnd(kProfiles, "safusion-cloud", "payload_overlap", end)
        .Value("exchange_host_us", "bert");
  };
  EXPECT_GT(solved(RangeEnd::kHigh), solved(RangeEnd::kLow));
}

// Data-sheet values only: nothing is taken from another cluster.
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

std::string AloneWith(const std::string& old, const std::string& now) {
  return Replaced(kAlone, old, now);
}

constexpr const char* kCompute =
    "[[compute]]\nworkload = \"resnet50-imagenet\"\nbatch_per_worker = 64\n"
    "samples_per_s = 400\nkind = \"measured\"\nsource = \"t\"\n";

std::string StepOf(int workers, const std::string& time, const std::string& method = "dense") {
  return fmt::format(
      "[[reference]]\nworkload = \"resnet50-imagenet\"\nbatch_per_worker = 64\nworkers = {}\n"
      "method = \"{}\"\nsource = \"t\"\n{}\n",
      workers, method, time);
}

TEST(DeclaredCluster, StandsAlone) {
  const DeclaredCluster alone = Parse(kAlone);
  EXPECT_TRUE(alone.references.empty());
  CellConfig config = ConfigOf("bert-large-squad", 4, {}, 16, 8);
  const Profile profile = ProfileOn(alone, config);
  const workloads::LayerTable& layers = workloads::LayersOf("bert-large-squad");
  EXPECT_NEAR(profile.backward->forward_seconds, 2 * 4 * layers.macs() / 300e12, 1e-12);
  EXPECT_NEAR(profile.links.at("inter_node").seconds_per_byte, 1 / 400e9,
              1e-18);  // over the node's eight cards
  const double update = profile.backward->update_seconds;
  config.workers = 1;
  EXPECT_NEAR(update - ProfileOn(alone, config).backward->update_seconds,
              3e-6 * static_cast<double>(layers.tensors.size()), 1e-12);
}

TEST(DeclaredCluster, StatedStepsOfOneCardAndOfSeveralCalibrate) {
  const std::string text = std::string(kAlone) + kCompute;
  const DeclaredCluster one = Parse(text);
  ASSERT_EQ(one.compute.size(), 1u);
  EXPECT_NEAR(one.compute[0].forward_seconds + one.compute[0].backward_seconds +
                  UpdateSeconds(one, "resnet50-imagenet"),
              64.0 / 400, 1e-12);
  const std::string calibrate = "calibrate = [\"exchange_host_us\"]\n";
  const DeclaredCluster met = Parse(calibrate + text + StepOf(16, "step_ms = 250"));
  ASSERT_EQ(met.references.size(), 1u);
  EXPECT_NEAR(met.references[0].modelled, 0.25, 1e-6);
  EXPECT_EQ(met.Find("exchange_host_us")->kind, "calibrated");
  ExpectError(FailureKind::kConfig, {"a step of 100 ms", "forward and backward take"},
              [&] { Parse(calibrate + text + StepOf(16, "step_ms = 100")); });
}

// A step of top-k on 16 cards, as a multiple of a step at another density, determines the rate of
// the links.
TEST(DeclaredCluster, AReferenceMayBeARatioOfTwoSteps) {
  const std::string head =
      "[selection_costs]\ntopk = 1\n[[reference]]\nworkload = \"resnet50-imagenet\"\n"
      "batch_per_worker = 64\nworkers = 16\nsparsifier = \"topk\"\nsource = \"t\"\ndensity = 0.1\n";
  const std::string text =
      "calibrate = [\"inter_node_efficiency\"]\n" +
      AloneWith(
          "[input]",
          "[input]\ninter_node_efficiency = { value = 0.5, kind = \"declared\", source = \"t\" "
          "}\nselection_ns_an_element = { value = 0.1, kind = \"declared\", source = \"t\" }") +
      kCompute + head;
  const DeclaredCluster met = Parse(text + "ratio = 1.5\nover = { density = 0.01 }\n");
  ASSERT_EQ(met.references.size(), 1u);
  const ReferenceStep& ratio = met.references.front();
  EXPECT_EQ(ratio.over->density, 0.01);
  EXPECT_EQ(ratio.over->sparsifier, "topk");
  EXPECT_NEAR(ratio.modelled, 1.5, 1e-6);
  EXPECT_NEAR(Modelled(met, ratio), 1.5, 1e-6);
  ReferenceStep own = ratio, other = *ratio.over;
  own.over = nullptr;
  EXPECT_NEAR(Modelled(met, own) / Modelled(met, other), 1.5, 1e-6);
  EXPECT_LT(met.Value("inter_node_efficiency"), 0.5);
  EXPECT_TRUE(met.Find("inter_node_efficiency")->remark.empty());
  const auto error = [&](const std::string& lines) { return WrongIn(text + lines); };
  EXPECT_SAYS(error("ratio = 1.5\n"), "ratio needs over");
  EXPECT_SAYS(error("over = { density = 0.01 }\n"), "expected a ratio, or a row");
  EXPECT_SAYS(error("ratio = 1.5\nover = { densty = 0.01 }\n"), "did you mean \"density\"");
  EXPECT_SAYS(error("ratio = 1.5\nstep_ms = 4\nover = { density = 0.01 }\n"),
              "expected a row or a ratio");
  EXPECT_SAYS(error("ratio = 1.5\nover = { workers = 1 }\n"), "several workers");
  EXPECT_SAYS(error("ratio = 300\nover = { density = 0.01 }\n"), "300 times measured");
}

// The host's time is so short that the network hides it: its slope gives no direction, until the
// calibration tries another start.
TEST(DeclaredCluster, CalibrationBeginsElsewhereWhereItsBeginningLeadsNowhere) {
  const std::string text = "calibrate = [\"exchange_host_us\"]\n" +
                           AloneWith("exchange_host_us         = { value = 20",
                                     "exchange_host_us         = { value = 1") +
                           kCompute +
                           StepOf(16, "step_ms = 400\nmethod_options = { threshold_bytes = 1 }");
  const DeclaredCluster met = Parse(text);
  EXPECT_NEAR(met.references.front().modelled, 0.4, 1e-6);
  EXPECT_GT(met.Value("exchange_host_us"), 1000);
}

// A rate on which no reference depends, and a rate that would have to leave its range.
TEST(DeclaredCluster, CalibrationSaysWhatItsReferencesDoNotDetermine) {
  const std::string text = std::string(kAlone) + kCompute;
  const auto remark = [&](const std::string& input, const std::string& more) {
    return Parse("calibrate = [\"" + input + "\"]\n" + text + more).Find(input)->remark;
  };
  EXPECT_EQ(remark("exchange_host_us", StepOf(16, "step_ms = 250")), "");
  // All ranks are in one node: no message crosses to another.
  EXPECT_SAYS(remark("inter_node_us", StepOf(8, "step_ms = 170")), "its slope is 0");
  EXPECT_SAYS(remark("network_cards", StepOf(16, "step_ms = 165")), "the end of its range");
  // A time that would have to be negative approaches 0 and stays there.
  const DeclaredCluster least = Parse("calibrate = [\"exchange_host_us\"]\n" +
                                      Replaced(text, "exchange_host_us         = { value = 20",
                                               "exchange_host_us         = { value = 2000") +
                                      StepOf(16, "step_ms = 150"));
  EXPECT_LT(least.Value("exchange_host_us"), 100);
  EXPECT_SAYS(least.Find("exchange_host_us")->remark, "practically 0, the end of its range");
}

TEST(DeclaredCluster, AnAllReduceTakesWhatItsCurveSays) {
  const std::string curve =
      "[[curve]]\noperation = \"all-reduce\"\nranks = 16\nbytes = [8, 1000000, 100000000]\n"
      "us = [100, 1100, 60100]\nkind = \"imported\"\nsource = \"t\"\n";
  const DeclaredCluster cluster = Parse(std::string(kAlone) + curve);
  CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  const auto seconds = [&] {
    return CostOn(cluster, config).AllReducePhases({}, false, 1'000'000).alone();
  };
  EXPECT_NEAR(seconds(), 1100e-6, 1e-9);
  // A cell's factors also scale the curve: 100 us of start-up and 1 ms for the bytes. A link of
  // another rate has no curve.
  config.inputs = {{"latency", 3}, {"bandwidth", 0.5}};
  EXPECT_NEAR(seconds(), 2300e-6, 1e-9);
  config.inputs = {};
  config.link = LinkShape{10, 30, 0};
  EXPECT_TRUE(CostOn(cluster, config).all_reduce.empty());
  config.link.reset();
  config.workers = 8;  // within a node: its links decide
  EXPECT_TRUE(CostOn(cluster, config).all_reduce.empty());
  ExpectError(FailureKind::kConfig, {"expected equal numbers"},
              [&] { Parse(kAlone + Replaced(curve, "[100, 1100, 60100]", "[1, 2]")); });
}

TEST(DeclaredCluster, GathersAsItsFileSays) {
  const CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 8, 4);
  const auto gathered_by = [&](const std::string& line) {
    return CostOn(Parse(line + std::string(kAlone)), config).all_gather;
  };
  EXPECT_EQ(gathered_by(""), AllGatherBy::kRing);
  EXPECT_EQ(gathered_by("all_gather = \"ring\"\n"), AllGatherBy::kRing);
  EXPECT_EQ(gathered_by("all_gather = \"two-level\"\n"), AllGatherBy::kTwoLevel);
  EXPECT_SAYS(WrongIn("all_gather = \"tree\"\n" + std::string(kAlone)),
              "all_gather = \"tree\": expected one of ring, two-level");
}

// kAlone without one of its lines.
std::string AloneWithout(const std::string& key) {
  std::string text = kAlone;
  const auto at = text.find("\n" + key + " ");
  EXPECT_NE(at, std::string::npos) << key;
  return text.erase(at, text.find('\n', at + 1) - at);
}

TEST(ClusterStacks, StandForWhatAFileDoesNotState) {
  const std::string horovod = "stack = \"horovod-nccl\"\nall_reduce = \"ring\"\n";
  const DeclaredCluster own = Parse(horovod + kAlone);
  EXPECT_EQ(own.Value("exchange_host_us"), 20);  // the file's value
  EXPECT_EQ(own.Value("exchange_host_us_a_rank"), 10);
  EXPECT_SAYS(own.Find("overlap")->source, "stack horovod-nccl: ");
  EXPECT_EQ(own.all_reduce, AllReduceBy::kRing);  // the file's value again
  const DeclaredCluster taken = Parse(horovod + AloneWithout("exchange_host_us"));
  EXPECT_EQ(taken.Value("exchange_host_us"), 1000);
  EXPECT_LT(taken.Find("exchange_host_us")->low, 1000);
  const DeclaredCluster staged = Parse("stack = \"mpi-staged\"\n" + std::string(kAlone));
  EXPECT_EQ(staged.all_reduce, AllReduceBy::kRing);
  EXPECT_LT(staged.Value("overlap"), 0.5);
}

// Values solved for on measured steps are more accurate than a stack's general values.
TEST(ClusterStacks, ComeAfterTheCalibrationOfAReferenceCluster) {
  std::string text = TextOf(kResults / "profiles" / "safusion-cloud.toml");
  const DeclaredCluster cloud =
      Parse("all_reduce = \"ring\"\n" + Replaced(text, "horovod-sparse", "horovod-nccl"));
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  EXPECT_EQ(cloud.Value("exchange_host_us", "bert"), local.Value("exchange_host_us", "bert"));
  EXPECT_EQ(cloud.Value("update_host_us_a_tensor"), local.Value("update_host_us_a_tensor"));
  EXPECT_EQ(cloud.Value("compute_slowdown"), 1.05);
}

// Horovod's single thread gathers sparse payloads one after another and learns their counts first.
// Negotiation for large dense buffers goes on beside them, as the published rows of Horovod 0.19
// (results/published/ddl-benchmarks.csv) and BytePS require. GRACE over torch.distributed awaits
// each collective before the next; the other stacks launch from hooks.
TEST(ClusterStacks, SayWhetherTheHostIsInLineWithTheNetwork) {
  std::set<std::string> in_line;
  for (const std::string& name : kProfiles.Names(".toml", kStacksFolder)) {
    const DeclaredCluster cluster =
        Parse(fmt::format("stack = \"{}\"\nall_reduce = \"ring\"\n{}", name, kAlone));
    if (cluster.host == HostBy::kInLine) in_line.insert(name);
  }
  EXPECT_EQ(in_line, (std::set<std::string>{"horovod-sparse", "pytorch-grace"}));
  for (const std::string& name : kProfiles.Names(".toml")) {
    const DeclaredCluster& cluster = LoadDeclaredCluster(kProfiles, name);
    EXPECT_EQ(cluster.host == HostBy::kInLine, name.starts_with("safusion-")) << name;
  }
  // The file's own value has priority, and "beside" is no key of a profile.
  const std::string stack = "stack = \"horovod-sparse\"\n";
  const CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  const json own = ToJson(ProfileOn(Parse(stack + "host = \"beside\"\n" + kAlone), config));
  EXPECT_FALSE(own.contains("host"));
  const json taken = ToJson(ProfileOn(Parse(stack + kAlone), config));
  EXPECT_EQ(taken.at("host"), "in-line");
  EXPECT_TRUE(KernelCosts(RecordOf<Profile>(taken, "profile")).host_in_line);
  EXPECT_EQ(taken.at("selections"), "in-hooks");
  EXPECT_TRUE(KernelCosts(RecordOf<Profile>(taken, "profile")).selects_in_hooks);
  for (const char* key : {"host", "host_growth", "host_growth_from", "payload_overlap",
                          "fused_overlap", "entry_bytes", "selections"}) {
    EXPECT_TRUE(taken.contains(key)) << key;
    EXPECT_FALSE(ToJson(ProfileOn(Parse(kAlone), config)).contains(key)) << key;
  }
  EXPECT_SAYS(WrongIn("host = \"inline\"\n" + std::string(kAlone)),
              "host = \"inline\": expected one of beside, in-line");
}

// A stack's numbers were chosen together with its choices, so a file that states another is told.
TEST(ClusterStacks, RememberChoicesThatAFileStatesAgainstThem) {
  const std::string stack = "stack = \"horovod-sparse\"\n";
  EXPECT_TRUE(Parse(stack + kAlone).against_stack.empty());
  EXPECT_TRUE(Parse(stack + "host = \"in-line\"\n" + kAlone).against_stack.empty());
  EXPECT_EQ(
      Parse(stack + "host = \"beside\"\n" + kAlone).against_stack,
      std::vector<std::string>{"host = \"beside\", and stack horovod-sparse has \"in-line\""});
  EXPECT_TRUE(Parse("host = \"in-line\"\n" + std::string(kAlone)).against_stack.empty());
}

TEST(DeclaredCluster, TheRateOfComputationMayDifferByFamily) {
  const auto forward = [](const DeclaredCluster& cluster, const char* workload) {
    return ToJson(ProfileOn(cluster, ConfigOf(workload, 4)))
        .at("backward")
        .at("forward_seconds")
        .get<double>();
  };
  DeclaredCluster cluster = Parse(kAlone);
  const double bert = forward(cluster, "bert-large-squad");
  const double resnet = forward(cluster, "resnet152-imagenet");
  DeclaredInput slow = *cluster.Find("compute_tflops");
  cluster.Find("compute_tflops")->families = {"resnet"};
  slow.families = {"bert"};
  slow.value /= 3;
  cluster.inputs.push_back(slow);
  EXPECT_DOUBLE_EQ(forward(cluster, "bert-large-squad"), 3 * bert);
  EXPECT_DOUBLE_EQ(forward(cluster, "resnet152-imagenet"), resnet);
}

// A shaper's rate and what a card delivers without it are two bounds. Without the input, the share
// that is left of the card is left of the shaper's rate, too.
TEST(DeclaredCluster, AShaperHasAGoodputOfItsOwn) {
  const auto gbps = [](const std::string& more, std::optional<LinkShape> link) {
    const DeclaredCluster cluster = Parse(
        kAlone +
        ("inter_node_efficiency = { value = 0.25, kind = \"declared\", source = \"t\" }\n" + more));
    CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
    config.link = link;
    const auto links = ProfileOn(cluster, config).links;
    return 8e-9 / 8 / links.at("inter_node").seconds_per_byte;  // a card's
  };
  const std::string shaper =
      "shaper_efficiency = { value = 0.9, kind = \"measured\", source = \"iperf3\" }\n";
  const LinkShape slow{40, 5}, near{200, 5}, faster{800, 5};
  EXPECT_NEAR(gbps("", {}), 100, 1e-6);
  EXPECT_NEAR(gbps("", slow), 10, 1e-6);
  EXPECT_NEAR(gbps(shaper, {}), 100, 1e-6);      // no shaper
  EXPECT_NEAR(gbps(shaper, slow), 36, 1e-6);     // 0.9 of its rate
  EXPECT_NEAR(gbps(shaper, near), 100, 1e-6);    // what the card delivers
  EXPECT_NEAR(gbps(shaper, faster), 200, 1e-6);  // a faster card, and no shaper
}

// Two ranks or more run hooks; one rank alone runs none.
TEST(DeclaredCluster, HooksOfTheHostLengthenBackwardOfSeveralRanks) {
  const DeclaredCluster plain = Parse(kAlone);
  const DeclaredCluster hooked =
      Parse(std::string(kAlone) +
            "hook_host_us_a_tensor = { value = 50, kind = \"measured\", source = \"t\" }\n");
  CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  const auto backward = [&](const DeclaredCluster& cluster) {
    return ProfileOn(cluster, config).backward->backward_seconds();
  };
  const auto tensors = static_cast<double>(workloads::LayersOf("resnet50-imagenet").tensors.size());
  EXPECT_NEAR(backward(hooked) - backward(plain), 50e-6 * tensors, 1e-12);
  config.inputs = {{"host_overhead", 2}};
  EXPECT_NEAR(backward(hooked) - backward(plain), 100e-6 * tensors, 1e-12);
  config.inputs.clear();
  config.workers = 1;
  EXPECT_EQ(backward(hooked), backward(plain));
}

// A step of `method` with top-k on 16 cards, compared with the model.
DeclaredCluster WithStepOf(const std::string& method, const std::string& inputs = "") {
  return Parse(kAlone + inputs +
               "selection_ns_an_element = { value = 0.1, kind = \"declared\", source = \"t\" }\n"
               "[selection_costs]\ntopk = 1\n" +
               kCompute +
               StepOf(16, "step_ms = 1000\nsparsifier = \"topk\"\ndensity = 0.01", method));
}

// The host's work goes with a rank's entries, and grows with ranks as all of its time. Methods that
// gather have none.
TEST(DeclaredCluster, SumsOnTheHostTakeTimeByTheEntry) {
  const auto step = [](const std::string& inputs, const std::string& method) {
    return WithStepOf(method, inputs).references[0].modelled;
  };
  const auto input = [](const std::string& name, double value) {
    return fmt::format("{} = {{ value = {}, kind = \"declared\", source = \"t\" }}\n", name, value);
  };
  const auto by_entry = [&](double ns) { return input("sum_host_ns_an_entry", ns); };
  const std::string grows = input("exchange_growth", 0.5) + input("exchange_growth_from", 4);
  const double entries =
      0.01 * static_cast<double>(workloads::LayersOf("resnet50-imagenet").numel());
  for (const char* method : {"oktopk", "gtopk", "sparcml", "spardl"}) {
    const double work = step(by_entry(100), method) - step("", method);
    EXPECT_NEAR(work, 100e-9 * entries, 0.1 * work) << method;
    EXPECT_NEAR(step(by_entry(200), method) - step("", method), 2 * work, 1e-9) << method;
    EXPECT_NEAR(step(grows + by_entry(100), method) - step(grows, method), 2 * work, 1e-9)
        << method;
  }
  for (const char* method : {"cupcake", "zen", "wfbp"})
    EXPECT_EQ(step(by_entry(100), method), step("", method)) << method;
}

// Ok-Topk's first step sends more, to agree on ranges and on a threshold.
TEST(DeclaredCluster, AReferenceOfAPeriodicMethodIsAUsualStep) {
  const DeclaredCluster cluster = WithStepOf("oktopk");
  const CellConfig cell = CellOf(cluster, cluster.references[0]);
  const ProfileOutcomes times = DeclaredProfile(cluster, cell);
  const TrialConfig trial{cell, 1, 0, ""};
  const ModelConfig model = ConfigureModel(trial, times);
  const double first = StepSeconds(SimulateSteps(model, 0, 1, 0));
  const double third = StepSeconds(SimulateSteps(model, 2, 1, 0));
  EXPECT_GT(first, 1.001 * third);
  EXPECT_NEAR(cluster.references[0].modelled, third, 1e-3 * third);
  EXPECT_NEAR(ModelUsualStep(trial, times).seconds, third, 1e-3 * third);
}

// Times at several sizes: straight between them, and drawn and scaled as one number is.
TEST(DeclaredCluster, ACoderMayBeACurve) {
  const auto with = [](const std::string& lines) {
    return Parse(LocalWith("[selection_costs]",
                           "[[coder]]\nnames = [\"topk\", \"sign\"]\n" + lines +
                               "kind = \"measured\"\nsource = \"s\"\n[selection_costs]"));
  };
  const DeclaredCluster cluster = with(
      "elements = [1e5, 1e6, 1e7]\nencode_us = [50, 100, 900]\nhost_encode_us = [200, 3000, "
      "40000]\ndecode_us = 7\n");
  const auto cost = [&](std::map<std::string, double> inputs) {
    return KernelCosts(ProfileOn(cluster, ConfigOf("bert-large-squad", 4, std::move(inputs))));
  };
  const CostModel plain = cost({});
  EXPECT_NEAR(plain.SelectionSeconds("topk", 100, 0.01), 50e-6, 1e-12);
  EXPECT_NEAR(plain.SelectionSeconds("topk", 5'500'000, 0.01), 500e-6, 1e-12);
  EXPECT_NEAR(plain.EncodeSeconds("sign", 1'000'000), 100e-6, 1e-12);
  EXPECT_NEAR(cost({{"sparsify", 3}}).EncodeSeconds("sign", 1'000'000), 300e-6, 1e-12);
  const double start = 1e-6 * cluster.Value("kernel_us");
  const double to_host = 4e6 / (1e9 * cluster.Value("host_link_gbytes_per_s"));
  EXPECT_NEAR(plain.HostSelectionSeconds("topk", 1'000'000, 0.01), start + to_host + 3e-3, 1e-9);
  const auto refused = [&](const std::string& lines) { return ErrorOf([&] { with(lines); }); };
  EXPECT_SAYS(refused("encode_us = [50, 100]\n"), "elements is missing");
  EXPECT_SAYS(refused("elements = [1e5, 1e6, 1e7]\nencode_us = [50, 100]\n"),
              "elements has 3 numbers and encode_us 2: expected as many in both");
  EXPECT_SAYS(refused("elements = [1e6, 1e5]\nencode_us = [50, 100]\n"), "expected them to grow");
  EXPECT_SAYS(refused("elements = [1e5, 1e6]\nencode_us = 5\n"),
              "expected it with a list of times");
  EXPECT_SAYS(refused("elements = [1e5, 1e6]\nencode_us = [5, 6]\nencode_ns_an_element = 1\n"),
              "expected none, since encode_us has the times of several sizes");
}

// A measured step tells by which factor coders take longer within it than alone.
TEST(DeclaredCluster, CalibrationSolvesForCodersWithinAStep) {
  const std::string coder =
      "[[coder]]\nnames = [\"topk\"]\nencode_us = 100\nencode_ns_an_element = 1\nkind = "
      "\"measured\"\nsource = \"t\"\n";
  const std::string step =
      "[[reference]]\nworkload = \"resnet50-imagenet\"\nbatch_per_worker = 64\nworkers = 16\n"
      "method = \"wfbp\"\nsparsifier = \"topk\"\ndensity = 0.01\nsource = \"t\"\nsparsify_ms = ";
  const std::string in_step =
      "coding_in_step = { value = 1, kind = \"declared\", source = \"t\" }\n";
  const auto solve = [&](const std::string& ms) {
    return Parse("calibrate = [\"coding_in_step\"]\n" + std::string(kAlone) + in_step + kCompute +
                 coder + step + ms + "\n");
  };
  const double alone = Parse(std::string(kAlone) + in_step + kCompute + coder + step + "1\n")
                           .references.front()
                           .modelled;
  EXPECT_GT(alone, 0.02);
  const DeclaredCluster slower = solve(fmt::format("{}", 2.5e3 * alone));
  EXPECT_NEAR(slower.Value("coding_in_step"), 2.5, 0.05);
  EXPECT_NEAR(slower.references.front().modelled, 2.5 * alone, 1e-4);
}

// Compressor libraries gather payloads behind backward and reduce dense buffers beside it. In the
// other stacks, `overlap` gives the values that are not stated.
TEST(ClusterStacks, SayWhatOfPayloadsGoesOnBesideBackward) {
  const CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  std::map<std::string, double> stated;
  for (const std::string& name : kProfiles.Names(".toml", kStacksFolder)) {
    const json profile = ToJson(ProfileOn(
        Parse(fmt::format("stack = \"{}\"\nall_reduce = \"ring\"\n{}", name, kAlone)), config));
    if (!profile.contains("payload_overlap")) continue;
    stated[name] = profile.at("payload_overlap");
    EXPECT_EQ(profile.value("overlap", 1.0), 1) << name;
    EXPECT_EQ(profile.at("entry_bytes"), 12) << name;
  }
  EXPECT_EQ(stated, (std::map<std::string, double>{
                        {"horovod-grace", 0.1}, {"horovod-sparse", 1}, {"pytorch-grace", 0}}));
}

// If gradients are copied to the host, only the sent payloads are copied.
TEST(ClusterStacks, CopyPayloadsToTheHostWhereTheySendThose) {
  const CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  std::set<std::string> staged;
  for (const std::string& name : kProfiles.Names(".toml", kStacksFolder)) {
    const json profile = ToJson(ProfileOn(
        Parse(fmt::format("stack = \"{}\"\nall_reduce = \"ring\"\n{}", name, kAlone)), config));
    if (KernelCosts(RecordOf<Profile>(profile, "profile")).stages_payloads) staged.insert(name);
  }
  EXPECT_EQ(staged, (std::set<std::string>{"gloo", "mpi-staged"}));
  EXPECT_SAYS(WrongIn("staging = \"payload\"\n" + std::string(kAlone)),
              "staging = \"payload\": expected one of elements, payloads");
}

// DDP broadcasts buffers before each forward pass by default; Horovod, GRACE and code over MPI do
// not.
TEST(ClusterStacks, SayWhoseBuffersAreBroadcast) {
  CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  config.broadcast_bytes = 1'000'000;
  std::map<std::string, double> broadcast;
  for (const std::string& name : kProfiles.Names(".toml", kStacksFolder)) {
    const DeclaredCluster cluster =
        Parse(fmt::format("stack = \"{}\"\nall_reduce = \"ring\"\n{}", name, kAlone));
    if (cluster.BroadcastBytes(config) > 0)
      broadcast[name] = cluster.buffers == BuffersBy::kTree ? 2 : 1;
  }
  EXPECT_EQ(broadcast, (std::map<std::string, double>{{"gloo", 2}, {"pytorch-nccl", 1}}));
  EXPECT_SAYS(WrongIn("buffers = \"rings\"\n" + std::string(kAlone)),
              "buffers = \"rings\": expected one of local, ring, tree");
}

TEST(DeclaredCluster, BroadcastsTheBuffersThatACellHas) {
  const DeclaredCluster cluster = Parse("buffers = \"ring\"\n" + std::string(kAlone));
  CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  const auto buffers = [&] { return ProfileOn(cluster, config).buffers; };
  EXPECT_FALSE(buffers());  // the workload says none, and nothing changes
  EXPECT_FALSE(ToJson(ProfileOn(cluster, config)).contains("buffers"));
  config.broadcast_bytes = 1'000'000;
  ASSERT_TRUE(buffers());
  EXPECT_EQ(buffers()->bytes, 1e6);
  const double once = buffers()->link_seconds;
  EXPECT_GT(once, 0);
  config.broadcast_bytes = 2'000'000;
  EXPECT_NEAR(buffers()->link_seconds, 2 * once, 1e-12);
  config.inputs = {{"bandwidth", 2}};
  EXPECT_NEAR(buffers()->link_seconds, once, 1e-12);
  config.inputs.clear();
  config.workers = 1;
  EXPECT_FALSE(buffers());
}

TEST(ClusterStacks, AllThereAreCanBeTakenByAClusterAndMistakesNameThem) {
  const std::string nccl =
      "[nccl]\nwithin = \"nvlink\"\ncards = \"hopper\"\nchannels = 16\nll128 = true\n";
  const auto names = kProfiles.Names(".toml", kStacksFolder);
  EXPECT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    const DeclaredCluster cluster =
        Parse(fmt::format("stack = \"{}\"\n{}{}", name, AloneWithout("exchange_host_us"), nccl));
    EXPECT_GT(cluster.Value("exchange_host_us"), 0) << name;
    EXPECT_EQ(cluster.stack, name);
  }
  EXPECT_SAYS(WrongIn("stack = \"horovod-ncl\"\n" + std::string(kAlone)),
              "cluster.toml:1: unknown stack \"horovod-ncl\"; did you mean \"horovod-nccl\"?");
  const std::string without = WrongIn("stack = \"pytorch-nccl\"\n" + std::string(kAlone));
  EXPECT_SAYS(without, "[nccl] is missing");
  EXPECT_SAYS(without, "stack \"pytorch-nccl\" needs");
  const std::string neither = WrongIn(AloneWithout("exchange_host_us"));
  EXPECT_SAYS(neither, "exchange_host_us is missing");
  EXPECT_SAYS(neither, "or a stack that states it");
  // [nccl] describes the machine: it may stay if the file chooses another all-reduce than its
  // stack.
  const std::string rest = AloneWithout("exchange_host_us") + nccl;
  const DeclaredCluster tree = Parse("stack = \"pytorch-nccl\"\nall_reduce = \"tree\"\n" + rest);
  EXPECT_EQ(tree.all_reduce, AllReduceBy::kTree);
  EXPECT_EQ(tree.against_stack.size(), 1u);
  EXPECT_SAYS(WrongIn("all_reduce = \"tree\"\n" + std::string(kAlone) + nccl), "or with a stack");
}

// A stack's file is checked completely, whether or not a cluster needs each of its numbers.
TEST(ClusterStacks, MistakesOfTheirFilesNameThem) {
  const fs::path folder = fs::path(::testing::TempDir()) / "cluster-stacks";
  fs::create_directories(folder / kStacksFolder);
  const auto error = [&](const std::string& stack) {
    std::ofstream(folder / kStacksFolder / "mine.toml") << stack;
    return ErrorOf([&] {
      ParseDeclaredCluster(
          TomlFile::Parse("stack = \"mine\"\n" + std::string(kAlone), "cluster.toml"), folder);
    });
  };
  const std::string head = "title = \"t\"\nsource = \"t\"\n[input]\n";
  EXPECT_EQ(error(head), "no error");
  EXPECT_SAYS(
      error(head +
            "exchange_host_us = { value = 5, low = 6, kind = \"declared\", source = \"t\" }\n"),
      "mine.toml:4: low = 6");
  const std::string machine =
      error(head + "memory_gbytes_per_s = { value = 5, kind = \"declared\", source = \"t\" }\n");
  EXPECT_SAYS(machine, "mine.toml:4");
  EXPECT_SAYS(machine, "[input] of a stack");
  fs::remove_all(folder);
}

TEST(ClusterPresets, AreClustersAndMakeThem) {
  const auto names = kProfiles.Names(".toml", kPresetsFolder);
  EXPECT_GE(names.size(), 5u);
  for (const std::string& preset : names) {
    const std::string text = ClusterFromPreset(kProfiles, {"mine", preset, 16, 0});
    const DeclaredCluster cluster = Parse(text);
    EXPECT_EQ(cluster.nodes, 16) << preset;
    EXPECT_GE(cluster.ranks_per_node, 1) << preset;
    EXPECT_SAYS(text, "sparfuse cluster new mine --preset " + preset);
    // Every number that is not from a data sheet has a range.
    for (const DeclaredInput& input : cluster.inputs) {
      if (input.kind != "declared" || input.name == "network_cards") continue;
      EXPECT_LT(input.low, input.high) << preset << " " << input.name;
    }
    cluster.CheckSparsifier("dgc");
    cluster.CheckWorkload("bert-large-squad");
    ProfileOn(cluster,
              ConfigOf("bert-large-squad", 4, {}, cluster.ranks(), cluster.ranks_per_node));
  }
}

TEST(ClusterPresets, RanksOfANodeHaveTheirShareOfItsCards) {
  const auto make = [&](int ranks) {
    return Parse(ClusterFromPreset(kProfiles, {"mine", "h100-nvlink-ib", 4, ranks}));
  };
  EXPECT_EQ(make(8).Value("network_cards"), 8);
  EXPECT_EQ(make(2).Value("network_cards"), 2);
  EXPECT_EQ(make(2).Find("network_cards")->high, 2);
  EXPECT_EQ(make(2).ranks(), 8);
  ExpectError(FailureKind::kConfig, {"--ranks-per-node 9", "from 1 to 8"}, [&] { make(9); });
  ExpectError(FailureKind::kConfig, {"did you mean \"h100-nvlink-ib\"?"}, [&] {
    ClusterFromPreset(kProfiles, {"mine", "h100-nvlink", 4, 8});
  });
}

// The words of a new cluster have its own numbers, and none of the preset's.
TEST(ClusterPresets, HardwareHasTheNumbersOfTheNewCluster) {
  const auto hardware = [&](const char* preset, int nodes, int ranks) {
    const DeclaredCluster made =
        Parse(ClusterFromPreset(kProfiles, {"mine", preset, nodes, ranks}));
    EXPECT_EQ(made.title.find("odes of"), std::string::npos) << made.title;
    return made.hardware;
  };
  EXPECT_EQ(hardware("rtx2080ti-10gbe", 0, 1),
            "2 nodes of 1 NVIDIA RTX 2080 Ti 11 GB (PCIe 3.0, no peer access), two Intel Xeon, "
            "10 Gbit/s Ethernet; 1 network card a node");
  EXPECT_EQ(hardware("rtx2080ti-10gbe", 1, 0).substr(0, 12), "1 node of 4 ");
  EXPECT_SAYS(hardware("h100-nvlink-ib", 16, 2), "16 nodes of 2 NVIDIA H100");
  EXPECT_SAYS(hardware("h100-nvlink-ib", 16, 2), "; 2 network cards a node");
  EXPECT_SAYS(hardware("h100-nvlink-ib", 16, 0), "; 8 network cards a node");
}

TEST(ClusterPresets, TakeNoNameThatIsNoneOrTaken) {
  EXPECT_EQ(PlaceOfNewCluster(kProfiles, "mine"), kResults / "profiles" / "mine.toml");
  for (const char* bad :
       {"", "a b", "../mine", ".mine", "this-machine", "safusion-local", "epyc-2core"}) {
    EXPECT_SAYS(ErrorOf([&] { PlaceOfNewCluster(kProfiles, bad); }), "expected") << bad;
  }
}

// An all-reduce of a gigabyte in a node of eight takes its bytes over the bus bandwidth, as
// nccl-tests define it: bytes * 2 (n - 1) / n / busbw (nccl-tests, doc/PERFORMANCE.md). The bus is
// a link at the rate that NCCL assumes (src/graph/topo.h: 18 NVLinks of 20.6 GB/s, 12 of 20, 6 of
// 20).
TEST(ClusterPresets, AllReduceInANodeByNcclsOwnArithmetic) {
  for (const auto& [preset, busbw] : {std::pair{"h100-nvlink-ib", 18 * 20.6e9},
                                      {"a100-nvlink-ib", 12 * 20e9},
                                      {"v100-nvlink-100gbe", 6 * 20e9}}) {
    const DeclaredCluster cluster = Parse(ClusterFromPreset(kProfiles, {"mine", preset, 1, 8}));
    const CostModel cost = CostOn(cluster, ConfigOf("bert-large-squad", 4, {}, 8, 8));
    constexpr std::uint64_t kBytes = 1u << 30;
    const double expected = kBytes * 2.0 * 7 / 8 / busbw;
    EXPECT_NEAR(cost.AllReducePhases({}, true, kBytes).alone(), expected, 0.03 * expected)
        << preset;
  }
}

// NCCL's tree with LL on two nodes of eight: 14 hops within nodes and 2 between them. A cell's
// factor or link does not change the choice, but it changes the time.
TEST(ClusterPresets, WhatNcclChoosesTakesTheLatenciesOfTheCell) {
  const DeclaredCluster cluster =
      Parse(ClusterFromPreset(kProfiles, {"mine", "v100-nvlink-100gbe", 2, 8}));
  CellConfig config = ConfigOf("resnet50-imagenet", 64, {}, 16, 8);
  const auto start_us = [&] {
    return 1e6 * CostOn(cluster, config).AllReducePhases({}, true, 64).latency_seconds;
  };
  const double as_declared = start_us();
  config.inputs = {{"latency", 2}};
  EXPECT_NEAR(start_us() - as_declared, 14 * 1.9 + 2 * 10, 1e-6);
  config.inputs = {};
  config.link = LinkShape{100, 50, 0};
  EXPECT_NEAR(start_us() - as_declared, 2 * (50 - 10), 1e-6);
}

TEST(ImpossibleClusters, NameFileKeyValueAndWhatWasExpected) {
  struct Mistake {
    const char *old, *now, *said;
  };
  for (const Mistake& each : {
           Mistake{"inter_node_gbps          = { value = 400",
                   "inter_node_gbps          = { value = 0",
                   "value = 0: expected a number from 1e-09"},
           {"network_cards            = { value = 8", "network_cards            = { value = 0.5",
            "value = 0.5: expected a number from 1 to 64"},
           {"inter_node_us ",
            "inter_node_efficiency = { value = 1.2, kind = \"declared\", source = "
            "\"t\" }\ninter_node_us ",
            "value = 1.2: expected a number from 0.0001 to 1"},
           {"kernel_us                = { value = 4",
            "kernel_us                = { value = 4, low = 5",
            "low = 5: expected a number from 0 to 4"},
           {"kernel_us                = { value = 4",
            "kernel_us                = { value = 4, high = 3",
            "high = 3: expected a number from 4 to"},
           {"nodes          = 2", "nodes          = 0", "nodes = 0: expected an integer from 1"},
           {"kind = \"data sheet\"", "kind = \"guess\"",
            "kind = \"guess\": expected one of measured"},
       }) {
    ExpectError(FailureKind::kConfig, {"cluster.toml:", each.said},
                [&] { Parse(AloneWith(each.old, each.now)); });
  }
}

TEST(ImpossibleClusters, AReferenceFitsTheDevices) {
  ExpectError(FailureKind::kConfig, {"workers = 17: expected at most the cluster's 16 devices"},
              [&] { Parse(std::string(kAlone) + kCompute + StepOf(17, "step_ms = 200")); });
}

TEST(ImpossibleClusters, TwoValuesOfOneThingAgree) {
  const std::string both =
      Replaced(kCompute, "samples_per_s = 400", "samples_per_s = 400\nstep_ms = ");
  const auto compute = [&](const std::string& step) {
    Parse(kAlone + Replaced(both, "step_ms = ", "step_ms = " + step));
  };
  compute("160");
  compute("165");  // means of the same runs
  ExpectError(FailureKind::kConfig, {"cluster.toml:", "step_ms = 5", "samples_per_s, 160 ms"},
              [&] { compute("5"); });
  const auto reference = [&](const std::string& times) {
    Parse(std::string(kAlone) + kCompute + StepOf(16, times));
  };
  ExpectError(FailureKind::kConfig, {"step_ms = 900", "samples_per_s, 1024 ms"},
              [&] { reference("step_ms = 900\nsamples_per_s = 1000"); });
  ExpectError(FailureKind::kConfig,
              {"cluster.toml:", "a step of 90 ms", "forward and backward, 100"},
              [&] { reference("step_ms = 90\nforward_ms = 30\nbackward_ms = 70"); });
  // One worker's computation is 160 ms.
  ExpectError(FailureKind::kConfig,
              {"cluster.toml:", "a step of 50 ms", "forward and backward take 1"},
              [&] { reference("step_ms = 50"); });
}

TEST(ImpossibleClusters, TwoTablesOfOneThingAgree) {
  const auto parse = [](const std::string& more) { Parse(std::string(kAlone) + kCompute + more); };
  const std::string step = Replaced(kCompute, "samples_per_s = 400", "step_ms = 5");
  ExpectError(FailureKind::kConfig, {"cluster.toml:", "a step of 5 ms", "backward, 90 ms"}, [&] {
    Parse(kAlone + Replaced(step, "step_ms = 5", "step_ms = 5\nforward_ms = 30\nbackward_ms = 60"));
  });
  parse(Replaced(kCompute, "samples_per_s = 400", "samples_per_s = 395"));
  ExpectError(FailureKind::kConfig,
              {"cluster.toml:", "resnet50-imagenet with batch 64 takes 4", "says 1", " ms"},
              [&] { parse(Replaced(kCompute, "samples_per_s = 400", "step_ms = 500")); });
  const std::string curve =
      "[[curve]]\noperation = \"all-reduce\"\nranks = 16\nbytes = [1000, 2000]\nus = [900, 1000]\n"
      "kind = \"measured\"\nsource = \"t\"\n";
  parse(curve + Replaced(curve, "ranks = 16", "ranks = 8"));
  ExpectError(FailureKind::kConfig,
              {"cluster.toml:", "a second all-reduce of 16 ranks, which cluster.toml:"},
              [&] { parse(curve + curve); });
}

TEST(ImpossibleClusters, NoCurveBeatsItsLinks) {
  const auto curve = [&](int ranks, const std::string& bytes, const std::string& us) {
    Parse(kAlone + fmt::format("[[curve]]\noperation = \"all-reduce\"\nranks = {}\nbytes = [{}]\n"
                               "us = [{}]\nkind = \"imported\"\nsource = \"t\"\n",
                               ranks, bytes, us));
  };
  // A gigabyte takes 2.5 ms over eight cards of 400 Gbit/s, and 2.22 ms over links within a node.
  curve(16, "8, 1e9", "100, 2500");
  ExpectError(
      FailureKind::kConfig,
      {"cluster.toml:", "1e+09 bytes in 1000 us are 8000 Gbit/s", "inter_node_gbps", "3200"},
      [&] { curve(16, "8, 1e9", "100, 1000"); });
  curve(8, "8, 1e9", "100, 2300");
  ExpectError(FailureKind::kConfig, {"intra_node_gbps", "3600"},
              [&] { curve(8, "8, 1e9", "100, 2000"); });
  curve(16, "8, 16, 32", "90, 60, 50");  // measurement noise
  ExpectError(FailureKind::kConfig, {"16 bytes in 1 us, and fewer took 1000 us"},
              [&] { curve(16, "8, 16", "1000, 1"); });
}

TEST(ImpossibleClusters, NoneRefersToItself) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& reference) {
    std::ofstream(folder.path() / (name + ".toml"))
        << "reference_cluster = \"" << reference << "\"" << kAlone;
  };
  write("one", "one");
  write("a", "b");
  write("b", "c");
  write("c", "b");
  const ProfileFolders profiles(folder.path());
  ExpectError(FailureKind::kConfig, {"one.toml:1", "reference_cluster = \"one\"", "one -> one"},
              [&] { LoadDeclaredCluster(profiles, "one"); });
  ExpectError(FailureKind::kConfig, {"a.toml:1", "a -> b -> c -> b"},
              [&] { LoadDeclaredCluster(profiles, "a"); });
}

// One input cannot make a step take both 250 and 500 ms: it settles between them, far from both.
TEST(ImpossibleClusters, ReferencesThatContradictStayApart) {
  const DeclaredCluster cluster =
      Parse("calibrate = [\"exchange_host_us\"]\n" + std::string(kAlone) + kCompute +
            StepOf(16, "step_ms = 250") + StepOf(16, "step_ms = 500"));
  ASSERT_EQ(cluster.references.size(), 2u);
  EXPECT_GT(cluster.references[0].off(), 0.1);
  EXPECT_LT(cluster.references[1].off(), -0.1);
  EXPECT_DOUBLE_EQ(cluster.references[0].modelled, cluster.references[1].modelled);
}

TEST(ImpossibleClusters, ReferencesAreComparedWhereNothingIsCalibrated) {
  const DeclaredCluster cluster =
      Parse(std::string(kAlone) + kCompute + StepOf(16, "step_ms = 250"));
  ASSERT_EQ(cluster.references.size(), 1u);
  EXPECT_DOUBLE_EQ(cluster.references[0].modelled, Modelled(cluster, cluster.references[0]));
  EXPECT_GT(cluster.references[0].modelled, 0.16);  // the time of one card
}

// A step of 64 images takes one card 160 ms. ResNet-50 has 102 MB of gradients: at least all of
// them leave one of two nodes, and a ring sends 2 * 15 / 16 of them.
TEST(ImpliedRate, SaysWhatADenseStepContradicts) {
  const auto cluster_of = [](double gbps, const std::string& reference) {
    const std::string text = AloneWith("inter_node_gbps          = { value = 400",
                                       fmt::format("inter_node_gbps = {{ value = {}", gbps));
    const auto cards = text.find("network_cards ");
    return Parse(std::string(text).erase(cards, text.find('\n', cards) - cards) + kCompute +
                 reference);
  };
  const auto conflict = [&](double gbps, const std::string& time) {
    const DeclaredCluster cluster = cluster_of(gbps, StepOf(16, time));
    return RateConflict(cluster, cluster.references.front());
  };
  const DeclaredCluster ten = cluster_of(10, StepOf(16, "step_ms = 320"));
  const auto rate = ImpliedRateOf(ten, ten.references.front());
  ASSERT_TRUE(rate);
  const double gradients = 4.0 * 25'557'032;
  EXPECT_NEAR(rate->least_bytes, gradients, 1e-3 * gradients);
  EXPECT_NEAR(rate->most_bytes, 1.875 * gradients, 1e-3 * gradients);
  // One card: forward takes a third, backward two thirds, and then the update, for which kAlone's
  // host takes 3 us more a tensor.
  const double update = UpdateSeconds(ten, "resnet50-imagenet");
  const double backward = 2.0 / 3 * (0.16 - update);
  const double exposed =
      0.32 - 0.16 -
      3e-6 * static_cast<double>(workloads::LayersOf("resnet50-imagenet").tensors.size());
  EXPECT_NEAR(rate->most, rate->most_bytes * 8e-9 / exposed, 1e-6 * rate->most);
  EXPECT_NEAR(rate->least, rate->least_bytes * 8e-9 / (exposed + backward), 1e-6 * rate->least);
  EXPECT_EQ(rate->nominal, 10);
  EXPECT_EQ(conflict(10, "step_ms = 320"), "");
  // With a label of a tenth, 1 Gbit/s, the exchange would take 1.5 s.
  const std::string faster = conflict(1, "step_ms = 320");
  EXPECT_SAYS(faster, "the nominal rate is 1 ");
  EXPECT_SAYS(faster, "a step of resnet50-imagenet with dense on 16 workers");
  const std::string slower = conflict(100, "exposed_ms = 160");
  EXPECT_SAYS(slower, "slower than its label");
  EXPECT_EQ(conflict(1, "step_ms = 2000"), "");
  // Steps within a node and sparsified steps imply no rate.
  const DeclaredCluster node = cluster_of(1, StepOf(8, "step_ms = 320"));
  EXPECT_FALSE(ImpliedRateOf(node, node.references.front()));
}

// Eight RTX 2080 Ti on two nodes train 1282.28 images a second by one all-reduce over 10 Gbit/s
// Ethernet, one card 253.1 (arXiv 2005.13247, HKBU-HPML/ddl-benchmarks, results/2020-05-29). Labels
// of 1 or 100 Gbit/s contradict the same step.
TEST(ImpliedRate, AMeasuredRunFitsItsLabelAlone) {
  const std::string text = ClusterFromPreset(kProfiles, {"mine", "rtx2080ti-10gbe", 2, 4}) +
                           "[[compute]]\nworkload = \"resnet50-imagenet\"\nbatch_per_worker = 64\n"
                           "samples_per_s = 253.1\nkind = \"measured\"\nsource = \"t\"\n" +
                           StepOf(8, "samples_per_s = 1282.28");
  const auto conflict = [&](const std::string& label) {
    const DeclaredCluster cluster =
        Parse(Replaced(text, "value = 10, low = 10, high = 10", "value = " + label));
    return RateConflict(cluster, cluster.references.front());
  };
  EXPECT_EQ(conflict("10"), "");
  EXPECT_SAYS(conflict("1"), "faster than declared");
  EXPECT_SAYS(conflict("100"), "slower than its label");
}

constexpr const char* kFile = R"(id = "e"
[defaults]
mode     = "modelled"
cluster  = "safusion-local"
workload = "resnet152-imagenet"
method   = "safusion"
workers  = 8
)";
const std::string& Bars() {
  static const std::string line = testing::CalibrationLine(kProfiles, "safusion-local");
  return line;
}

Experiment Load(const std::string& text) {
  static const Catalog catalog = BuiltInCatalog();
  return ParseExperiment(TomlFile::Parse(text, "e.toml"), catalog, kProfiles,
                         kResults / "published");
}

TEST(DeclaredCluster, AnExperimentNamesWhatItsClustersAreCalibratedWith) {
  ExpectError(FailureKind::kConfig, {"e.toml", "\"SAFusion (HPDC 25)/Fig15b/WFBP\""},
              [] { Load(kFile); });
  EXPECT_EQ(Load(Bars() + kFile).parts.front().cells.size(), 1u);
}

// Fig. 15's steps of WFBP and Cupcake are used for calibration: their ratio is no prediction.
TEST(DeclaredCluster, AClaimOfOneStepThatCalibratesOverAnotherIsRefused) {
  const auto claim = [](const std::string& of, const std::string& over) {
    return Bars() +
           Replaced(kFile, "method   = \"safusion\"\n",
                    "sparsifier = \"dgc\"\ndensity = 0.01\n"
                    "batch_per_worker = 16\n") +
           "[[axis]]\nmethod = [\"" + of + "\", \"" + over +
           "\"]\n[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"" + of +
           "\" }\nover = { method = \"" + over + "\" }\nexpect = \"more\"\n";
  };
  ExpectError(FailureKind::kConfig,
              {"compares cupcake on 8 workers with wfbp on 8", "calibrated with both"},
              [&] { Load(claim("cupcake", "wfbp")); });
  EXPECT_EQ(Load(claim("safusion", "wfbp")).parts.front().claims.size(), 1u);
}

TEST(DeclaredCluster, ACellMustFitItsCluster) {
  const std::string bars_and_cell = Bars() + kFile;
  const auto error = [&](const std::string& line) {
    return ErrorOf([&] { Load(bars_and_cell + line + "\n"); });
  };
  EXPECT_SAYS(error("ranks_per_node = 1\ninputs = { bandwith = 2 }"), "did you mean \"bandwidth\"");
  EXPECT_SAYS(error("inputs = { bandwidth = 0 }"), "a number from 0.001 to 1000");
  EXPECT_SAYS(ErrorOf([&] { Load(Replaced(bars_and_cell, "workers  = 8", "workers  = 9")); }),
              "has 8 devices");
  EXPECT_TRUE(Load(bars_and_cell + "inputs = { bandwidth = 1 }\n")
                  .parts.front()
                  .cells.front()
                  .config.inputs.empty());
}

const std::string kHeader =
    "paper,artifact,workload,model,dataset,workers,network,method,sparsifier,density,metric,"
    "value,unit,source,confidence\n";

TEST(Published, QuotedFieldsRangesAndMistakes) {
  const auto rows =
      ParsePublished(kHeader + "P,F1,w,m,d,8,n,\"A, \"\"B\"\"\",s,0.01,x,1.5e-3,s,src,high\n" +
                         "P,text,w,m,d,8,n,A,s,0.01,x,28.20-58.28,%,src,high\n",
                     "numbers.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].method, "A, \"B\"");
  EXPECT_DOUBLE_EQ(rows[0].value.value(), 1.5e-3);
  EXPECT_FALSE(rows[1].value.has_value());
  EXPECT_EQ(rows[1].stated, "28.20-58.28");
  EXPECT_SAYS(ErrorOf([&] { ParsePublished(kHeader + "P,F1\n", "numbers.csv"); }),
              "numbers.csv:2: 2 fields");
  EXPECT_SAYS(ErrorOf([&] {
                ParsePublished(kHeader + "P,F1,w,m,d,8,n,A,s,0.01,x,,s,src,h\n", "numbers.csv");
              }),
              "value is empty");
}

TEST(Published, AMeanMayHaveItsDeviation) {
  const std::string row = "P,t,w,m,d,8,n,A,none,1.0,throughput,";
  const auto rows = ParsePublished(kHeader + row + "925.020 +- 4.42,samples/s,src,verbatim\n" +
                                       row + "253.1,samples/s,src,verbatim\n",
                                   "numbers.csv");
  EXPECT_DOUBLE_EQ(rows[0].value.value(), 925.02);
  EXPECT_DOUBLE_EQ(rows[0].deviation.value(), 4.42);
  EXPECT_DOUBLE_EQ(rows[1].value.value(), 253.1);
  EXPECT_FALSE(rows[1].deviation.has_value());
  for (const std::string wrong : {"925 +- some", "about +- 3"}) {
    EXPECT_SAYS(ErrorOf([&] {
                  ParsePublished(kHeader + row + wrong + ",samples/s,src,verbatim\n",
                                 "numbers.csv");
                }),
                "numbers.csv:2: value \"" + wrong + "\": expected two numbers around +-");
  }
}

// Rows of one worker are inputs. Parameter servers took as long over the fast network as over the
// slow one, at every number of workers: they cannot have used the fast one.
TEST(Published, RowsOfTheTestbedThatMayNotBeComparedWithAreMarked) {
  const auto rows = ReadPublished(kResults / "published" / "ddl-benchmarks.csv");
  ASSERT_EQ(rows.size(), 315u);
  std::map<std::string, double> of;
  for (const PublishedNumber& row : rows)
    of[row.network + row.model + row.method + row.workers] = row.value.value();
  std::size_t contradicted = 0;
  for (const PublishedNumber& row : rows) {
    EXPECT_EQ(row.deviation.has_value(), row.workers != "1") << row.model;
    const bool input = row.confidence.ends_with("; one worker: an input");
    EXPECT_EQ(input, row.workers == "1") << row.model << " " << row.workers;
    bool as_slow =
        row.workers != "4" && row.network == "100GbE with TCP/IP" && row.method.ends_with("-PS");
    for (const char* workers : {"8", "16", "32"}) {
      const std::string setting = row.model + row.method + workers;
      const double ratio =
          of.at("100GbE with TCP/IP" + setting) / of.at("10GbE with TCP/IP" + setting);
      as_slow = as_slow && std::abs(ratio - 1) < 0.03;
    }
    const bool marked = row.confidence.ends_with("; contradicts its network");
    EXPECT_EQ(marked, as_slow && !input) << row.model << " " << row.method << " " << row.workers;
    contradicted += marked ? 1 : 0;
  }
  EXPECT_EQ(contradicted, 12u);
}

// By the sums that BERT's paper implies: embeddings, layers, pooler, and the pre-training heads,
// whose output layer shares the embeddings' weight.
TEST(ModelTables, BertForPreTrainingHasItsParameters) {
  const auto parameters = [](std::size_t width, std::size_t layers, std::size_t words) {
    const std::size_t square = width * width + width;
    const std::size_t layer = 4 * square + 8 * width * width + 5 * width + 4 * width;
    const std::size_t head = words + square + 2 * width + 2 * width + 2;
    return (words + 512 + 2) * width + 2 * width + layers * layer + square + head;
  };
  const fs::path folder = testing::SourceDirectory() / "experiments" / "validation";
  const auto layers = [&](const char* file) {
    return workloads::LayersOf(TableWorkloadName(std::string("table:") + file, folder));
  };
  const auto base = layers("bert-base-pretraining.json");
  const auto large = layers("bert-large-pretraining.json");
  constexpr std::size_t kWords = 30528;
  EXPECT_EQ(base.numel(), parameters(768, 12, kWords));
  EXPECT_EQ(large.numel(), parameters(1024, 24, kWords));
  EXPECT_NEAR(static_cast<double>(base.numel()), 110.1e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(large.numel()), 336.2e6, 0.05e6);
  EXPECT_EQ(base.tensors.size(), 206u);
  EXPECT_EQ(large.tensors.size(), 398u);
}

// The testbed's fabric that steps calibrate, with one text in it replaced.
std::string IpoibWith(const std::string& old, const std::string& now) {
  return Replaced(TextOf(kResults / "profiles" / "hkbu-ipoib.toml"), old, now);
}

DeclaredCluster ParseIpoib(const std::string& text) {
  const fs::path file = kResults / "profiles" / "hkbu-ipoib.toml";  // tables are relative to it
  return ParseDeclaredCluster(TomlFile::Parse(text, file.string()), kProfiles);
}

TEST(DeclaredCluster, AReferenceMayBeARowOfAPublishedTable) {
  const DeclaredCluster& ipoib = LoadDeclaredCluster(kProfiles, "hkbu-ipoib");
  ASSERT_EQ(ipoib.references.size(), 6u);
  for (const ReferenceStep& step : ipoib.references) {
    ASSERT_TRUE(step.bar);
    EXPECT_TRUE(step.bar->row.ends_with(fmt::format("/{}/100GbE with TCP/IP", step.workers)));
    EXPECT_NEAR(step.modelled / step.measured, 1, 0.06) << step.bar->name();
  }
  const ReferenceStep& first = ipoib.references.front();
  EXPECT_EQ(first.bar->name(),
            "DDL benchmarks (arXiv 2005.13247)/results of 2020-05-29/BSP-A2A/BERT-Base/4/100GbE "
            "with TCP/IP");
  EXPECT_DOUBLE_EQ(first.measured, 4 * 64 / 555.36);
}

TEST(DeclaredCluster, MistakesInARowNameWhatThereIs) {
  const auto error = [](const std::string& old, const std::string& now) {
    return ErrorOf([&] { ParseIpoib(IpoibWith(old, now)); });
  };
  EXPECT_SAYS(error("network = \"100GbE with TCP/IP\"", "network = \"100GbE with TCP\""),
              "did you mean \"100GbE with TCP/IP\"");
  EXPECT_SAYS(error("model = \"BERT-Base\", workers = 4", "model = \"BERT-Base\", workers = 8"),
              "expected the reference's workers, 4");
  EXPECT_SAYS(error("row  ", "step_ms = 3\nrow  "), "one of the three");
  EXPECT_SAYS(error("file = \"ddl-benchmarks.csv\", ", ""), "file");
}

TEST(DeclaredCluster, AnotherFabricTakesOverWhatTheHostCosts) {
  const DeclaredCluster& ipoib = LoadDeclaredCluster(kProfiles, "hkbu-ipoib");
  for (const char* name : {"hkbu-10gbe", "hkbu-rdma"}) {
    const DeclaredCluster& other = LoadDeclaredCluster(kProfiles, name);
    for (const char* input : {"exchange_host_us", "exchange_host_us_a_rank"})
      EXPECT_DOUBLE_EQ(other.Value(input), ipoib.Value(input)) << name;
    EXPECT_DOUBLE_EQ(other.Value("update_host_us_a_tensor", "bert"),
                     ipoib.Value("update_host_us_a_tensor", "bert"));
    EXPECT_NE(other.Value("inter_node_efficiency"), ipoib.Value("inter_node_efficiency"));
    EXPECT_EQ(other.references.size(), ipoib.references.size());  // experiments must name them
  }
}

// The experiments that use a cluster name every row behind it.
TEST(DeclaredCluster, AnExperimentNamesTheRowsBehindItsClusters) {
  const fs::path file =
      testing::SourceDirectory() / "experiments" / "validation" / "throughput.toml";
  const auto read = [&](const std::string& text) {
    return ParseExperiment(TomlFile::Parse(text, file.string()), BuiltInCatalog(), kProfiles,
                           kResults / "published");
  };
  const std::string row = "/WFBP-A2A/ResNet-50/32/100GbE with TCP/IP";
  const std::string text = Replaced(TextOf(file), row, "/WFBP-A2A/ResNet-50/16/100GbE with TCP/IP");
  EXPECT_SAYS(ErrorOf([&] { read(text); }), row);
}

// Steps that calibrated their cluster are no predictions, however their references state them; nor
// is the step of one worker that the cluster's file states. A step that selects is a prediction.
TEST(DeclaredCluster, AFigureKnowsTheCellsThatCalibrated) {
  const auto calibrating = [](int workers) {
    const Experiment experiment = Load(Bars() + fmt::format(R"toml(
id = "e"
[published]
paper = "SAFusion (HPDC 25)"
methods = {{ wfbp = "WFBP" }}
[defaults]
mode = "modelled"
cluster = "safusion-local"
workload = "resnet152-imagenet"
batch_per_worker = 16
workers = {}
sparsifier = "dgc"
density = 0.01
[[axis]]
method = ["dense", "wfbp", "safusion"]
[[figure]]
kind = "agreement"
published = {{ artifacts = {{ resnet152-imagenet = "Fig14a" }} }}
)toml",
                                                            workers));
    const Part& part = experiment.parts.front();
    std::vector<std::string> methods;
    for (const json& cell : part.figures.front().value("calibrating", json::array()))
      methods.push_back(part.cells[cell.get<std::size_t>()].config.method);
    return methods;
  };
  EXPECT_EQ(calibrating(8), std::vector<std::string>{"wfbp"});
  EXPECT_EQ(calibrating(4), std::vector<std::string>());
  EXPECT_EQ(calibrating(1), std::vector<std::string>{"dense"});
}

}  // namespace
}  // namespace sparfuse::harness
