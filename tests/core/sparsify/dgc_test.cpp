// Tests DGC against its rule written out element by element, and each of its options.
#include <gtest/gtest.h>

#include "core/base/random_stream.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::uint32_t kId = 7;

struct Rule {
  double sample_ratio = 0.01;
  double upper = 1.3;
  double lower = 0.8;
  int iterations = 10;
  bool resample = true;
  bool strided = true;
};

Selected AtLeast(const std::vector<float>& x, float threshold) {
  return Where(x, [threshold](float v) { return std::abs(v) >= threshold; });
}

// The published rule. The sample starts at an index of the sparsifier's own random stream.
Selected DgcByDefinition(const std::vector<float>& x, double density, const Rule& rule,
                         std::uint64_t step) {
  const std::size_t n = x.size();
  const auto dn = static_cast<double>(n);
  const auto k = static_cast<std::size_t>(std::ceil(dn * density));
  const auto p = static_cast<std::size_t>(std::ceil(dn * rule.sample_ratio));
  const auto q = static_cast<std::size_t>(std::ceil(2 / density));
  std::size_t stride = 1;
  std::size_t samples = n;
  if (rule.sample_ratio < 1 && n > q) {
    const double least = static_cast<double>(std::max(p, q));
    stride = 32 * static_cast<std::size_t>(std::ceil(dn / least / 32)) + 1;
    samples = n / stride;
    while (samples < std::max(p, q)) {
      stride -= 8;
      samples = n / stride;
    }
  }
  const RandomStream stream(kSeed, kId, step);
  std::vector<float> sample;
  if (samples == n) {
    sample = x;
  } else if (rule.strided) {
    for (std::size_t i = stream.Below(stride, 0); i < n; i += stride) sample.push_back(x[i]);
  } else {
    for (std::size_t s = 0; s < samples; ++s) sample.push_back(x[stream.Below(n, s)]);
  }
  const auto rank = static_cast<std::size_t>(std::ceil(static_cast<double>(samples) * density));
  for (float& s : sample) s = std::abs(s);
  std::sort(sample.begin(), sample.end(), std::greater<>());
  float threshold = sample[rank - 1];
  Selected kept = AtLeast(x, threshold);
  if (samples < n) {
    for (int i = 0; i < rule.iterations; ++i) {
      const auto count = static_cast<double>(kept.indices.size());
      const auto dk = static_cast<double>(k);
      if (count > dk) {
        if (count <= rule.upper * dk) break;
        if (rule.resample) return LargestByDefinition(x, k);
        threshold *= static_cast<float>(rule.upper);
      } else if (count < rule.lower * dk) {
        threshold *= static_cast<float>(rule.lower);
      } else {
        break;
      }
      kept = AtLeast(x, threshold);
    }
  }
  if (kept.indices.size() > k) {
    kept.indices.resize(k);
    kept.values.resize(k);
  }
  return kept;
}

Options ToOptions(const Rule& rule) {
  return {{"sample_ratio", rule.sample_ratio}, {"upper_bound", rule.upper},
          {"lower_bound", rule.lower},         {"max_iterations", std::int64_t{rule.iterations}},
          {"resample", rule.resample},         {"strided", rule.strided}};
}

