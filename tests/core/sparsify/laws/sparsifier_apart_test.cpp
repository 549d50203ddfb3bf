// Tests selections under error feedback whose data change from step to step, so that remembered
// values and guesses are wrong as often as right. They run in place and with the next residual in
// other memory. Nothing is lost, and the results depend neither on the memory nor on the number of
// threads nor on the instruction set.
#include <gtest/gtest.h>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

// Above this number of elements, the next residual is written past the caches.
constexpr std::size_t kStreamed = (std::size_t{1} << 22) + 777;

// Each kind of data lasts two steps. The scale jumps, so that guesses are good in some steps and
// bad in others. The outlier never exceeds its own size, since unsent values add up.
struct Step {
  std::string data;
  float scale;
};

std::vector<Step> Steps(std::size_t count) {
  static const float kScales[] = {1, 1, 1e-6f, 1e6f, 1, 1e-30f};
  std::vector<std::string> kinds = AdversarialNames();
  for (const char* data : {"gaussian", "denormal", "sparse", "equal", "clustered", "layers"})
    kinds.emplace_back(data);
  std::vector<Step> steps;
  for (std::size_t s = 0; s < count; ++s) {
    const std::string& data = kinds[s / 2 % kinds.size()];
    const float scale = kScales[s / 3 % std::size(kScales)];
    steps.push_back({data, data != "outlier" ? scale : s % 2 == 0 ? 1 : 1e-6f});
  }
  return steps;
}

void ExpectEqualWays(const Sparsifier& sparsifier, std::size_t n, double density,
                     std::size_t steps) {
  Selection in_place(sparsifier, n, density, 1, true);
  Selection of_threads(sparsifier, n, density, 3, true);
  std::vector<std::unique_ptr<Selection>> apart;
  if (sparsifier.SelectsApart()) {
    for (const int threads : {1, 2}) {
      apart.push_back(std::make_unique<Selection>(sparsifier, n, density, threads, true));
      apart.back()->SelectApart();
    }
  }
  std::uint64_t s = 0;
  for (const Step& step : Steps(steps)) {
    const auto gradient = Scaled(MakeData(step.data, n, s % 5), step.scale);
    SCOPED_TRACE("step " + std::to_string(s) + ": " + step.data);
    const std::vector<float> x = in_place.WithResidual(gradient);
    const Selected selected = in_place.Run(gradient, s);
    ASSERT_NO_FATAL_FAILURE(ExpectNothingLost(x, selected, in_place.residual()));
    ASSERT_TRUE(in_place.GuardsIntact());
    const auto expect_same = [&](Selection& other) {
      ASSERT_TRUE(Same(other.Run(gradient, s), selected));
      ASSERT_EQ(Bits(other.residual()), Bits(in_place.residual()));
      ASSERT_TRUE(other.GuardsIntact());
    };
    ASSERT_NO_FATAL_FAILURE(expect_same(of_threads));
    for (const auto& each : apart) ASSERT_NO_FATAL_FAILURE(expect_same(*each));
    ++s;
  }
}

// Expects a refusal, whatever was guessed, that names the first element that is not finite. If the
// next residual is in other memory, the current one stays unchanged.
void ExpectRefused(const Sparsifier& sparsifier, std::size_t n, double density) {
  for (const bool is_apart : {false, true}) {
    if (is_apart && !sparsifier.SelectsApart()) continue;
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      Selection selection(sparsifier, n, density, 2, true);
      if (is_apart) selection.SelectApart();
      for (std::uint64_t step = 0; step < 3; ++step) {
        selection.Run(MakeData("gaussian", n, step), step);
      }
      const std::vector<float> before = selection.residual();
      auto gradient = MakeData("gaussian", n, 3);
      gradient[at] = kNan;
      gradient[n - 1] = -kInfinity;
      ExpectError(FailureKind::kNumeric,
                  {"conv1.weight", "element " + std::to_string(at) + " of " + std::to_string(n)},
                  [&] { selection.Run(gradient, 3); });
      if (!is_apart) continue;
      ASSERT_EQ(Bits(selection.residual()), Bits(before));
      gradient = MakeData("gaussian", n, 3);
      const std::vector<float> x = selection.WithResidual(gradient);
      const Selected selected = selection.Run(gradient, 3);
      ASSERT_NO_FATAL_FAILURE(ExpectNothingLost(x, selected, selection.residual()));
    }
  }
}

class ChangingData : public ::testing::TestWithParam<std::tuple<std::string, Isa>> {};

TEST_P(ChangingData, IsSelectedFromWithoutLoss) {
  const auto& [name, isa] = GetParam();
  const ScopedIsa scope(isa);
  const auto sparsifier = MakeSparsifier(name);
  ExpectEqualWays(*sparsifier, 37, 0.1, 50);
  ExpectEqualWays(*sparsifier, 20'011, 0.02, 50);
  if (!IsPublished(name)) ExpectEqualWays(*sparsifier, 300'007, 0.01, kSanitized ? 8 : 20);
}

TEST_P(ChangingData, IsRefusedWhereItIsNotFinite) {
  const auto& [name, isa] = GetParam();
  const ScopedIsa scope(isa);
  const auto sparsifier = MakeSparsifier(name);
  ExpectRefused(*sparsifier, 500, 0.1);
  if (!IsPublished(name)) ExpectRefused(*sparsifier, 250'007, 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, ChangingData,
                         ::testing::Combine(::testing::ValuesIn(SparsifierNames()),
                                            ::testing::ValuesIn(SupportedIsas())),
                         NameOfTuple);

// Each instruction set has its own stores past the caches.
class PastTheCaches : public ::testing::TestWithParam<std::tuple<const char*, Isa>> {};

TEST_P(PastTheCaches, NothingIsLost) {
  const auto& [name, isa] = GetParam();
  const ScopedIsa scope(isa);
  const auto sparsifier = MakeSparsifier(name);
  for (const std::size_t n : {kStreamed, kStreamed + 3}) {
    Selection apart(*sparsifier, n, 0.01, 2, true);
    apart.SelectApart();
    std::uint64_t step = 0;
    for (const char* data : {"gaussian", "one-ulp-apart", "both-zeros", "sparse"}) {
      if (n != kStreamed && step == 2) break;
      const auto gradient = MakeData(data, n, 1);
      const std::vector<float> x = apart.WithResidual(gradient);
      const Selected selected = apart.Run(gradient, step++);
      SCOPED_TRACE(data);
      ASSERT_NO_FATAL_FAILURE(ExpectNothingLost(x, selected, apart.residual()));
      if (std::string_view(name) == "topk") {
        const Selected largest = LargestByDefinition(x, apart.Count());
        ASSERT_EQ(selected.indices, largest.indices);
      }
    }
    auto gradient = MakeData("gaussian", n, 1);
    gradient[n - 3] = kNan;
    const std::vector<float> before = apart.residual();
    ExpectError(FailureKind::kNumeric, {"element " + std::to_string(n - 3) + " of"},
                [&] { apart.Run(gradient, step); });
    ASSERT_EQ(Bits(apart.residual()), Bits(before));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PastTheCaches,
                         ::testing::Combine(::testing::Values("topk", "dgc", "redsync",
                                                              "gaussiank"),
                                            ::testing::ValuesIn(SupportedIsas())),
                         NameOfTuple);

}  // namespace
}  // namespace sparfuse::testing
