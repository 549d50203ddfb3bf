// Tests all-dimension top-k by its definition, and its forms that alternate with other selections.
#include "core/sparsify/adtopk/adtopk.hpp"

#include <gtest/gtest.h>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Shape = std::vector<std::int64_t>;

// Top-k of every fibre along `axis`, one element at a time.
Selected FibresByDefinition(const std::vector<float>& x, const Shape& shape, std::size_t axis,
                            double density) {
  std::size_t inner = 1;
  for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= static_cast<std::size_t>(shape[d]);
  const auto length = static_cast<std::size_t>(shape[axis]);
  const std::size_t k = KeptCount(length, density);
  std::vector<bool> kept(x.size(), false);
  std::vector<std::size_t> fibre(length);
  const auto before = [&](std::size_t a, std::size_t b) {
    return std::abs(x[a]) != std::abs(x[b]) ? std::abs(x[a]) > std::abs(x[b]) : a < b;
  };
  for (std::size_t begin = 0; begin < x.size(); ++begin) {
    if (begin / inner % length != 0) continue;  // not the first element of a fibre
    for (std::size_t c = 0; c < length; ++c) fibre[c] = begin + c * inner;
    std::partial_sort(fibre.begin(), fibre.begin() + static_cast<long>(k), fibre.end(), before);
    for (std::size_t j = 0; j < k; ++j) kept[fibre[j]] = true;
  }
  Selected selected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!kept[i]) continue;
    selected.indices.push_back(static_cast<std::uint32_t>(i));
    selected.values.push_back(x[i]);
  }
  return selected;
}

class AdTopKByDefinition : public ::testing::TestWithParam<std::tuple<Isa, std::string>> {};

