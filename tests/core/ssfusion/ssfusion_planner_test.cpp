// Tests SSFusion's plans: the published ones, budgets, offloading and interleaving.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "core/base/error.hpp"
#include "core/fusion/plan_times.hpp"
#include "core/fusion/selective.hpp"
#include "core/ssfusion/planner.hpp"
#include "tests/support/model_layouts.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

using sparfuse::testing::PlanOf;

Plan PlanOf(const PlanInput& input, const Options& options) {
  return PlanOf("ssfusion", input, options);
}

// The complete input of a profiled plan, in round numbers.
struct Profile {
  GradientLayout layout;
  CostModel cost;
  BackwardProfile backward;
  Topology topology{8, 1};
  double density = 0.1;

  explicit Profile(GradientLayout of) : layout(std::move(of)) {
    for (std::size_t t = 0; t < layout.tensors(); ++t) {
      backward.backward_seconds.push_back(1e-9 * static_cast<double>(layout.tensor(t).numel));
    }
    cost.selection["topk"].Add(0.1, PiecewiseLinear({{0, 3e-5}, {1e9, 3e-5 + 1.0}}));
    cost.host_selection["topk"].Add(0.1, PiecewiseLinear({{0, 3e-5}, {1e9, 3e-5 + 4.0}}));
    cost.pack_seconds = PiecewiseLinear({{0, 0}, {1e9, 0.1}});
    cost.seconds_per_entry = 1e-10;
    cost.links.fill(LinkCost::FromAlphaBeta(5e-5, 8e-10));
  }
  PlanInput Input() const {
    return InputOf(layout, topology, density, Sparsified::kAhead, backward, cost);
  }
};

// ---- The authors' plans -------------------------------------------------------------------------

std::vector<std::size_t> Cuts(const GradientLayout& layout, std::size_t per_unit, const char* model,
                              double density) {
  const PlanInput input{layout, {8, 1}, density, Sparsified::kAhead, nullptr, nullptr};
  std::vector<std::size_t> cuts;
  for (const Unit& unit : UnitsOfEqualCount(input, 20, per_unit)) {
    cuts.push_back(AuthorsCut(layout, unit, density, model));
  }
  return cuts;
}

// Expands {{size, times}, ...} into a list of sizes.
std::vector<std::size_t> Runs(const std::vector<std::pair<std::size_t, std::size_t>>& runs) {
  std::vector<std::size_t> list;
  for (const auto& [value, times] : runs) list.insert(list.end(), times, value);
  return list;
}

std::vector<std::size_t> First(std::vector<std::size_t> list, std::size_t count) {
  list.resize(count);
  return list;
}

TEST(Ssfusion, AuthorsCutsAreThePublishedOnes) {
  const GradientLayout resnet50 = ResNet50Cifar();
  EXPECT_EQ(Cuts(resnet50, 0, "resnet50", 0.1),
            Runs({{2048, 4}, {1024, 7}, {512, 5}, {256, 3}, {64, 1}, {0, 1}}));
  EXPECT_EQ(Cuts(resnet50, 0, "resnet50", 0.01), Runs({{2048, 1},
                                                       {512, 1},
                                                       {2048, 2},
                                                       {1024, 7},
                                                       {512, 2},
                                                       {128, 1},
                                                       {512, 2},
                                                       {64, 4},
                                                       {0, 1}}));
  const GradientLayout resnet101 = ResNet101Cifar();
  EXPECT_EQ(Cuts(resnet101, 0, "resnet101", 0.1),
            Runs({{2048, 2}, {1024, 14}, {512, 2}, {16384, 1}, {256, 1}, {4096, 1}}));
  EXPECT_EQ(Cuts(resnet101, 0, "resnet101", 0.01),
            Runs({{2048, 2}, {1024, 13}, {256, 1}, {512, 3}, {256, 1}, {64, 1}}));
  EXPECT_EQ(Cuts(ResNet152Cifar(), 0, "resnet152", 0.1),
            Runs({{2048, 2}, {1024, 14}, {512, 2}, {32768, 1}, {256, 1}, {1728, 1}}));

  EXPECT_EQ(First(Cuts(Vgg16Cifar(), 0, "vgg16", 0.1), 6),
            (std::vector<std::size_t>{100, 4096, 4096, 0, 512, 0}));
  EXPECT_EQ(Cuts(Vgg16Cifar(), 0, "vgg16", 0.1).back(), 64u);
  EXPECT_EQ(Cuts(Vgg16Cifar(), 0, "vgg16", 0.01).back(), 0u);
  EXPECT_EQ(First(Cuts(TransformerWikiText2(), 0, "transformer", 0.1), 7),
            (std::vector<std::size_t>{33278, 0, 400, 1200, 0, 400, 1200}));

  // The pooler has no gradient and is in no unit, but it was counted: ten tensors a unit, not nine.
  EXPECT_EQ(Cuts(BertBase(false), 10, "bert_base", 0.1),
            (std::vector<std::size_t>{3072, 768,  3072, 3072, 768, 3072, 768,  3072, 3072, 768,
                                      3072, 3072, 768,  3072, 768, 3072, 3072, 768,  3072, 1536}));
}

