// Tests a reused threshold: the payloads between estimates, and the causes of an early estimate.
#include "core/sparsify/reused_threshold/reused_threshold.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Indices = std::vector<std::uint32_t>;

std::unique_ptr<Sparsifier> Reuse(const std::string& name, int period) {
  return ReuseThreshold(MakeSparsifier(name), period);
}

// Selections of one tensor at any density, into a slot of any capacity.
class Course {
 public:
  Course(const Sparsifier& sparsifier, std::size_t n, std::size_t capacity)
      : sparsifier_(sparsifier), state_(sparsifier.MakeState(n)), capacity_(capacity) {}

  Indices Run(const std::vector<float>& x, double density) {
    return SelectInto(sparsifier_, x, density, {0, "fc.bias", {}, step_++}, capacity_, counters_,
                      state_.get())
        .indices;
  }

  const SelectCounters& counters() const { return counters_; }

 private:
  const Sparsifier& sparsifier_;
  std::unique_ptr<SparsifierState> state_;
  std::size_t capacity_;
  SelectCounters counters_;
  std::uint64_t step_ = 0;
};

// Exact top-k that records the steps of its calls, and keeps nothing of zeros.
class CountingTopK final : public Sparsifier {
 public:
  struct Calls final : SparsifierState {
    int count = 0;
  };
  explicit CountingTopK(std::vector<std::uint64_t>& steps) : steps_(steps) {}
  std::string_view name() const noexcept override { return "topk"; }
  std::unique_ptr<SparsifierState> MakeState(std::size_t /*n*/) const override {
    return std::make_unique<Calls>();
  }
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    if (state != nullptr) calls.push_back(++static_cast<Calls*>(state)->count);
    steps_.push_back(info.step);
    topk_->Select(context, source, density, info, nullptr, slot);
    const float* const values = slot.values.data;
    if (std::all_of(values, values + slot.count, [](float v) { return v == 0; })) slot.count = 0;
  }

  mutable std::vector<int> calls;  // the uses of the state so far, at each call

 private:
  std::vector<std::uint64_t>& steps_;
  std::unique_ptr<Sparsifier> topk_ = MakeSparsifier("topk");
};

TEST(ReusedThreshold, SendsWhatReachesTheSmallestMagnitudeOfTheLastEstimate) {
  const auto reused = Reuse("topk", 3);
  Course course(*reused, 8, 8);  // K = 2
  EXPECT_EQ(course.Run({5, -4, 3, 2, 1, 0, 0, 0}, 0.25), (Indices{0, 1}));
  EXPECT_EQ(course.Run({1, 4, -4.5f, 3.9f, 5, 0, 0, 0}, 0.25), (Indices{1, 2, 4}));
  EXPECT_EQ(course.Run({3, 3, 3, 3, 3, 3, 3, -4}, 0.25), (Indices{7}));
  EXPECT_EQ(course.Run({9, 8, 7, 6, 5, 4, 3, 2}, 0.25), (Indices{0, 1}));  // estimated: 8
  EXPECT_EQ(course.Run({8, 7.5f, -8, 8, 8, 7, 7, 7}, 0.25), (Indices{0, 2, 3, 4}));
  EXPECT_EQ(course.counters().fallbacks, 0u);
  EXPECT_EQ(course.counters().selections, 5u);
}

// The rule by its definition, with error feedback.
TEST(ReusedThreshold, EqualsItsDefinition) {
  constexpr int kPeriod = 4;
  const auto reused = Reuse("topk", kPeriod);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {37u, 9001u, 300'007u}) {
      for (const double density : {0.02, 0.3}) {
        Selection selection(*reused, n, density, 2, true);
        const std::size_t k = KeptCount(n, density);
        float threshold = 0;
        std::uint64_t estimates = 0;
        std::uint64_t reuses = 0;
        for (std::uint64_t step = 0; step < 11; ++step) {
          // Jumps by 3 in steps 5 and 7, which are not steps of the period.
          const auto gradient =
              Scaled(MakeData("gaussian", n, step), step == 5 || step == 6 ? 3.0f : 1.0f);
          const std::vector<float> x = selection.WithResidual(gradient);
          Selected expected = Where(x, [&](float v) { return std::abs(v) >= threshold; });
          const std::size_t reach = expected.indices.size();
          if (step % kPeriod == 0 || 2 * reach < k || reach > 2 * k) {
            ++estimates;
            expected = LargestByDefinition(x, k);
            threshold = SmallestMagnitude(expected.values);
          } else {
            ++reuses;
          }
          const Selected selected = selection.Run(gradient, step);
          ASSERT_TRUE(Same(selected, expected)) << "n=" << n << " step " << step;
          ASSERT_EQ(Bits(selection.residual()), Bits(Unsent(x, expected))) << "n=" << n;
          ASSERT_TRUE(selection.GuardsIntact());
        }
        EXPECT_GT(estimates, 3u) << "n=" << n;  // some of them outside steps 0, 4 and 8
        EXPECT_GT(reuses, 1u) << "n=" << n;
        EXPECT_EQ(selection.counters().selections, 11u);
      }
    }
  }
}

