// Tests the model's use of a profile, draws within its errors, and fusion plans in bytes.
#include "harness/clusters/profile_data.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/fusion_plan.hpp"
#include "harness/records/record.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json SomeProfile() {
  const json linear = json::array({{0, 0.0}, {1000, 1e-3}});
  return {{"backward",
           {{"steps", 0},
            {"begin_seconds", 1e-3},
            {"forward_seconds", 2e-3},
            {"tail_seconds", 3e-3},
            {"update_seconds", 4e-3},
            {"tensors",
             json::array({{{"name", "b"}, {"shape", {10}}, {"numel", 10}, {"seconds", 5e-3}},
                          {{"name", "a"}, {"shape", {4, 5}}, {"numel", 20}, {"seconds", 6e-3}}})}}},
          {"dispatch_seconds", 1e-6},
          {"exchange_dispatch_seconds", 2e-6},
          {"pack", linear},
          {"scale", json::array({{1, 7e-6}})},
          {"clear", linear},
          {"seconds_per_entry", 1e-8},
          {"seconds_per_reduced_element", 2e-9},
          {"selection",
           {{"topk", json::array({{{"density", 0.01}, {"seconds", linear}},
                                  {{"density", 0.1}, {"seconds", json::array({{1, 3e-3}})}}})}}}};
}

Profile Of(const json& profile) { return RecordOf<Profile>(profile, "p"); }

GradientLayout LayoutOf(const json& profile) {
  GradientLayout layout;
  for (const TensorShape& tensor : TensorsOf(Of(profile)))
    layout.Add(tensor.name, tensor.shape, tensor.numel);
  return layout;
}

std::string MessageOf(const auto& call) { return testing::ErrorOf(call, FailureKind::kData); }

TEST(ProfileData, SizesOfTensorsDoNotWrap) {
  for (const json& numel : {json(-1), json(0), json(4294967296), json(1.5)}) {
    json profile = SomeProfile();
    profile["backward"]["tensors"][1]["numel"] = numel;
    EXPECT_EQ(MessageOf([&] { Of(profile); }), "p: backward.tensors.1.numel = " + numel.dump() +
                                                   ": expected an integer from 1 to 4294967295");
  }
}

TEST(ProfileData, BackwardIsInReadyOrder) {
  const json profile = SomeProfile();
  const BackwardProfile backward = BackwardOf(Of(profile), LayoutOf(profile));
  EXPECT_EQ(backward.backward_seconds, (std::vector<double>{5e-3, 6e-3}));
  EXPECT_EQ(backward.begin_seconds, 1e-3);
  EXPECT_EQ(backward.forward_seconds, 2e-3);
  EXPECT_EQ(backward.tail_seconds, 3e-3);
  EXPECT_EQ(backward.update_seconds, 4e-3);
}

TEST(ProfileData, TensorsMustBeThoseOfTheLayout) {
  const json profile = SomeProfile();
  GradientLayout other;
  other.Add("b", {10}, 10);
  EXPECT_SAYS(MessageOf([&] { BackwardOf(Of(profile), other); }),
              "tensor 1 in ready order is a; expected none");
  other.Add("c", {4, 5}, 20);
  EXPECT_SAYS(MessageOf([&] { BackwardOf(Of(profile), other); }), "is a; expected c");
}