// The totals of a plan: its units, its payload and the places of its selections.
struct Totals {
  std::size_t units = 0;
  std::size_t sparse = 0;
  std::size_t offloaded = 0;
  double density = 0;  // sent share of the model's elements
};

Totals TotalsOf(const Plan& plan, const GradientLayout& layout) {
  Totals totals{plan.units.size(), 0, 0, 0};
  double sent = 0;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorPlan& tensor = plan.tensors[t];
    totals.sparse += tensor.density < 1;
    totals.offloaded += tensor.offloaded;
    sent += static_cast<double>(KeptCount(layout.tensor(t).numel, tensor.density));
  }
  totals.density = sent / static_cast<double>(layout.numel());
  return totals;
}

TEST(Ssfusion, AuthorsPlansAreThePublishedOnes) {
  struct Golden {
    const char* model;
    GradientLayout layout;
    std::int64_t tensors_per_unit;
    double density;
    std::size_t units, sparse;
    double sent_density;
    std::optional<std::size_t> offloaded;  // BERT: published for the model with its pooler
  };
  const std::vector<Golden> rows = {
      {"resnet50", ResNet50Cifar(), 0, 0.1, 21, 54, 0.10202, 3},
      {"resnet50", ResNet50Cifar(), 0, 0.05, 21, 54, 0.05213, 3},
      {"resnet50", ResNet50Cifar(), 0, 0.01, 21, 66, 0.01192, 3},
      {"resnet101", ResNet101Cifar(), 0, 0.1, 21, 102, 0.10269, 9},
      {"resnet101", ResNet101Cifar(), 0, 0.01, 21, 112, 0.01233, 10},
      {"resnet152", ResNet152Cifar(), 0, 0.1, 21, 153, 0.10312, 18},
      {"resnet152", ResNet152Cifar(), 0, 0.05, 21, 154, 0.05276, 18},
      {"resnet152", ResNet152Cifar(), 0, 0.01, 21, 166, 0.01247, 19},
      {"vgg16", Vgg16Cifar(), 0, 0.1, 29, 42, 0.10033, 0},
      {"vgg16", Vgg16Cifar(), 0, 0.05, 29, 42, 0.05035, 0},
      {"vgg16", Vgg16Cifar(), 0, 0.01, 29, 43, 0.01036, 0},
      {"vgg19", Vgg19Cifar(), 0, 0.1, 24, 37, 0.10043, 0},
      {"vgg19", Vgg19Cifar(), 0, 0.01, 24, 38, 0.01037, 0},
      {"transformer", TransformerWikiText2(), 0, 0.1, 25, 66, 0.10137, 1},
      {"transformer", TransformerWikiText2(), 0, 0.01, 25, 66, 0.01151, 1},
      {"bert_base", BertBase(false), 10, 0.1, 20, 74, 0.10103, {}},
      {"bert_base", BertBase(false), 10, 0.05, 20, 74, 0.05109, {}},
      {"bert_base", BertBase(false), 10, 0.01, 20, 74, 0.01113, {}},
  };
  for (const Golden& row : rows) {
    SCOPED_TRACE(row.model + (" at density " + std::to_string(row.density)));
    const Plan plan = PlanOf({row.layout, {8, 1}, row.density, Sparsified::kAhead},
                             {{"form", "authors"},
                              {"model", row.model},
                              {"ratio", "target"},
                              {"tensors_per_unit", row.tensors_per_unit},
                              {"offload", true}});
    const Totals totals = TotalsOf(plan, row.layout);
    EXPECT_EQ(totals.units, row.units);
    EXPECT_EQ(totals.sparse, row.sparse);
    if (row.offloaded) {
      EXPECT_EQ(totals.offloaded, *row.offloaded);
    }
    EXPECT_NEAR(totals.density, row.sent_density, 0.5e-5);
  }
  const GradientLayout bert = BertBase(true);
  const Plan plan = PlanOf({bert, {8, 1}, 0.1, Sparsified::kAhead},
                           {{"form", "authors"}, {"model", "bert_base"}, {"offload", true}});
  EXPECT_EQ(TotalsOf(plan, bert).offloaded, 0u);
}