TEST_P(AdTopKByDefinition, HoldsForEveryShapeAxisDensityAndPool) {
  const auto& [isa, data] = GetParam();
  const ScopedIsa scope(isa);
  const Shape large = kSanitized ? Shape{60, 4000} : Shape{400, 2000};
  for (const Shape& shape : std::vector<Shape>{{3, 5},
                                               {40, 33},
                                               {20, 512},
                                               {1, 700},
                                               {700, 1},
                                               {2, 1},
                                               {300, 64},
                                               {130, 100},
                                               {5, 1500},
                                               {7, 3, 5},
                                               {8, 3, 7, 7},
                                               {20, 100, 3, 3},
                                               {6, 40, 1, 1},
                                               {2, 30, 9, 9},
                                               {9, 1, 3, 3},
                                               {3, 2048, 3, 3},
                                               large}) {
    const std::size_t n = ElementsOf(shape);
    for (const double density : {1e-9, 0.01, 0.25, 1.0}) {
      if (n > 100'000 && (density != 0.01 || (data != "gaussian" && data != "few-values" &&
                                              data != "layers" && data != "sparse"))) {
        continue;
      }
      for (const std::string axis : {"1", "0", "longest"}) {
        if (axis == "longest" && n > 5000) continue;  // equals another axis, and is slow
        const auto adtopk = MakeSparsifier("adtopk", {{"axis", axis}});
        const std::size_t at = axis == "longest" ? (shape[0] > shape[1] ? 0 : 1)
                               : axis == "0"     ? 0
                                                 : 1;
        for (const bool feedback : {false, true}) {
          Selection selection(*adtopk, n, density, n > 100'000 ? 3 : 1, feedback, shape);
          for (std::uint64_t step = 0; step < 2; ++step) {
            const auto gradient = MakeData(data, n, n + step);
            const std::vector<float> x = selection.WithResidual(gradient);
            const Selected expected = FibresByDefinition(x, shape, at, density);
            const Selected selected = selection.Run(gradient, step);
            ASSERT_TRUE(Same(selected, expected))
                << n << " axis " << axis << " of " << shape.size() << " density " << density;
            ASSERT_EQ(selected.indices.size(), selection.Count());
            ASSERT_TRUE(selection.GuardsIntact());
            if (!feedback) continue;
            ASSERT_EQ(Bits(selection.residual()), Bits(Unsent(x, expected)));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdTopKByDefinition,
                         ::testing::Combine(::testing::ValuesIn(SupportedIsas()),
                                            ::testing::ValuesIn(DataNames())),
                         NameOfTuple);

TEST(AdTopK, KeepsTheLargestOfEachRowWithItsSign) {
  Selection selection(MakeSparsifier("adtopk"), 8, 0.5, 1, false, {2, 4});
  const Selected selected = selection.Run({9, -8, 7, 6, 0.1f, 0.2f, -0.4f, 0.2f}, 0);
  EXPECT_EQ(selected.indices, (std::vector<std::uint32_t>{0, 1, 5, 6}));
  EXPECT_EQ(selected.values, (std::vector<float>{9, -8, 0.2f, -0.4f}));
}

// The count is R * max(1, trunc(C * density)), which differs from trunc(n * density) both ways.
TEST(AdTopK, CountsByFibres) {
  const auto count = [](const Shape& shape, double density, FibreAxis axis = FibreAxis::kSecond) {
    return AllDimensionCount(ElementsOf(shape), shape, density, axis);
  };
  EXPECT_EQ(count({64, 3, 7, 7}, 0.01), 3136u);            // k = 1 of 3: a third of the stem
  EXPECT_EQ(count({256, 128, 1, 1}, 0.01), 256u);          // 1 of 128: less than 0.01
  EXPECT_EQ(count({512, 512, 3, 3}, 0.01), 512u * 9 * 5);  // 5.12 is truncated
  EXPECT_EQ(count({1000, 2048}, 0.001), 2000u);
  EXPECT_EQ(count({1000, 2048}, 0.01, FibreAxis::kFirst), 2048u * 10);
  EXPECT_EQ(count({1000, 2048}, 0.01, FibreAxis::kLongest), 1000u * 20);
  EXPECT_EQ(count({2048, 1000}, 0.01, FibreAxis::kLongest), 1000u * 20);
  EXPECT_EQ(count({700, 700, 9, 1}, 0.01, FibreAxis::kLongest), 700u * 9 * 7);
  EXPECT_EQ(AllDimensionCount(5000, {}, 0.01, FibreAxis::kSecond), 50u);
  EXPECT_EQ(count({5000}, 0.01), 50u);
}

TEST(AdTopK, OfOneDimensionIsExactTopK) {
  constexpr std::size_t kN = 50'000;
  Selection ours(MakeSparsifier("adtopk"), kN, 0.01, 2, true);
  Selection theirs(MakeSparsifier("topk"), kN, 0.01, 2, true);
  for (std::uint32_t step = 0; step < 5; ++step) {
    const auto gradient = MakeData("laplace", kN, step);
    ASSERT_EQ(ours.Run(gradient, step).indices, theirs.Run(gradient, step).indices);
  }
}

// A slot must hold more than topk's slot would: a stem kernel sends a third of its elements.
TEST(AdTopK, SaysHowMuchRoomItNeeds) {
  const Shape stem = {64, 3, 7, 7};
  const auto adtopk = MakeSparsifier("adtopk");
  const SparsifierDescriptor& descriptor = FindSparsifier("allchanneltopk");
  EXPECT_EQ(descriptor.name, "adtopk");
  EXPECT_EQ(SlotCapacityFor(descriptor, *adtopk, 9408, stem, 0.01), 3136u);
  EXPECT_LT(SlotCapacityFor(descriptor, 9408, 0.01), 3136u);
  const auto x = MakeData("gaussian", 9408, 1);
  SelectCounters counters;
  ExpectError(FailureKind::kConfig, {"room for 3135"}, [&] {
    SelectInto(*adtopk, x, 0.01, {0, "stem.weight", stem, 0}, 3135, counters);
  });
}

TEST(AdTopK, RefusesAShapeOfAnotherSize) {
  Selection selection(MakeSparsifier("adtopk"), 100, 0.1, 1, false, {10, 11});
  ExpectError(FailureKind::kConfig, {"conv1.weight", "110"},
              [&] { selection.Run(std::vector<float>(100, 1.0f), 0); });
}

TEST(AdTopK, NamesTheElementThatIsNotFinite) {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const Shape& shape :
         std::vector<Shape>{{40, 50}, {6, 50, 3, 3}, {3, 20, 9, 9}, {500, 600}}) {
      const std::size_t n = ElementsOf(shape);
      for (const float bad : {kNan, -kInfinity}) {
        for (const bool feedback : {false, true}) {
          Selection selection(MakeSparsifier("adtopk"), n, 0.05, 2, feedback, shape);
          auto gradient = MakeData("gaussian", n, 1);
          selection.Run(gradient, 0);
          gradient[n - 7] = bad;
          ExpectError(FailureKind::kNumeric,
                      {"conv1.weight", "step 41", "element " + std::to_string(n - 7) + " "},
                      [&] { selection.Run(gradient, 41); });
        }
      }
    }
  }
}

// Bounds come from the fibre before: a jump of the scale makes bounds fail, and nothing else.
TEST(AdTopK, SurvivesFibresOfVeryDifferentScale) {
  const auto adtopk = MakeSparsifier("adtopk");
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const Shape& shape : std::vector<Shape>{{64, 2000}, {64, 200, 3, 3}, {2000, 100}}) {
      const std::size_t n = ElementsOf(shape);
      const std::size_t row = n / static_cast<std::size_t>(shape[0]);
      auto x = MakeData("gaussian", n, 5);
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t r = i / row;
        x[i] *= r % 7 == 3 ? 0.0f : std::ldexp(1.0f, static_cast<int>(r * 29 % 61) - 30);
      }
      for (const std::string axis : {"0", "1"}) {
        Selection selection(MakeSparsifier("adtopk", {{"axis", axis}}), n, 0.01, 1, false, shape);
        ASSERT_EQ(selection.Run(x, 0).indices,
                  FibresByDefinition(x, shape, axis == "0" ? 0 : 1, 0.01).indices);
        if (axis == "1") {
          EXPECT_GT(selection.counters().fallbacks, 0u);
        }
      }
    }
  }
}

