// Tests the laws that every sparsifier obeys. A registered one is tested because it is in the
// table, a class of a Python file because it is named to sparsifier_conformance_main.cpp. Laws that
// a descriptor leaves open, an exact count or a contraction, are not tested here.
// sparsifier_table_test.cpp tests that the descriptors of the table leave none open.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/outside_parts.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

const std::vector<std::vector<std::int64_t>> kShapes = {
    {1},      {2},          {31},          {32},          {33},         {1023},
    {1025},   {9000},       {33, 31},      {1, 300},      {300, 1},     {9, 1000},
    {4, 130}, {8, 3, 7, 7}, {5, 40, 3, 3}, {6, 65, 1, 1}, {3, 4, 9, 9}, {kLargeShape}};

class SparsifierLaws : public ::testing::TestWithParam<std::string> {
 protected:
  const SparsifierDescriptor& descriptor() const { return UnderTest().find(GetParam()); }
  // Published forms share the kernels of the canonical ones, which are tested on large tensors.
  bool small_only() const { return IsPublished(GetParam()); }
};

// The laws of one selection from x, for any method.
void ExpectLawful(const SparsifierDescriptor& descriptor, const std::vector<float>& x,
                  const Selected& selected, const Selection& selection, const std::string& where) {
  SCOPED_TRACE(where);
  ASSERT_LE(selected.indices.size(), selection.capacity());
  ASSERT_TRUE(selection.GuardsIntact());
  ExpectLawful(descriptor, x, selected, selection.Count());
}

// One sparsifier on tensors of one shape, at one density.
struct SelectionCase {
  std::string name;
  std::vector<std::int64_t> shape;
  double density;
};

std::string Joined(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

void PrintTo(const SelectionCase& c, std::ostream* out) {
  *out << '"' << c.name << "\" shape=" << Joined(c.shape) << " density=" << c.density;
}

class SparsifierSelections : public ::testing::TestWithParam<SelectionCase> {};

TEST_P(SparsifierSelections, SelectsLawfullyAndConservesMass) {
  const auto& [name, shape, density] = GetParam();
  const SparsifierDescriptor& descriptor = UnderTest().find(name);
  const auto sparsifier = MakeSparsifier(name);
  const std::size_t n = ElementsOf(shape);
  // The kernels of a named sparsifier, and in the long form all kernels, run on each instruction
  // set. Otherwise IsDeterministicOnEveryPoolAndInstructionSet tests that all of them select the
  // same.
  const std::vector<Isa> isas =
      UnderTest().chosen || TestsEverything() ? UnderTest().isas : std::vector<Isa>{ActiveIsa()};
  for (const Isa isa : isas) {
    const ScopedIsa scope(isa);
    for (const std::string& data : DataNames()) {
      // The large shape gets only the data sets that take different paths there.
      if (n > 100'000 && data != "gaussian" && data != "few-values" && data != "sparse" &&
          data != "equal") {
        continue;
      }
      const std::string where = std::string(IsaName(isa)) + " n=" + std::to_string(n) + " " + data;
      Selection selection(*sparsifier, n, density, 2, true, shape);
      const auto drawn = MakeData(data, n, 1);
      for (std::uint64_t step = 0; step < (kSanitized ? 2 : 3); ++step) {
        auto gradient = drawn;  // rotated each step: cheaper than drawing
        std::rotate(gradient.begin(), gradient.begin() + static_cast<long>(step * n / 5),
                    gradient.end());
        const std::vector<float> x = selection.WithResidual(gradient);
        Selected selected;
        try {
          selected = selection.Run(gradient, step);
        } catch (const Error& error) {
          FAIL() << where << ": " << error.what();
        }
        ExpectLawful(descriptor, x, selected, selection, where);
        if (HasFatalFailure()) return;
        ASSERT_EQ(Bits(selection.residual()), Bits(Unsent(x, selected))) << where;
      }
    }
  }
}

TEST_P(SparsifierLaws, IsDeterministicOnEveryPoolAndInstructionSet) {
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {std::size_t{5000}, kLargeShape}) {
      if (n > 100'000 && (small_only() || (data != "gaussian" && data != "few-values"))) continue;
      std::vector<Selected> reference;
      std::vector<float> residual;
      for (const Isa isa : UnderTest().isas) {
        const ScopedIsa scope(isa);
        for (const int threads : {1, 2, 3}) {
          Selection selection(MakeSparsifier(GetParam()), n, 0.01, threads, true);
          for (std::uint64_t step = 0; step < 3; ++step) {
            const Selected selected = selection.Run(MakeData(data, n, step), step);
            if (reference.size() <= step) reference.push_back(selected);
            ASSERT_EQ(selected.indices, reference[step].indices)
                << data << " " << IsaName(isa) << " threads=" << threads;
            ASSERT_EQ(Bits(selected.values), Bits(reference[step].values));
          }
          if (residual.empty()) residual = selection.residual();
          ASSERT_EQ(Bits(selection.residual()), Bits(residual));
        }
      }
    }
  }
}