// Biases and norms are dense, and every weight matrix is sparse. The two large ResNets leave some
// of their small convolutions dense.
TEST(Ssfusion, AuthorsCutsAreBelowEveryWeightMatrix) {
  const std::vector<std::pair<const char*, GradientLayout>> models = {
      {"resnet50", ResNet50Cifar()},
      {"vgg16", Vgg16Cifar()},
      {"vgg19", Vgg19Cifar()},
      {"transformer", TransformerWikiText2()},
      {"bert_base", BertBase(false)}};
  for (const auto& [model, layout] : models) {
    const PlanInput input{layout, {8, 1}, 0.1, Sparsified::kAhead};
    for (const Unit& unit : UnitsOfEqualCount(input, 20, 0)) {
      const std::size_t cut = AuthorsCut(layout, unit, 0.1, model);
      for (std::size_t t = unit.first; t < unit.last; ++t) {
        const TensorEntry& tensor = layout.tensor(t);
        if (tensor.shape.size() > 1 && tensor.numel > 1728) {
          EXPECT_LT(cut, tensor.numel) << model << ": " << tensor.name;
        }
      }
    }
  }
}

// ---- The rules one by one -----------------------------------------------------------------------

TEST(Ssfusion, TheBudgetBoundsTheCut) {
  using Sizes = std::vector<std::size_t>;
  // The budget is 0.1 * 1150 = 115: it covers 50 and then 60 in full, but not 1040.
  EXPECT_EQ(LargestCut(Sizes{1040, 60, 50}, 0.1), 1039u);
  EXPECT_EQ(AdmissibleCuts(Sizes{1040, 60, 50}, 0.1), (Sizes{0, 50, 60}));
  // The budget is 111: after 50, 61 are left. The tensor of 61 is not below that.
  EXPECT_EQ(LargestCut(Sizes{50, 61, 999}, 0.1), 60u);
  EXPECT_EQ(AdmissibleCuts(Sizes{50, 61, 999}, 0.1), (Sizes{0, 50}));
  // The smallest size exceeds the budget already, and the budget is at least one element.
  EXPECT_EQ(AdmissibleCuts(Sizes{100, 100}, 0.1), (Sizes{0}));
  EXPECT_EQ(LargestCut(Sizes{1, 2}, 0.1), 0u);
  EXPECT_EQ(LargestCut(Sizes{}, 0.1), 0u);
  EXPECT_EQ(AdmissibleCuts(Sizes{10, 10, 2000}, 0.1), (Sizes{0, 10}));
}