TEST(ProfileData, KernelsOfAProfileFromBeforeTheNewerKeys) {
  CostModel cost = KernelCosts(Of(SomeProfile()));
  EXPECT_DOUBLE_EQ(cost.pack_seconds(500), 5e-4);
  EXPECT_DOUBLE_EQ(cost.scale_seconds(500), 7e-6);
  EXPECT_DOUBLE_EQ(cost.DecompressSeconds("topk", 500, 100, 2), 5e-4 + 1e-6);
  EXPECT_DOUBLE_EQ(cost.dispatch_seconds, 1e-6);
  EXPECT_DOUBLE_EQ(cost.exchange_dispatch_seconds, 2e-6);
  for (WorkSeconds* const work : {&cost.work_seconds, &cost.host_work_seconds}) {
    EXPECT_DOUBLE_EQ((*work)[Work::kAdd], 2e-9);
    EXPECT_DOUBLE_EQ((*work)[Work::kMerge], cost.seconds_per_entry) << "not measured";
    EXPECT_DOUBLE_EQ((*work)[Work::kToHost], 0) << "nothing is copied on a host";
  }
  EXPECT_DOUBLE_EQ(cost.SelectionSeconds("topk", 500, 0.01), 5e-4);
  EXPECT_DOUBLE_EQ(cost.SelectionSeconds("topk", 500, 0.1), 3e-3);
  EXPECT_DOUBLE_EQ(cost.HostSelectionSeconds("topk", 500, 0.1), 3e-3);
  EXPECT_DOUBLE_EQ(cost.EncodeSeconds("fp32", 500), 5e-4);
  EXPECT_THROW(cost.EncodeSeconds("fp16", 500), Error);
}

TEST(ProfileData, ShapesOfOneSizeCountWithTheirMean) {
  json profile = SomeProfile();
  profile["selection"] = {
      {"adtopk",
       json::array({{{"density", 0.01},
                     {"seconds", json::array({json::array({100, 1e-3, {10, 10}}),
                                              json::array({100, 3e-3, {2, 50}}),
                                              json::array({300, 4e-3, json::array()})})}}})}};
  profile["host_selection"] = {
      {"adtopk", json::array({{{"density", 0.01}, {"seconds", json::array({{100, 9e-3}})}}})}};
  profile["encode"] = {{"fp16", json::array({{100, 1e-4}, {200, 2e-4}})}};
  const CostModel cost = KernelCosts(Of(profile));
  EXPECT_DOUBLE_EQ(cost.SelectionSeconds("adtopk", 100, 0.01), 2e-3);
  EXPECT_DOUBLE_EQ(cost.SelectionSeconds("adtopk", 200, 0.01), 3e-3);
  EXPECT_DOUBLE_EQ(cost.HostSelectionSeconds("adtopk", 100, 0.01), 9e-3);
  // A card's side lane is a stream, like its compute lane; a host's is a thread, like its host
  // lane.
  EXPECT_DOUBLE_EQ(cost.SideSelectionSeconds("adtopk", 100, 0.01), 2e-3);
  profile["side_lane"] = "host";
  EXPECT_DOUBLE_EQ(KernelCosts(Of(profile)).SideSelectionSeconds("adtopk", 100, 0.01), 9e-3);
  EXPECT_DOUBLE_EQ(cost.EncodeSeconds("fp16", 150), 1.5e-4);
}

TEST(ProfileData, WorkThatAProfileLacksIsTakenFromAnotherAndNamed) {
  json profile = SomeProfile();
  CostModel cost = KernelCosts(Of(profile));
  EXPECT_DOUBLE_EQ(cost.work_seconds[Work::kHash], 1e-8);
  EXPECT_EQ(AssumedWork(Of(profile)).size(), 4u);
  profile["collective_work"] = {{"merge", 1e-9}, {"select", 2e-9}, {"multiply", 3e-9}};
  EXPECT_DOUBLE_EQ(KernelCosts(Of(profile)).work_seconds[Work::kHash], 1e-8);
  EXPECT_EQ(AssumedWork(Of(profile)),
            std::vector<std::string>{"collective_work/hash is not in the profile: "
                                     "seconds_per_entry is taken"});
  profile["collective_work"]["hash"] = 4e-9;
  EXPECT_DOUBLE_EQ(KernelCosts(Of(profile)).work_seconds[Work::kHash], 4e-9);
  EXPECT_TRUE(AssumedWork(Of(profile)).empty());
}