void ExpectRule(const Rule& rule,
                std::initializer_list<std::size_t> sizes = {1, 7, 199, 201, 1025, 9000, 300'007}) {
  const auto dgc = MakeSparsifier("dgc", ToOptions(rule), kSeed);
  for (const std::size_t n : sizes) {
    for (const double density : {0.001, 0.01, 0.05, 0.3}) {
      for (const char* data : {"gaussian", "laplace", "layers", "clustered"}) {
        Selection selection(*dgc, n, density, 2, true);
        for (std::uint64_t step = 0; step < 4; ++step) {
          const auto gradient = MakeData(data, n, step);
          const std::vector<float> x = selection.WithResidual(gradient);
          const Selected expected = DgcByDefinition(x, density, rule, step);
          const std::size_t overflows = selection.counters().overflows;
          const Selected selected = selection.Run(gradient, step, kId);
          if (selection.counters().overflows > overflows || expected.indices.empty()) {
            ASSERT_EQ(selected.indices, LargestByDefinition(x, selected.indices.size()).indices);
            continue;
          }
          ASSERT_TRUE(Same(selected, expected))
              << data << " n=" << n << " density=" << density << " step=" << step;
        }
      }
    }
  }
}

TEST(Dgc, FollowsThePublishedRule) {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    ExpectRule({});
  }
}
TEST(Dgc, SampleRatioWidensTheSample) {
  ExpectRule({.sample_ratio = 0.1}, {1025, 60'000});
  ExpectRule({.sample_ratio = 1.0}, {1025, 60'000});
}
TEST(Dgc, RaisesTheThresholdWithoutResample) { ExpectRule({.resample = false}, {1025, 60'000}); }
TEST(Dgc, SamplesAtRandomWithoutStride) { ExpectRule({.strided = false}, {1025, 60'000}); }
TEST(Dgc, BoundsAndIterationsAreOptions) {
  ExpectRule({.upper = 1.05, .lower = 0.95, .resample = false}, {9000, 60'000});
  ExpectRule({.upper = 1.05, .lower = 0.95, .iterations = 1, .resample = false}, {9000, 60'000});
  ExpectRule({.iterations = 0}, {9000, 60'000});
}

TEST(Dgc, ExactTrimKeepsTheLargestInsteadOfTheFirst) {
  const auto first = MakeSparsifier("dgc");
  const auto largest = MakeSparsifier("dgc", {{"exact_trim", true}});
  constexpr std::size_t kN = 50'000;
  int trimmed = 0;
  for (std::uint64_t step = 0; step < 40; ++step) {
    const auto x = MakeData("gaussian", kN, step);
    Selection by_position(*first, kN, 0.01, 1, false);
    Selection by_size(*largest, kN, 0.01, 1, false);
    const auto a = by_position.Run(x, step).indices;
    const auto b = by_size.Run(x, step).indices;
    ASSERT_EQ(a.size(), b.size());
    // The elements kept by size are the top of x: the threshold's survivors are an upper set.
    EXPECT_EQ(b, LargestByDefinition(x, b.size()).indices);
    trimmed += a != b;
  }
  EXPECT_GT(trimmed, 0);
}

TEST(Dgc, NeverSendsNothingOfSomething) {
  // Raised by a hundred, the threshold selects nothing, and lowered by 0.9999 it still does.
  const auto dgc =
      MakeSparsifier("dgc", {{"resample", false}, {"upper_bound", 100.0}, {"lower_bound", 0.9999}});
  constexpr std::size_t kN = 60'000;
  std::vector<float> x(kN, 1.0f);
  Selection selection(*dgc, kN, 0.001, 1, false);
  const Selected selected = selection.Run(x, 0);
  EXPECT_EQ(selected.indices, LargestByDefinition(x, kN / 1000).indices);
  EXPECT_EQ(selection.counters().fallbacks, 1u);
}

TEST(Dgc, ASpikeThatTheSampleMissesIsSent) {
  const auto dgc = MakeSparsifier("dgc");
  constexpr std::size_t kN = 60'000;
  for (std::uint64_t step = 0; step < 20; ++step) {
    std::vector<float> x(kN, 0.0f);
    x[12'345 + step] = 1e-20f;
    Selection selection(*dgc, kN, 0.01, 1, false);
    const auto indices = selection.Run(x, step).indices;
    EXPECT_TRUE(std::binary_search(indices.begin(), indices.end(), 12'345 + step));
  }
}

TEST(Dgc, OverflowOfTheSlotBecomesExactTopK) {
  // Without corrections, every element that reaches the sample's threshold is kept: ties keep all.
  constexpr std::size_t kN = 60'000;
  std::vector<float> x(kN, 1.0f);
  x[kN - 1] = 2.0f;
  Selection selection(MakeSparsifier("dgc", {{"max_iterations", std::int64_t{0}}}), kN, 0.01, 1,
                      false);
  EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, kN / 100).indices);
  EXPECT_EQ(selection.counters().overflows, 1u);
}

// Every sampled element is 1 and all others are 0: the sample suggests a crowd that does not exist.
// The stride is 97, so that 4,123 or 4,124 elements are 1, between 0.8 K and 1.3 K.
TEST(Dgc, ASampleThatTellsOfACrowdInVainChangesNothing) {
  const auto dgc = MakeSparsifier("dgc", {}, kSeed);
  constexpr std::size_t kN = 400'000;
  for (const bool feedback : {false, true}) {
    std::vector<float> x(kN, 0.0f);
    std::vector<std::uint32_t> ones;
    for (std::size_t i = RandomStream(kSeed, kId, 0).Below(97, 0); i < kN; i += 97) {
      x[i] = 1.0f;
      ones.push_back(static_cast<std::uint32_t>(i));
    }
    ones.resize(4000);
    Selection selection(*dgc, kN, 0.01, 2, feedback);
    EXPECT_EQ(selection.Run(x, 0, kId).indices, ones);
    EXPECT_EQ(selection.counters().fallbacks, 1u);
  }
}

// The loop measures the parameters of the descriptor's selection model. Other seeds move the mean
// by less than 0.01 and sigma by less than 0.005.
TEST(Dgc, SelectionModelHolds) {
  const SelectionModel model = FindSparsifier("dgc").selection_model;
  const auto dgc = MakeSparsifier("dgc");
  Spread spread;
  for (const char* data : {"gaussian", "laplace"}) {
    for (const std::size_t n : {20'000, 100'000, 500'000}) {
      for (std::uint64_t step = 0; step < 40; ++step) {
        Selection selection(*dgc, n, 0.01, 1, false);
        const auto x = MakeData(data, n, step * 31 + n);
        const double ratio = static_cast<double>(selection.Run(x, step).indices.size()) /
                             static_cast<double>(KeptCount(n, 0.01));
        spread.Add(std::log(ratio));
      }
    }
  }
  RecordProperty("mean", std::to_string(spread.mean()));
  RecordProperty("sigma", std::to_string(spread.sigma()));
  EXPECT_NEAR(model.mean, spread.mean(), 0.02) << "sigma " << spread.sigma();
  EXPECT_NEAR(model.sigma, spread.sigma(), 0.02);
}

}  // namespace
}  // namespace sparfuse::testing