TEST(Ssfusion, TheRestPaysForWhatIsDense) {
  const std::vector<std::size_t> sizes = {100, 900};
  EXPECT_DOUBLE_EQ(DensityAboveCut(sizes, 100, 0.2, 0.0), 100.0 / 900.0);
  EXPECT_DOUBLE_EQ(DensityAboveCut(sizes, 100, 0.1, 0.01), 0.01);
  EXPECT_DOUBLE_EQ(DensityAboveCut(sizes, 100, 0.05, 0.005), 0.005);
  // If no tensor is dense, the density is exactly the requested one.
  EXPECT_EQ(DensityAboveCut(std::vector<std::size_t>{3, 7, 11}, 0, 0.01, 0.0), 0.01);
}

TEST(Ssfusion, OffloadsWhereTheHostIsIdleAndDoesNotDelay) {
  const auto sparse = [](double backward, double device, double host) {
    return OffloadTensor{false, backward, device, host};
  };
  // The host selects from the first tensor from 1 to 4; so the device selects from the second,
  // ready at 2, until 3. The dense tensor is ready at 5, the fourth at 6: the host is idle and
  // selects from it until 9.
  const std::vector<OffloadTensor> unit = {
      sparse(1, 1, 3), sparse(1, 1, 3), {true, 2, 0, 0}, sparse(1, 1, 3), sparse(5, 1, 1)};
  // The host would select from the fifth from 11 to 12, but everything else is done at 11: the
  // device selects from it instead.
  EXPECT_EQ(OffloadedTensors(unit), (std::vector<bool>{true, false, false, true, false}));
  // A dense tensor at the end gives the host the time.
  std::vector<OffloadTensor> longer = unit;
  longer.push_back({true, 1, 0, 0});
  EXPECT_EQ(OffloadedTensors(longer), (std::vector<bool>{true, false, false, true, true, false}));
  // A unit of one tensor is never offloaded, since nothing hides the host's selection.
  EXPECT_EQ(OffloadedTensors(std::vector{sparse(1, 1, 1)}), std::vector<bool>{false});
  EXPECT_EQ(OffloadedTensors({}), std::vector<bool>{});
}

TEST(Ssfusion, PartitionIsTheLeastOfAll) {
  std::mt19937 random(7);
  std::size_t none = 0;
  std::size_t inside = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<PartitionTensor> unit(1 + random() % 9);
    for (PartitionTensor& tensor : unit) {
      tensor.dense = random() % 2 == 0;
      tensor.elements = 1 + random() % 5000;
      tensor.payload_bytes = tensor.dense ? 8 * tensor.elements : 8 + tensor.elements / 10 * 8;
    }
    const double start_up = static_cast<double>(random() % 20000);
    const double step = random() % 3 == 0 ? 30000 : 0;  // a second round above 4,000 elements
    const auto reduce = [&](std::size_t n) {
      EXPECT_GT(n, 0u);
      return start_up + static_cast<double>(n) + (n > 4000 ? step : 0);
    };
    const auto gather = [&](std::uint64_t bytes) {
      EXPECT_GT(bytes, 0u);
      return start_up + static_cast<double>(bytes) / 2;
    };
    const auto cost = [&](std::ptrdiff_t p) {
      std::size_t reduced = 0;
      std::uint64_t gathered = 0;
      for (std::ptrdiff_t i = 0; i < std::ssize(unit); ++i) {
        const PartitionTensor& tensor = unit[static_cast<std::size_t>(i)];
        (i <= p && tensor.dense ? reduced : gathered) +=
            i <= p && tensor.dense ? tensor.elements : tensor.payload_bytes;
      }
      return (reduced > 0 ? reduce(reduced) : 0) + (gathered > 0 ? gather(gathered) : 0);
    };
    std::ptrdiff_t best = -1;
    for (std::ptrdiff_t p = 0; p < std::ssize(unit); ++p) {
      if (cost(p) < cost(best)) best = p;
    }
    EXPECT_EQ(PartitionPoint(unit, reduce, gather), best);
    none += best == -1;
    inside += best >= 0 && best + 1 < std::ssize(unit);
  }
  EXPECT_GT(none, 20u);
  EXPECT_GT(inside, 20u);
}