// A missing cost of filters and polynomials is reported only if payloads are coded with them.
TEST(ProfileData, WhatCodingTakesIsTakenFromCollectivesWhereItIsNotMeasured) {
  json profile = SomeProfile();
  profile["collective_work"] = {
      {"merge", 1e-9}, {"select", 2e-9}, {"multiply", 3e-9}, {"hash", 4e-9}};
  const PayloadCoding bloom{ValueCoding::kF32, IndexCoding::kBloom};
  const SelectionWork work{
      .queries = 100, .inserts = 10, .fitted = 1, .restored = 1, .packed = 1, .unpacked = 1};
  EXPECT_DOUBLE_EQ(KernelCosts(Of(profile)).selection_coding.Seconds(work), 428e-9);
  EXPECT_TRUE(AssumedWork(Of(profile)).empty());
  EXPECT_EQ(AssumedWork(Of(profile), bloom).size(), 1u);
  profile["selection_coding"] = {{"query", 1e-9},    {"insert", 2e-9}, {"fit", 50e-9},
                                 {"restore", 30e-9}, {"pack", 5e-9},   {"unpack", 6e-9}};
  EXPECT_DOUBLE_EQ(KernelCosts(Of(profile)).selection_coding.Seconds(work), 211e-9);
  EXPECT_TRUE(AssumedWork(Of(profile), bloom).empty());
}

TEST(ProfileData, LinksOfAllClassesAreTheMeasuredOne) {
  const json profile = {{"link",
                         {{"class", "intra_node"},
                          {"fit", nullptr},
                          {"round_seconds", json::array({{0, 1e-3}, {1000, 2e-3}})},
                          {"seconds_per_extra_message", 1e-6},
                          {"cpu_seconds", 1e-5},
                          {"round_cpu_seconds", 2e-5},
                          {"cpu_fraction", 0.5}}}};
  CostModel cost;
  AddLink(cost, Of(profile));
  for (const LinkCost& link : cost.links) {
    EXPECT_DOUBLE_EQ(link.round_seconds(500), 1.5e-3);
    EXPECT_DOUBLE_EQ(link.seconds_per_extra_message, 1e-6);
    EXPECT_DOUBLE_EQ(link.round_cpu_seconds, 2e-5);
    EXPECT_EQ(link.message_cpu_seconds, 0) << "not measured";
    EXPECT_DOUBLE_EQ(link.cpu_fraction, 0.5);
  }
  EXPECT_DOUBLE_EQ(cost.exchange_cpu_seconds, 1e-5);
  EXPECT_TRUE(cost.native_all_reduce_seconds.empty());
}

TEST(ProfileData, LinksWithinANodeMayBeApart) {
  const json between = {{"class", "inter_node"},
                        {"fit", nullptr},
                        {"round_seconds", json::array({{0, 1e-3}, {1000, 2e-3}})},
                        {"seconds_per_extra_message", 1e-6},
                        {"cpu_seconds", 0},
                        {"round_cpu_seconds", 0},
                        {"message_cpu_seconds", 3e-6},
                        {"cpu_fraction", 0}};
  json within = {{"class", "intra_node"},
                 {"fit", nullptr},
                 {"round_seconds", json::array({{0, 1e-5}})},
                 {"seconds_per_extra_message", 2e-6}};
  EXPECT_EQ(MessageOf([&] {
              Of({{"link", between}, {"node_link", within}});
            }),
            "p: node_link.cpu_seconds is missing");
  within["cpu_seconds"] = 0;
  within["round_cpu_seconds"] = 4e-6;
  within["message_cpu_seconds"] = 5e-6;
  within["cpu_fraction"] = 0.25;
  CostModel cost;
  AddLink(cost, Of({{"link", between}, {"node_link", within}}));
  const auto link = [&](LinkClass of) { return cost.links[static_cast<std::size_t>(of)]; };
  EXPECT_DOUBLE_EQ(link(LinkClass::kInterNode).round_seconds(500), 1.5e-3);
  EXPECT_DOUBLE_EQ(link(LinkClass::kInterNode).message_cpu_seconds, 3e-6);
  EXPECT_EQ(link(LinkClass::kInterNode).cpu_fraction, 0);
  EXPECT_DOUBLE_EQ(link(LinkClass::kIntraNode).round_seconds(500), 1e-5);
  EXPECT_DOUBLE_EQ(link(LinkClass::kIntraNode).seconds_per_extra_message, 2e-6);
  EXPECT_DOUBLE_EQ(link(LinkClass::kIntraNode).round_cpu_seconds, 4e-6);
  EXPECT_DOUBLE_EQ(link(LinkClass::kIntraNode).message_cpu_seconds, 5e-6);
  EXPECT_DOUBLE_EQ(link(LinkClass::kIntraNode).cpu_fraction, 0.25);
}