TEST(ReusedThreshold, WithPeriodOneIsTheSparsifierItself) {
  auto dgc = MakeSparsifier("dgc");
  const Sparsifier* const same = dgc.get();
  EXPECT_EQ(ReuseThreshold(std::move(dgc), 1).get(), same);
}

TEST(ReusedThreshold, RefusesAPeriodBelowOne) {
  EXPECT_EQ(ErrorOf([&] { Reuse("dgc", 0); }, FailureKind::kConfig),
            "reuse of the threshold of dgc: period = 0: expected at least 1");
}

TEST(ReusedThreshold, EstimatesAtThePeriodOfEachTensor) {
  std::vector<std::uint64_t> steps;
  auto inner = std::make_unique<CountingTopK>(steps);
  const CountingTopK& topk = *inner;
  const auto reused = ReuseThreshold(std::move(inner), 4);
  const auto x = MakeData("gaussian", 1000, 1);
  Course first(*reused, 1000, 1000);
  Course second(*reused, 1000, 1000);
  for (int step = 0; step < 3; ++step) first.Run(x, 0.01);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0}));
  for (int step = 0; step < 9; ++step) second.Run(x, 0.01);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 0, 4, 8}));
  for (int step = 3; step < 10; ++step) first.Run(x, 0.01);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 0, 4, 8, 4, 8}));
  EXPECT_EQ(topk.calls, (std::vector<int>{1, 1, 2, 3, 2, 3}));  // each tensor has its own state
  EXPECT_EQ(first.Run(x, 0.01), LargestByDefinition(x, 10).indices);
}

TEST(ReusedThreshold, EveryStepIsTheFirstWithoutAState) {
  std::vector<std::uint64_t> steps;
  const auto reused = ReuseThreshold(std::make_unique<CountingTopK>(steps), 4);
  const auto x = MakeData("gaussian", 100, 1);
  SelectCounters counters;
  for (std::uint64_t step = 0; step < 3; ++step) {
    SelectInto(*reused, x, 0.1, {0, "a", {}, step}, 100, counters);
  }
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST(ReusedThreshold, EstimatesAgainInTheStepInWhichTheGradientDrifts) {
  const std::size_t n = 10'000;
  const auto x = MakeData("gaussian", n, 1);
  for (const float factor : {4.0f, 0.25f}) {
    std::vector<std::uint64_t> steps;
    const auto reused = ReuseThreshold(std::make_unique<CountingTopK>(steps), 8);
    Course course(*reused, n, n);
    const auto drifted = Scaled(x, factor);
    course.Run(x, 0.01);
    course.Run(x, 0.01);
    EXPECT_EQ(course.Run(drifted, 0.01), LargestByDefinition(drifted, 100).indices) << factor;
    EXPECT_EQ(course.counters().fallbacks, 1u);
    EXPECT_EQ(course.counters().overflows, 0u);
    EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 2})) << factor;
    // The new threshold holds from then on, up to the period's next step.
    for (int step = 3; step < 9; ++step) course.Run(drifted, 0.01);
    EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 2, 8})) << factor;
    EXPECT_EQ(course.counters().selections, 9u);
  }
}

TEST(ReusedThreshold, AnOverflowIsCountedAndEstimatesAgain) {
  std::vector<std::uint64_t> steps;
  const auto reused = ReuseThreshold(std::make_unique<CountingTopK>(steps), 8);
  Course course(*reused, 8, 3);  // K = 2; a slot for 3
  course.Run({4, 3, 2, 1, 0, 0, 0, 0}, 0.25);
  EXPECT_EQ(course.Run({3, 3, 0, 0, 3, 0, 0, 0}, 0.25), (Indices{0, 1, 4}));
  EXPECT_EQ(course.counters().overflows, 0u);
  EXPECT_EQ(course.Run({5, 6, 0, 0, 7, 0, 8, 0}, 0.25), (Indices{4, 6}));
  EXPECT_EQ(course.counters().overflows, 1u);
  EXPECT_EQ(course.counters().fallbacks, 0u);
  EXPECT_EQ(course.Run({6.5f, 7, 0, 0, 7, 0, 0, 0}, 0.25), (Indices{1, 4}));  // threshold 7
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 2}));
}