// ---- Profiled plans -----------------------------------------------------------------------------

GradientLayout RandomLayout(std::mt19937& random) {
  GradientLayout layout;
  const std::size_t tensors = 1 + random() % 90;
  for (std::size_t t = 0; t < tensors; ++t) {
    const bool matrix = random() % 2 == 0;
    const std::size_t n = 1 + random() % (matrix ? 300000 : 600);
    layout.Add("t" + std::to_string(t), {static_cast<std::int64_t>(n)}, n, random() % 8 == 0);
  }
  return layout;
}

TEST(Ssfusion, ProfiledPlansHoldForRandomLayouts) {
  std::mt19937 random(11);
  Totals seen;
  std::size_t reduced = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Profile profile(RandomLayout(random));
    for (const char* ratio : {"budget", "target"}) {
      const Plan plan = PlanOf(profile.Input(), {{"ratio", ratio},
                                                 {"offload", true},
                                                 {"interleave", true},
                                                 {"buffers", std::int64_t{6}}});
      for (const Unit& unit : plan.units) {
        double sparsifiable = 0;
        double sent = 0;
        std::size_t tensors = 0;
        for (std::size_t t = unit.first; t < unit.last; ++t) {
          const TensorEntry& tensor = profile.layout.tensor(t);
          const TensorPlan& how = plan.tensors[t];
          EXPECT_FALSE(how.offloaded && how.density >= 1) << tensor.name;
          EXPECT_EQ(how, plan.TensorOf(profile.layout, t)) << tensor.name;
          seen.offloaded += how.offloaded;
          reduced += how.reduced;
          if (tensor.dense) continue;
          sparsifiable += static_cast<double>(tensor.numel);
          sent += static_cast<double>(KeptCount(tensor.numel, how.density));
          ++tensors;
        }
        // The budget holds, except for the one element that each tensor sends at least.
        if (std::string(ratio) == "budget") {
          EXPECT_LE(sent, profile.density * sparsifiable + static_cast<double>(tensors));
        }
      }
    }
  }
  EXPECT_GT(seen.offloaded, 0u);
  EXPECT_GT(reduced, 0u);
}

// No other cut within the budget ends a unit earlier.
TEST(Ssfusion, ProfiledCutCostsLeast) {
  const Profile profile(LayoutOf({40, 64, 200000, 90, 128, 70000}));
  const PlanInput input = profile.Input();
  const PlanTimes times(input, "test");
  const Plan plan = PlanOf(input, {{"tensors_per_unit", std::int64_t{6}}});
  const std::vector<std::size_t> sizes = SparsifiableSizes(profile.layout, plan.units[0]);
  const auto seconds = [&](std::size_t cut) {
    double sum = 0;
    std::uint64_t bytes = 0;
    for (std::size_t t = 0; t < 6; ++t) {
      const double density =
          sizes[t] <= cut ? 1.0 : DensityAboveCut(sizes, cut, profile.density, 0.0);
      sum += times.Sparsify(t, density);
      bytes += PlannedPayloadBytes(profile.layout, t, density);
    }
    return sum + times.Gather(bytes) + 8 * 1e-10 * static_cast<double>(bytes / 8);
  };
  const std::vector<std::size_t> cuts = AdmissibleCuts(sizes, profile.density);
  ASSERT_EQ(cuts, (std::vector<std::size_t>{0, 40, 64, 90, 128}));
  std::size_t chosen = 0;
  for (std::size_t t = 0; t < 6; ++t) {
    if (plan.tensors[t].density >= 1) chosen = std::max(chosen, sizes[t]);
  }
  for (const std::size_t cut : cuts) EXPECT_LE(seconds(chosen), seconds(cut)) << cut;
  EXPECT_EQ(chosen, 128u);  // selections of 30 us cost more than 322 entries of budget
}