// A file's content comes back unchanged: its hashes identify modelled trials.
TEST(ProfileData, ComesBackEqual) {
  for (const json& profile : {SomeProfile(), json::object()})
    EXPECT_EQ(ToJson(Of(profile)), profile);
  EXPECT_EQ(MessageOf([] { Of({{"pack", 1}}); }), "p: pack = 1: expected a list");
  EXPECT_EQ(MessageOf([] { KernelCosts(Of(json::object())); }), "the profile has no pack");
}

json UncertainProfile() {
  json profile = SomeProfile();
  profile["backward"]["unhooked_seconds"] = 14e-3;  // 5 + 6 + 3 ms
  profile["relative_errors"] = {{"/backward/forward_seconds", 0.1},
                                {"/backward/tensors", {0.2, 0.0}},
                                {"/backward/unhooked_seconds", 0.0},
                                {"/pack", 0.05},
                                {"/selection/topk/0/seconds", {0.0, 0.3}}};
  return profile;
}

json Draw(const json& profile, std::uint64_t seed) { return ToJson(Perturbed(Of(profile), seed)); }

TEST(Perturbed, ChangesWhatHasAnErrorTheSameForEqualSeeds) {
  EXPECT_EQ(Draw(SomeProfile(), 1), SomeProfile());
  const json profile = UncertainProfile();
  const json one = Draw(profile, 1);
  EXPECT_EQ(one, Draw(profile, 1));
  EXPECT_NE(one["pack"], Draw(profile, 2)["pack"]);
  for (const char* key : {"clear", "scale", "dispatch_seconds", "relative_errors"}) {
    EXPECT_EQ(one[key], profile[key]);
  }
  EXPECT_NE(one["backward"]["forward_seconds"], profile["backward"]["forward_seconds"]);
  EXPECT_EQ(one["backward"]["update_seconds"], profile["backward"]["update_seconds"]);
  // A curve with one error has one factor; an error of 0 leaves a point unchanged.
  EXPECT_EQ(one["pack"][0][1], 0.0);
  EXPECT_NE(one["pack"][1][1], 1e-3);
  EXPECT_EQ(one["pack"][1][0], 1000);
  const json& points = one["selection"]["topk"][0]["seconds"];
  EXPECT_EQ(points[0], profile["selection"]["topk"][0]["seconds"][0]);
  EXPECT_NE(points[1][1], 1e-3);
}

TEST(Perturbed, TensorsKeepTheTotalThatIsKnown) {
  const json backward = Draw(UncertainProfile(), 5)["backward"];
  const double first = backward["tensors"][0]["seconds"];
  const double second = backward["tensors"][1]["seconds"];
  const double tail = backward["tail_seconds"];
  EXPECT_NEAR(first + second + tail, 14e-3, 1e-15);
  EXPECT_NE(first, 5e-3);
  EXPECT_NEAR(second / tail, 2, 1e-12);  // neither has an error: both change alike
}

TEST(Perturbed, SpreadsAsTheErrorsSay) {
  constexpr int kDraws = 4000;
  double sum = 0;
  double squares = 0;
  for (int seed = 0; seed < kDraws; ++seed) {
    const json profile = Draw(UncertainProfile(), static_cast<std::uint64_t>(seed));
    const double error = profile["backward"]["forward_seconds"].get<double>() / 2e-3 - 1;
    sum += error;
    squares += error * error;
  }
  // Four standard errors of the mean and the deviation of normal numbers.
  EXPECT_NEAR(sum / kDraws, 0, 4 * 0.1 / std::sqrt(kDraws));
  EXPECT_NEAR(std::sqrt(squares / kDraws), 0.1, 4 * 0.1 / std::sqrt(2.0 * kDraws));
}