// A published form that sends seven times K is not called in every step because of that.
TEST(ReusedThreshold, MeasuresTheDriftOfAFormThatMissesItsCountAgainstItsOwn) {
  const std::size_t n = 100'000;
  const auto x = MakeData("gaussian", n, 1);
  for (const char* name : {"gaussiank@sidco", "dgc@wfbp"}) {
    const auto reused = Reuse(name, 8);
    Course course(*reused, n, n);
    const Indices sent = course.Run(x, 0.01);
    ASSERT_GT(sent.size(), 2000u) << name;
    const SelectCounters before = course.counters();
    EXPECT_EQ(course.Run(x, 0.01), sent) << name;
    EXPECT_EQ(course.counters().fallbacks, before.fallbacks) << name;
    const auto drifted = Scaled(x, 1e-6f);
    EXPECT_GT(course.Run(drifted, 0.01).size(), 2000u) << name;
    EXPECT_EQ(course.counters().fallbacks, before.fallbacks + 1) << name;
  }
}

TEST(ReusedThreshold, ANewDensityIsEstimatedAtOnceAndDensityOnePassesThrough) {
  std::vector<std::uint64_t> steps;
  const auto reused = ReuseThreshold(std::make_unique<CountingTopK>(steps), 4);
  const auto x = MakeData("gaussian", 1000, 1);
  Course course(*reused, 1000, 1000);
  EXPECT_EQ(course.Run(x, 0.1).size(), 100u);  // step 0, estimated
  EXPECT_EQ(course.Run(x, 0.1).size(), 100u);  // step 1
  EXPECT_EQ(course.Run(x, 0.08).size(), 80u);  // step 2: a reused threshold would send 100
  EXPECT_EQ(course.Run(x, 1).size(), 1000u);   // passed through, no step
  EXPECT_EQ(course.Run(x, 0.08).size(), 80u);  // step 3
  EXPECT_EQ(course.Run(x, 0.08).size(), 80u);  // step 4, estimated
  EXPECT_EQ(course.Run(x, 0.08).size(), 80u);  // step 5
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 2, 3, 5}));
  EXPECT_EQ(course.counters().fallbacks, 0u);
}

TEST(ReusedThreshold, EveryTensorThatIsNotZeroSendsSomething) {
  for (const std::string& name : SparsifierNames()) {
    const auto reused = Reuse(name, 4);
    for (const std::size_t n : {1u, 2u, 33u, 9000u}) {
      Selection selection(*reused, n, 0.01, 2, false);
      std::uint64_t step = 0;
      // Constant data side by side, so that all or none of the elements reach a threshold.
      for (const char* data : {"zeros", "zeros", "equal", "equal", "spike", "gaussian", "zeros",
                               "zeros", "denormal", "alternating", "zeros", "sparse"}) {
        const auto x = MakeData(data, n, 5);
        const Selected selected = selection.Run(x, step++);
        const bool something = std::any_of(x.begin(), x.end(), [](float v) { return v != 0; });
        EXPECT_LE(selected.indices.size(), selection.capacity());
        EXPECT_TRUE(selection.GuardsIntact());
        if (something) {
          ASSERT_GE(selected.indices.size(), 1u) << name << " n=" << n << " " << data;
        }
      }
    }
  }
}

TEST(ReusedThreshold, ZerosGiveNoThreshold) {
  const std::vector<float> zeros(8, 0.0f);
  const std::vector<float> x = {1, -2, 3, 4, 5, 6, 7, 8};
  std::vector<std::uint64_t> steps;
  auto nothing_of_zeros = std::make_unique<CountingTopK>(steps);
  for (const auto& reused : {Reuse("topk", 4), ReuseThreshold(std::move(nothing_of_zeros), 4)}) {
    Course course(*reused, 8, 8);
    course.Run(zeros, 0.5);
    EXPECT_EQ(course.Run(x, 0.5), (Indices{4, 5, 6, 7}));
    EXPECT_EQ(course.Run({5, 5, 0, 0, 0, 0, 0, 0}, 0.5), (Indices{0, 1}));  // reused
    EXPECT_EQ(course.counters().fallbacks, 0u);
  }
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 1}));
}