TEST(AdTopK, LooksOnceAtMostBlocks) {
  const auto adtopk = MakeSparsifier("adtopk");
  for (const Shape& shape : std::vector<Shape>{{2000, 512}, {200, 512, 3, 3}}) {
    const std::size_t n = ElementsOf(shape);
    Selection selection(*adtopk, n, 0.01, 1, true, shape);
    std::uint64_t blocks = 0;
    for (std::uint32_t step = 0; step < 5; ++step) {
      selection.Run(MakeData("gaussian", n, step), step);
      blocks += static_cast<std::uint64_t>(shape[0]);
    }
    EXPECT_LT(selection.counters().fallbacks, blocks / 10) << shape.size();
    EXPECT_LT(selection.counters().candidates, 5 * n / 10) << shape.size();
  }
}

// Steps of one named tensor, with its state.
class Stream {
 public:
  Stream(const std::string& sparsifier, std::string name, Shape shape, double density,
         const Options& options = {})
      : Stream(MakeSparsifier(sparsifier, options), std::move(name), std::move(shape), density) {}

  // Several tensors may share a sparsifier.
  Stream(std::shared_ptr<const Sparsifier> sparsifier, std::string name, Shape shape,
         double density)
      : sparsifier_(std::move(sparsifier)),
        name_(std::move(name)),
        shape_(std::move(shape)),
        density_(density),
        state_(sparsifier_->MakeState(ElementsOf(shape_))) {}

  Selected Run(const std::vector<float>& x, std::uint64_t step) {
    const std::size_t capacity = SlotCapacityFor(FindSparsifier(sparsifier_->name()), *sparsifier_,
                                                 x.size(), shape_, density_);
    return SelectInto(*sparsifier_, x, density_, {3, name_, shape_, step}, capacity, counters_,
                      state_.get());
  }