TEST(Perturbed, NeverGoesBelowZeroAndNamesADamagedEntry) {
  json profile = UncertainProfile();
  profile["relative_errors"]["/pack"] = 100.0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_GE(Draw(profile, seed)["pack"][1][1].get<double>(), 0);
  }
  profile["relative_errors"] = {{"/backward/tensors", {0.1, 0.2, 0.3}}};
  EXPECT_SAYS(MessageOf([&] { Draw(profile, 1); }),
              "/backward/tensors: it has 3 entries for 2 elements");
  profile["relative_errors"] = {{"/none", 0.1}};
  EXPECT_SAYS(MessageOf([&] { Draw(profile, 1); }), "/none");
}

TEST(Perturbed, OutcomesAreDrawnApart) {
  ProfileOutcome outcome;
  outcome.profile = Of(UncertainProfile());
  const ProfileOutcomes perturbed = PerturbedOutcomes({outcome, outcome}, 1);
  EXPECT_EQ(perturbed[0].config, outcome.config);
  EXPECT_NE(perturbed[0].profile.pack, outcome.profile.pack);
  EXPECT_NE(perturbed[0].profile.pack, perturbed[1].profile.pack);
}

TEST(ShapesToTime, AreTheLayoutsOwnThenFusedSizes) {
  GradientLayout layout;
  layout.Add("c", {20, 5}, 100);
  layout.Add("b", {100}, 100);
  layout.Add("a", {20, 5}, 100);
  layout.Add("bias", {7}, 7);
  EXPECT_EQ(ShapesToTime(layout),
            (std::vector<TimedShape>{{7, {7}}, {100, {20, 5}}, {100, {100}}, {307, {}}}));
}

TEST(ShapesToTime, AreSpreadOverManySizes) {
  GradientLayout layout;
  for (std::int64_t n = 1; n <= 100; ++n) layout.Add("t", {n}, static_cast<std::size_t>(n));
  const std::vector<TimedShape> shapes = ShapesToTime(layout);
  ASSERT_EQ(shapes.size(), 18u);  // 16, and 800 and 5050 elements
  EXPECT_EQ(shapes[0].numel, 1u);
  EXPECT_EQ(shapes[15].numel, 100u);
  EXPECT_EQ(shapes[16], (TimedShape{800, {}}));
  EXPECT_EQ(shapes[17], (TimedShape{5050, {}}));
  for (std::size_t i = 1; i < 16; ++i) {
    EXPECT_GE(shapes[i].numel, shapes[i - 1].numel + 6);
    EXPECT_LE(shapes[i].numel, shapes[i - 1].numel + 7);
  }
}

TEST(ShapesToTime, GoOnToAsManyElementsAsAreAskedFor) {
  GradientLayout layout;
  layout.Add("a", {3, 4}, 12);
  EXPECT_EQ(ShapesToTime(layout, 1000),
            (std::vector<TimedShape>{{12, {3, 4}}, {96, {}}, {768, {}}, {1000, {}}}));
  EXPECT_EQ(ShapesToTime(layout, 5), ShapesToTime(layout));
}

TEST(ShapesToTime, OfOneTensorIsItsOwn) {
  GradientLayout layout;
  layout.Add("a", {3, 4}, 12);
  EXPECT_EQ(ShapesToTime(layout), (std::vector<TimedShape>{{12, {3, 4}}}));
}

Plan SomePlan() {
  Plan plan;
  plan.units = {{0, 2, Sparsified::kAhead, 0.1}, {2, 3, Sparsified::kAhead, 1.0 / 3}};
  plan.tensors = {{1.0, false, true}, {0.07, true, false}, {1.0, false, false}};
  return plan;
}