TEST(ReusedThreshold, RefusesAnEmptyTensorAndWhatIsNotFinite) {
  const auto reused = Reuse("dgc", 4);
  Course course(*reused, 100, 100);
  auto x = MakeData("gaussian", 100, 1);
  course.Run(x, 0.1);
  for (const float bad : {kNan, -kInfinity}) {
    x[41] = bad;
    ExpectError(FailureKind::kNumeric, {"\"fc.bias\"", "element 41 "}, [&] { course.Run(x, 0.1); });
  }
  ExpectError(FailureKind::kConfig, {}, [&] { course.Run({}, 0.1); });
}

// Sent + new residual = gradient + old residual, bit for bit, for every inner sparsifier.
TEST(ReusedThreshold, ConservesMassOver20Steps) {
  for (const std::string& name : SparsifierNames()) {
    const auto reused = Reuse(name, 5);
    EXPECT_EQ(reused->name(), name);
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{37}, {96, 99}}) {
      const std::size_t n = ElementsOf(shape);
      Selection selection(*reused, n, 0.02, 2, true, shape);
      for (std::uint64_t step = 0; step < 20; ++step) {
        const auto gradient = Scaled(MakeData("laplace", n, step), step % 7 == 6 ? 4.0f : 1.0f);
        SCOPED_TRACE(name + " step " + std::to_string(step));
        const std::vector<float> x = selection.WithResidual(gradient);
        const Selected selected = selection.Run(gradient, step);
        ASSERT_TRUE(selection.GuardsIntact());
        ASSERT_GE(selected.indices.size(), 1u);
        ASSERT_TRUE(std::ranges::is_sorted(selected.indices, std::ranges::less_equal()));
        ASSERT_NO_FATAL_FAILURE(ExpectNothingLost(x, selected, selection.residual()));
      }
    }
  }
}

TEST(ReusedThreshold, IsDeterministicOnEveryPoolAndInstructionSet) {
  const std::size_t n = kLargeShape;
  for (const char* name : {"topk", "dgc", "sidco"}) {
    std::vector<Selected> reference;
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      for (const int threads : {1, 2, 3}) {
        const auto reused = Reuse(name, 3);
        Selection selection(*reused, n, 0.01, threads, true);
        for (std::uint64_t step = 0; step < 5; ++step) {
          const auto gradient = Scaled(MakeData("gaussian", n, step), step == 4 ? 4.0f : 1.0f);
          const Selected selected = selection.Run(gradient, step);
          if (reference.size() <= step) reference.push_back(selected);
          ASSERT_TRUE(Same(selected, reference[step]))
              << name << " " << IsaName(isa) << " threads=" << threads << " step " << step;
        }
      }
    }
  }
}

TEST(ThresholdPeriod, IsRefusedWhereThereIsNoThresholdToReuse) {
  for (const SparsifierDescriptor& sparsifier : Sparsifiers()) {
    EXPECT_EQ(ThresholdPeriod(sparsifier, 1), 1) << sparsifier.name;
    if (sparsifier.index_shared || (sparsifier.exact_count && sparsifier.name != "topk")) {
      EXPECT_FALSE(sparsifier.reusable_threshold) << sparsifier.name;
    }
    if (sparsifier.reusable_threshold) {
      // An exact count stays exact unless a period is set.
      EXPECT_EQ(ThresholdPeriod(sparsifier, 0), sparsifier.exact_count ? 1 : 32) << sparsifier.name;
      EXPECT_EQ(ThresholdPeriod(sparsifier, 7), 7) << sparsifier.name;
    } else {
      EXPECT_EQ(ThresholdPeriod(sparsifier, 0), 1) << sparsifier.name;
      EXPECT_THROW(ThresholdPeriod(sparsifier, 2), Error) << sparsifier.name;
    }
  }
  for (const char* name : {"topk", "dgc", "gaussiank", "sidco", "redsync@saf", "gaussiank@saf"}) {
    EXPECT_TRUE(FindSparsifier(name).reusable_threshold) << name;
  }
  for (const char* name : {"randomk", "mstopk", "threshold", "adtopk", "adtopk-interleaved",
                           "adtopk-threshold", "dgc@pool", "threshold@wfbp"}) {
    EXPECT_FALSE(FindSparsifier(name).reusable_threshold) << name;
  }
  EXPECT_EQ(ErrorOf([&] { ThresholdPeriod(FindSparsifier("mstopk"), 8); }, FailureKind::kConfig),
            "threshold_period = 8 with sparsifier \"mstopk\", which finds no threshold that "
            "could be reused: expected 1");
  EXPECT_THROW(ThresholdPeriod(FindSparsifier("dgc"), -1), Error);
}

}  // namespace
}  // namespace sparfuse::testing