  // The selection of a step: 'A' all-dimension, 'G' global top-k, 'T' neither.
  char Phase(const std::vector<float>& x, std::uint64_t step) {
    const Selected selected = Run(x, step);
    if (selected.indices == FibresByDefinition(x, shape_, 1, density_).indices) return 'A';
    const auto global = LargestByDefinition(x, KeptCount(x.size(), density_));
    return selected.indices == global.indices ? 'G' : 'T';
  }

  const SelectCounters& counters() const { return counters_; }

 private:
  std::shared_ptr<const Sparsifier> sparsifier_;
  std::string name_;
  Shape shape_;
  double density_;
  SelectCounters counters_;
  std::unique_ptr<SparsifierState> state_;
};

std::string Phases(Stream& stream, const Shape& shape, int steps) {
  std::string phases;
  for (int step = 0; step < steps; ++step) {
    phases += stream.Phase(MakeData("gaussian", ElementsOf(shape), step),
                           static_cast<std::uint64_t>(step));
  }
  return phases;
}

TEST(AdTopKInterleaved, AlternatesFromAllDimensionOn) {
  const Shape shape = {20, 100};
  Stream stream("adtopk-interleaved", "layer1.weight", shape, 0.05);
  EXPECT_EQ(Phases(stream, shape, 7), "AGAGAGA");
  EXPECT_EQ(stream.counters().selections, 7u);
}

TEST(AdTopKInterleaved, NeverGoesGlobalForTheNamesItIsGiven) {
  const Shape shape = {20, 100};
  for (const auto& [name, pattern, phases] :
       {std::tuple{"fc.weight", "", "AAAA"}, std::tuple{"module.fc.weight", "", "AAAA"},
        std::tuple{"h.0.mlp.c_fc.weight", "", "AGAG"}, std::tuple{"fc1.weight", "", "AGAG"},
        std::tuple{"classifier.6.weight", R"(classifier\.6)", "AAAA"},
        std::tuple{"fc.weight", R"(classifier\.6)", "AGAG"}}) {
    Options options;
    if (*pattern != '\0') options.emplace("always_all_dimension", std::string(pattern));
    Stream stream("actopk", name, shape, 0.05, options);
    EXPECT_EQ(Phases(stream, shape, 4), phases) << name << " " << pattern;
  }
  Stream none("adtopk_i", "fc.weight", shape, 0.05, {{"always_all_dimension", std::string()}});
  EXPECT_EQ(Phases(none, shape, 4), "AGAG");
  ExpectError(FailureKind::kConfig, {"regular expression"}, [] {
    MakeSparsifier("adtopk-interleaved", {{"always_all_dimension", std::string("(")}});
  });
}

// The matrices and kernels of ResNet-50, VGG-16 and BERT-base.
std::vector<Shape> RealShapes() {
  std::vector<Shape> shapes;
  const auto add = [&](int times, const Shape& shape) {
    shapes.insert(shapes.end(), times, shape);
  };
  std::int64_t in = 64;
  const std::int64_t stages[][2] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [planes, blocks] : stages) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      add(1, {planes, in, 1, 1});
      add(1, {planes, planes, 3, 3});
      add(1, {planes * 4, planes, 1, 1});
      if (block == 0) add(1, {planes * 4, in, 1, 1});
      in = planes * 4;
    }
  }
  add(1, {1000, 2048});
  add(48, {768, 768});
  add(12, {3072, 768});
  add(12, {768, 3072});
  add(1, {30522, 768});
  add(1, {64, 64, 3, 3});
  add(1, {128, 64, 3, 3});
  add(1, {128, 128, 3, 3});
  add(1, {256, 128, 3, 3});
  add(2, {256, 256, 3, 3});
  add(1, {512, 256, 3, 3});
  add(5, {512, 512, 3, 3});
  return shapes;
}