TEST(PlanData, ComesBackEqual) {
  for (const Plan& plan : {SomePlan(), Plan{}, Plan{{{0, 5, Sparsified::kBehind, 1e-3}}, {}},
                           Plan{{{0, 5, Sparsified::kBehind, 1e-3, Lane::kSide}}, {}},
                           Plan{{{0, 5, Sparsified::kBehind, 1e-3, Lane::kCompute, 4}}, {}},
                           Plan{{{0, 5, Sparsified::kBehind, 1e-3, Lane::kSide, 1, 9}}, {}},
                           Plan{{{0, 5, Sparsified::kNever, 1.0}}, {}}}) {
    const Plan decoded = DecodePlan(EncodePlan(plan));
    EXPECT_EQ(decoded, plan);
    EXPECT_EQ(decoded.Hash(), plan.Hash());
  }
}

TEST(PlanData, DamagedBytesAreNamed) {
  std::vector<std::uint8_t> bytes = EncodePlan(SomePlan());
  bytes.resize(bytes.size() / 2);
  EXPECT_SAYS(MessageOf([&] { DecodePlan(bytes); }), "damaged");
  const std::int64_t narrowed = (std::int64_t{1} << 32) + 1;  // 1 in 32 bits
  for (const auto& [unit, expected] : std::vector<std::pair<json, std::string>>{
           {{0, 1, 3, 1.0, 0, 1, 0}, "sparsified 3: expected 0 to 2"},
           {{0, 1, narrowed, 1.0, 0, 1, 0}, "sparsified 4294967297: expected 0 to 2"},
           {{0, 1, 2, 1.0, 3, 1, 0}, "lane 3: expected 0 to 2"},
           {{0, 1, 2, 1.0, narrowed, 1, 0}, "lane 4294967297: expected 0 to 2"},
           {{0, 1, 2, 1.0, 0, 0, 0}, "partitions 0: expected 1 to 65535"},
           {{0, 1, 2, 1.0, 0, 65537, 0}, "partitions 65537: expected 1 to 65535"},
           {{0, 1, 2, 1.0, 0, -1, 0}, "partitions -1: expected 1 to 65535"},
           {{0, 1, 2, 1.0, 0, 1, 256}, "path 256: expected 0 to 255"},
           {{0, 1, 2, 1.0, 0, 1, -1}, "path -1: expected 0 to 255"},
           {{0, 1, 2, 1.0, 0, 1, 2.5}, "path 2.5: expected 0 to 255"}}) {
    const json damaged = {{"units", {unit}}, {"tensors", json::array()}};
    const std::string message = MessageOf([&] { DecodePlan(json::to_cbor(damaged)); });
    EXPECT_SAYS(message, expected);
  }
}

TEST(PlanData, SummaryCountsHowTensorsTravel) {
  GradientLayout layout;
  layout.Add("a", {4}, 4);
  layout.Add("b", {4}, 4);
  layout.Add("c", {4}, 4);
  EXPECT_EQ(ToJson(SummaryOf(SomePlan(), layout, 7)),
            (json{{"step", 7},
                  {"unit_sizes", "2,1"},
                  {"dense_units", json::array()},
                  {"side_units", json::array()},
                  {"tensors", {{"dense", 2}, {"offloaded", 1}, {"reduced", 1}}}}));
  Plan plan = SomePlan();
  plan.units[1] = {2, 3, Sparsified::kNever, 1.0};
  EXPECT_EQ(SummaryOf(plan, layout, 0).dense_units, std::vector<std::size_t>{1});
  plan = {{{0, 2, Sparsified::kBehind, 0.1, Lane::kSide}, {2, 3, Sparsified::kBehind, 0.1}}};
  EXPECT_EQ(SummaryOf(plan, layout, 0).side_units, std::vector<std::size_t>{0});
  EXPECT_EQ(SummaryOf(plan, layout, 0).paths, std::nullopt);
  plan.units[1].path = 9;
  EXPECT_EQ(SummaryOf(plan, layout, 0).paths, (std::vector{0, 9}));
}

}  // namespace
}  // namespace sparfuse::harness