TEST(Ssfusion, DenseSelectionIsLeftAloneWhereItIsFree) {
  Profile profile(LayoutOf({40, 64, 200000, 90, 128, 70000}));
  profile.cost.selection["topk"].Add(0.1, PiecewiseLinear({{0, 0}, {1e9, 0}}));
  const Options options = {{"tensors_per_unit", std::int64_t{6}}, {"ratio", "target"}};
  for (const TensorPlan& tensor : PlanOf(profile.Input(), options).tensors) {
    EXPECT_EQ(tensor.density, 0.1);
  }
}

TEST(Ssfusion, LatencyDecidesWhetherToReduce) {
  // The payloads of 8 ranks carry 1,000 dense elements: 7 * 8,000 bytes. An all-reduce sends 14 *
  // 500 bytes and starts up 14 times more.
  Profile profile(LayoutOf({1000, 200000}));
  profile.cost.seconds_per_entry = 0;
  const Options options = {{"tensors_per_unit", std::int64_t{2}}, {"interleave", true}};
  const auto reduced = [&](double alpha) {
    profile.cost.links.fill(LinkCost::FromAlphaBeta(alpha, 1e-9));
    const Plan plan = PlanOf(profile.Input(), options);
    EXPECT_EQ(plan.tensors[0].density, 1.0);
    return plan.tensors[0].reduced;
  };
  const double break_even = (7 * 8000 - 14 * 500) * 1e-9 / 14;
  EXPECT_TRUE(reduced(0.99 * break_even));
  EXPECT_FALSE(reduced(1.01 * break_even));
}

TEST(Ssfusion, WhatTheExperimentKeepsDenseStaysSo) {
  Profile profile{GradientLayout()};
  profile.layout.Add("bias", {300}, 300, true);
  profile.layout.Add("weight", {100, 100}, 10000);
  profile.backward.backward_seconds = {1e-6, 1e-5};
  const Options options = {{"tensors_per_unit", std::int64_t{2}}};
  const Plan plan = PlanOf(profile.Input(), options);
  EXPECT_EQ(plan.tensors[0].density, 1.0);
  EXPECT_EQ(plan.tensors[1].density, 0.1);  // the budget counts only sparsifiable tensors
}

TEST(Ssfusion, EveryTensorKeepsAnElement) {
  // 0.1 * 111 = 11.1: the dense 1 and 10 leave 0.1 elements for the 100.
  Profile profile(LayoutOf({1, 10, 100}));
  const Plan plan = PlanOf(profile.Input(), {{"tensors_per_unit", std::int64_t{3}}});
  EXPECT_EQ(plan.tensors[1].density, 1.0);
  EXPECT_EQ(plan.tensors[2].density, 0.01);
}

TEST(Ssfusion, FullDensityIsDenseEverywhere) {
  Profile profile(LayoutOf({1, 10, 100, 20, 500}));
  profile.density = 1.0;
  const Plan plan = PlanOf(profile.Input(), {{"tensors_per_unit", std::int64_t{2}},
                                             {"offload", true},
                                             {"interleave", true},
                                             {"partition", "all"}});
  for (const TensorPlan& tensor : plan.tensors) EXPECT_EQ(tensor, (TensorPlan{1.0, false, true}));
}

TEST(Ssfusion, RefusesWhatItCannotPlan) {
  const GradientLayout layout = LayoutOf({10, 20});
  EXPECT_THROW(PlanOf({layout, {8, 1}, 0.1, Sparsified::kAhead}, {}), Error);
  EXPECT_THROW(PlanOf({layout, {8, 1}, 0.1, Sparsified::kBehind}, {{"form", "authors"}}), Error);
  EXPECT_THROW(PlanOf({layout, {8, 1}, 0.1, Sparsified::kAhead},
                      {{"form", "authors"}, {"interleave", true}}),
               Error);
  EXPECT_THROW(PlanOf({layout, {8, 1}, 0.1, Sparsified::kAhead}, {{"model", "resnet5"}}), Error);
}

}  // namespace
}  // namespace sparfuse::testing