TEST(AdTopKInterleaved, SelectionModelHolds) {
  const auto sparsifier = MakeSparsifier("adtopk-interleaved");
  Spread spread;
  for (const Shape& shape : RealShapes()) {
    const std::size_t n = ElementsOf(shape);
    const auto most = static_cast<double>(sparsifier->Count(n, shape, 0.01));
    for (const std::size_t kept :
         {AllDimensionCount(n, shape, 0.01, FibreAxis::kSecond), KeptCount(n, 0.01)}) {
      spread.Add(std::log(static_cast<double>(kept) / most));
    }
  }
  const SelectionModel model = FindSparsifier("adtopk-interleaved").selection_model;
  EXPECT_NEAR(spread.mean(), model.mean, 0.001);
  EXPECT_NEAR(spread.sigma(), model.sigma, 0.001);
}

TEST(AdTopKThreshold, IsExactWhileItWarmsUp) {
  const Shape shape = {20, 100};
  Stream stream("adtopk-threshold", "layer1.weight", shape, 0.05, {{"warmup", std::int64_t{4}}});
  EXPECT_EQ(Phases(stream, shape, 8), "AGAGAGAG");
}

// After the warm-up, a threshold phase compares with the threshold of the last exact phase, and
// keeps negative values as well as positive ones.
TEST(AdTopKThreshold, ReusesTheThreshold) {
  const Shape shape = {40, 500};
  constexpr std::size_t kN = 20'000;
  Stream stream("adtopk_thr", "layer1.weight", shape, 0.01, {{"warmup", std::int64_t{1}}});
  const auto x = [&](std::uint32_t step) { return MakeData("gaussian", kN, step); };
  EXPECT_EQ(stream.Phase(x(0), 0), 'A');
  const Selected exact = stream.Run(x(1), 1);
  EXPECT_EQ(exact.indices, LargestByDefinition(x(1), 200).indices);
  const float threshold = SmallestMagnitude(exact.values);
  EXPECT_EQ(stream.Phase(x(2), 2), 'A');
  const Selected estimated = stream.Run(x(3), 3);
  const Selected expected = Where(x(3), [&](float v) { return std::abs(v) >= threshold; });
  EXPECT_EQ(estimated.indices, expected.indices);
  EXPECT_NE(expected.indices.size(), 200u);
  EXPECT_GT(std::ranges::count_if(expected.values, [](float v) { return v < 0; }), 50);
  // At four times the scale, far more than 2K elements reach the threshold: the exact selection
  // runs instead.
  EXPECT_EQ(stream.Phase(x(4), 4), 'A');
  const auto larger = Scaled(x(4), 4);
  std::uint64_t fallbacks = stream.counters().fallbacks;
  EXPECT_EQ(stream.Phase(larger, 5), 'G');
  EXPECT_EQ(stream.counters().fallbacks, fallbacks + 1);
  // At a hundredth of the scale, hardly any elements reach it.
  const auto smaller = Scaled(larger, 0.01f);
  EXPECT_EQ(stream.Phase(smaller, 6), 'A');
  fallbacks = stream.counters().fallbacks;
  EXPECT_EQ(stream.Phase(smaller, 7), 'G');
  EXPECT_EQ(stream.counters().fallbacks, fallbacks + 1);
}

// The gradient grows by 0.3 % a threshold phase, so that more than K elements reach an older
// threshold; this shows which phases are exact. The threshold is steady, and tau grows by 2.
TEST(AdTopKThreshold, RefreshesTheMoreRarelyTheSteadierTheThresholdIs) {
  const Shape shape = {40, 500};
  constexpr std::size_t kN = 20'000;
  Stream stream("adtopk-threshold", "layer1.weight", shape, 0.01, {{"warmup", std::int64_t{1}}});
  auto x = MakeData("gaussian", kN, 1);
  std::vector<std::uint64_t> exact;
  for (std::uint64_t t = 0; t < 50; ++t) {
    x = Scaled(x, 1.003f);
    stream.Run(x, 2 * t);
    if (stream.Phase(x, 2 * t + 1) == 'G') exact.push_back(t);
  }
  EXPECT_EQ(exact, (std::vector<std::uint64_t>{0, 5, 12, 21, 32, 45}));
}