TEST_P(SparsifierLaws, RefusesWhatIsNotFinite) {
  const auto sparsifier = MakeSparsifier(GetParam());
  for (const Isa isa : UnderTest().isas) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {1, 33, 9000, 300'000}) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        for (const double density : {0.01, 1.0}) {
          for (const bool feedback : {false, true}) {
            if (!feedback && density < 1 && !descriptor().refuses_unsent) continue;
            auto gradient = MakeData("gaussian", n, 1);
            gradient[n * 2 / 3] = bad;
            Selection selection(*sparsifier, n, density, 2, feedback);
            SCOPED_TRACE(::testing::Message() << bad << ", n=" << n << ", density " << density);
            ExpectError(FailureKind::kNumeric, {"conv1.weight", "step 9"},
                        [&] { selection.Run(gradient, 9); });
          }
        }
      }
    }
  }
}

TEST_P(SparsifierLaws, SendsEverythingAtDensityOne) {
  const auto sparsifier = MakeSparsifier(GetParam());
  for (const auto& shape : kShapes) {
    const std::size_t n = ElementsOf(shape);
    const auto x = MakeData("few-values", n, 1);
    Selection selection(*sparsifier, n, 1.0, 2, true, shape);
    EXPECT_EQ(Bits(selection.Run(x, 0).values), Bits(x));
    EXPECT_EQ(selection.residual(), std::vector<float>(n, 0.0f));
  }
}

// E|x - C(x)|^2 <= (1 - delta) |x|^2, the assumption of the convergence proofs (Stich et al.,
// NeurIPS 2018, definition 2.1; Karimireddy et al., ICML 2019), with the delta that the method
// declares. The expectation is over the method's own random numbers. For random methods it is a
// mean over seeds of values in [0, 1], within three standard errors of 1 - delta.
TEST_P(SparsifierLaws, ContractsAsItDeclares) {
  const std::vector<std::vector<std::int64_t>> shapes = {{1}, {900}, {30, 30}, {8, 25, 3, 3}};
  for (const auto& shape : shapes) {
    const std::size_t n = ElementsOf(shape);
    for (const double density : {0.01, 0.1}) {
      const double delta = descriptor().contraction(shape, density);
      ASSERT_GE(delta, 0.0);
      ASSERT_LE(delta, 1.0);
      if (delta == 0) continue;  // sent and kept are parts of x: trivially true
      for (const std::string& data : DataNames()) {
        const auto x = MakeData(data, n, 3);
        double energy = 0;
        for (const float value : x) energy += static_cast<double>(value) * value;
        if (energy == 0) continue;
        const int seeds = descriptor().index_shared ? 400 : 40;
        double sum = 0;
        bool random = descriptor().index_shared;
        double first = 0;
        for (int seed = 0; seed < seeds; ++seed) {
          Selection selection(MakeSparsifier(GetParam(), {}, static_cast<std::uint64_t>(seed)), n,
                              density, 1, false, shape);
          double kept = 0;
          for (const float value : selection.Run(x, 0).values) {
            kept += static_cast<double>(value) * value;
          }
          const double left = 1 - kept / energy;
          sum += left;
          if (seed == 0) first = left;
          random = random || left != first;
        }
        const double error = random ? 3 * std::sqrt(delta * (1 - delta) / seeds) : 0;
        EXPECT_LE(sum / seeds, 1 - delta + error + 1e-9)
            << data << " n=" << n << " density=" << density << " delta=" << delta;
      }
    }
  }
}