// A threshold that changes by more than two tenths a period shortens the period again.
TEST(AdTopKThreshold, RefreshesOftenWhereTheThresholdMoves) {
  const Shape shape = {40, 500};
  Stream stream("adtopk-threshold", "layer1.weight", shape, 0.01,
                {{"warmup", std::int64_t{1}}, {"tau0", std::int64_t{9}}});
  auto x = MakeData("laplace", 20'000, 1);
  std::vector<std::uint64_t> exact;
  for (std::uint64_t t = 0; t < 30; ++t) {
    x = Scaled(x, 0.9875f);  // 10.7 % in 9 phases, 8.4 % in 7
    stream.Run(x, 2 * t);
    if (stream.Phase(x, 2 * t + 1) == 'G') exact.push_back(t);
  }
  // d is 12 % of the new threshold at t = 9: tau = 8; then d is 10.6 %: tau = 7; then 9.2 %: tau =
  // 8.
  EXPECT_EQ(exact, (std::vector<std::uint64_t>{0, 9, 17, 24}));
}

TEST(AdTopKThreshold, KeepsToAllDimensionInTheLastQuarterOnceSteady) {
  const Shape shape = {40, 500};
  Stream stream("adtopk-threshold", "layer1.weight", shape, 0.01,
                {{"warmup", std::int64_t{1}}, {"training_steps", std::int64_t{40}}});
  const std::string phases = Phases(stream, shape, 40);
  EXPECT_EQ(phases.substr(30), "AAAAAAAAAA");
  EXPECT_NE(phases[25], 'A');
}

// The published rule, with its flaws. All tensors share one tau, which becomes even at the first
// refresh. Threshold phases fall on odd steps, so that tau never divides them again. Between
// refreshes no negative value is ever sent.
TEST(AdTopKThreshold, AsPublishedFreezesItsThreshold) {
  const Shape shape = {40, 500};
  constexpr std::size_t kN = 20'000;
  const std::shared_ptr<const Sparsifier> shared = MakeSparsifier(
      "adtopk-threshold",
      {{"compat", std::string("reference")}, {"training_steps", std::int64_t{100'000}}});
  Stream first(shared, "a.weight", shape, 0.01);
  Stream second(shared, "b.weight", shape, 0.01);
  float frozen = 0;
  for (std::uint64_t t = 0; t < 40; ++t) {
    const auto x = MakeData("gaussian", kN, t);
    const Selected selected = first.Run(x, t);
    const Selected other = second.Run(x, t);
    if (t % 2 == 0) {
      ASSERT_EQ(selected.indices, FibresByDefinition(x, shape, 1, 0.01).indices) << t;
      continue;
    }
    const auto exact = LargestByDefinition(x, 200);
    if (t <= 15) {
      ASSERT_EQ(selected.indices, exact.indices) << t;
      // At 15 only the first tensor refreshes: the second one reads the tau that the first has
      // raised.
      ASSERT_EQ(other.indices == exact.indices, t < 15) << t;
      frozen = SmallestMagnitude(selected.values);
      continue;
    }
    ASSERT_EQ(selected.indices, Where(x, [&](float v) { return v > frozen; }).indices) << t;
    ASSERT_GT(*std::ranges::min_element(selected.values), 0.0f);
  }
}

// If the training steps are not set, every steady tensor is all-dimension after the first refresh.
TEST(AdTopKThreshold, AsPublishedWithoutTrainingStepsEndsInAllDimension) {
  const Shape shape = {40, 500};
  Stream stream("adtopk-threshold", "a.weight", shape, 0.01,
                {{"compat", std::string("reference")}});
  EXPECT_EQ(Phases(stream, shape, 30), "AGAGAGAGAGAGAGAGAAAAAAAAAAAAAA");
}

}  // namespace
}  // namespace sparfuse::testing