TEST_P(SparsifierLaws, CountsItsSelections) {
  Selection selection(MakeSparsifier(GetParam()), 100, 0.1, 1, false);
  for (std::uint64_t step = 0; step < 3; ++step) selection.Run(MakeData("gaussian", 100, 1), step);
  EXPECT_EQ(selection.counters().selections, 3u);
}

TEST_P(SparsifierLaws, RefusesArgumentsThatMakeNoSense) {
  const auto sparsifier = MakeSparsifier(GetParam());
  ThreadPool pool(1);
  Workspace workspace;
  SelectCounters counters;
  std::vector<float> x(100, 1.0f);
  std::vector<std::uint32_t> indices(100);
  std::vector<float> values(100);
  struct Case {
    std::size_t n;
    double density;
    std::size_t capacity;
  };
  for (const Case& c :
       {Case{0, 0.5, 100}, Case{std::size_t{1} << 32, 0.5, 100}, Case{100, 0.0, 100},
        Case{100, -1.0, 100}, Case{100, 2.0, 100}, Case{100, 0.5, 10}}) {
    Slot slot{{indices.data(), c.capacity, {}}, {values.data(), c.capacity, {}}, c.capacity, 0};
    SCOPED_TRACE(::testing::Message() << "n=" << c.n << ", density " << c.density);
    ExpectError(FailureKind::kConfig, {"fc.bias"}, [&] {
      sparsifier->Select({&pool, &workspace, &counters, {}}, {{x.data(), c.n, {}}, {}}, c.density,
                         {0, "fc.bias", {}, 0}, nullptr, slot);
    });
  }
}

TEST_P(SparsifierLaws, DescribesItself) {
  const auto sparsifier = MakeSparsifier(GetParam());
  const std::string name(sparsifier->name());
  if (IsLibraryPart(GetParam())) {  // with the head of the library's hash
    EXPECT_TRUE(descriptor().name.starts_with("library:" + name + "@"))
        << descriptor().name << " calls itself " << name;
  } else {
    EXPECT_EQ(name, descriptor().name);
  }
  EXPECT_GE(descriptor().revision, 1);
}

// The program with a device does not instantiate these suites.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparsifierLaws);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparsifierSelections);

std::vector<std::string> NamesOnHost() {
  return UnderTest().on_host ? UnderTest().names : std::vector<std::string>();
}

std::vector<SelectionCase> SelectionCases() {
  std::vector<SelectionCase> cases;
  for (const std::string& name : NamesOnHost()) {
    for (const auto& shape : kShapes) {
      const bool large = ElementsOf(shape) > 100'000;
      if (large && IsPublished(name)) continue;
      if (!large && kThreadSanitized) continue;  // one thread does these
      for (const double density : {1e-9, 0.01, 0.3, 1.0}) {
        if (large && density != 0.01) continue;
        cases.push_back({name, shape, density});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, SparsifierLaws, ::testing::ValuesIn(NamesOnHost()),
                         [](const auto& instance) { return CaseName(instance.param); });
INSTANTIATE_TEST_SUITE_P(All, SparsifierSelections, ::testing::ValuesIn(SelectionCases()),
                         [](const auto& instance) {
                           return CaseName(instance.param.name) + "_" +
                                  Joined(instance.param.shape) + "_at_" +
                                  CaseName(std::to_string(instance.param.density));
                         });

}  // namespace
}  // namespace sparfuse::testing
