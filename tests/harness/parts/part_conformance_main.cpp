// Tests the laws of planners, strategies, collectives, feedback and quantizers on a named part,
// either a registered one or a class of a Python file.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/feedback/feedback.hpp"
#include "harness/catalog/outside_part.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/named_part.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

constexpr const char* kUsage =
    "usage: part-conformance KIND NAME [--gtest_...]\n"
    "\n"
    "Tests the laws of a planner, strategy, collective, feedback or quantizer: that plans cover "
    "and\n"
    "are the same again, that a strategy and a collective lose nothing and leave all ranks equal,\n"
    "that a collective sends what its dry run says, that what is kept and what is sent add up.\n"
    "\n"
    "  KIND  planner, strategy, collective, feedback, quantizer\n"
    "  NAME  of \"sparfuse list\", or python:FILE.py:ClassName, made with its defaults\n"
    "\n"
    "Exit status: 0 all laws hold, 1 one does not, 2 it could not be tried.\n";

class Planners : public ::testing::Test {};

TEST_F(Planners, CoversEveryLayoutTheSameWayAgain) {
  const PlannerDescriptor& part = FindPlanner(ThePart().name);
  const std::vector<std::vector<std::size_t>> sizes = {
      {1}, {5, 1}, kTensorSizes, std::vector<std::size_t>(200, 64), {1'000'000, 1, 1, 1'000'000}};
  for (const auto& tensors : sizes) {
    const GradientLayout layout = MatricesOf(tensors);
    const BackwardProfile backward = EvenBackward(tensors.size());
    const CostModel cost = EvenCost();
    for (const Topology topology : {Topology{1, 1}, Topology{3, 1}, Topology{16, 4}}) {
      for (const Sparsified sparsified :
           {Sparsified::kNever, Sparsified::kAhead, Sparsified::kBehind}) {
        if (part.ahead_only && sparsified != Sparsified::kAhead) continue;
        const PlanInput input =
            InputOf(layout, topology, sparsified == Sparsified::kNever ? 1 : 0.05, sparsified,
                    backward, cost);
        EXPECT_EQ(PlanOf(part.name, input), PlanOf(part.name, input))
            << tensors.size() << " tensors on " << topology.ranks << " ranks";
      }
    }
  }
}

class Feedbacks : public ::testing::Test {};

// Mass is lost only if the rule declares it.
TEST_F(Feedbacks, KeepsWhatIsNotSentAndLeavesReplicasEqual) {
  const Options options = ResolveOptions(ThePart().name, FeedbackOptions(ThePart().name), {});
  const Feedback feedback = MakeFeedback(ThePart().name, options);
  const bool conserves = feedback.kind == FeedbackKind::kResidual ||
                         (feedback.make_rule && feedback.make_rule()->conserves());
  for (const int workers : {1, 2, 3}) {
    const auto results = RunLive(
        [&] {
          LiveConfig config = DenseLive({}, {workers, 1}, {});
          const BackwardProfile backward = EvenBackward(kTensorSizes.size());
          const CostModel cost = EvenCost();
          config.sparse_collective = CoreCollective("sparse-allgather");
          config.plan = PlanOf("layer-wise", InputOf(config.layout, config.topology, 0.05,
                                                     Sparsified::kAhead, backward, cost));
          config.strategy = FindStrategy("ahead").make({});
          config.sparsifier = FindSparsifier("topk").make({}, 1);
          config.feedback = feedback;
          if (feedback.make_rule) config.feedback.rule = feedback.make_rule();
          return config;
        },
        workers, IntegerGradient);
    for (const auto& rank : results) {
      EXPECT_EQ(rank.averaged, results.front().averaged);
      EXPECT_EQ(rank.mass_violations, 0u);
    }
    if (conserves) {
      EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
    }
  }
}

class Quantizers : public ::testing::Test {
 protected:
  struct Coded {
    std::vector<std::byte> bytes;
    std::vector<float> residual;
  };
  static std::vector<float> Gradient(std::size_t n) {
    std::mt19937 generator(7);
    std::normal_distribution<float> draw;
    std::vector<float> values(n);
    for (float& value : values) value = draw(generator);
    return values;
  }
  Coded Encode(const std::vector<float>& gradient, bool feedback, std::uint64_t step,
               int rank = 0) const {
    ThreadPool pool(2);
    Workspace workspace;
    Coded coded{std::vector<std::byte>(quantizer_->EncodedBytes(gradient.size())),
                std::vector<float>(feedback ? gradient.size() : 0)};
    quantizer_->Encode({&pool, &workspace, rank},
                       {{gradient.data(), gradient.size(), {}},
                        {coded.residual.data(), coded.residual.size(), {}}},
                       {3, "weight", {}, step}, coded.bytes);
    return coded;
  }
  std::vector<float> Decode(const Coded& coded, std::size_t n) const {
    ThreadPool pool(2);
    std::vector<float> out(n);
    const std::span<const std::byte> one(coded.bytes);
    AccumulateQuantized(*quantizer_, {&one, 1}, 1.0f, out, pool);
    return out;
  }

  const QuantizerDescriptor& part_ = FindQuantizer(ThePart().name);
  const std::unique_ptr<Quantizer> quantizer_ =
      part_.make(ResolveOptions(part_.name, part_.options, {}), 11);
};

TEST_F(Quantizers, EncodesTheSameAgainAndLeavesTheRest) {
  for (const std::size_t n : {1, 2, 3, 31, 32, 33, 4096, 4097, 100'003}) {
    const std::vector<float> gradient = Gradient(n);
    const Coded coded = Encode(gradient, true, 5);
    const Coded again = Encode(gradient, true, 5);
    ASSERT_EQ(coded.bytes, again.bytes) << n << " elements";
    ASSERT_EQ(coded.residual, again.residual) << n << " elements";
    const std::vector<float> decoded = Decode(coded, n);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(coded.residual[i], gradient[i] - decoded[i]) << i;
    ASSERT_EQ(Decode(Encode(std::vector<float>(n), false, 0), n), std::vector<float>(n))
        << n << " zeros";
  }
}

// Otherwise the residual could grow from step to step without bound.
TEST_F(Quantizers, KeepsNoMoreThanItWasGiven) {
  if (!part_.needs_feedback) GTEST_SKIP() << "it goes without feedback";
  for (const std::size_t n : {1, 2, 33, 4097}) {
    const std::vector<float> gradient = Gradient(n);
    const Coded coded = Encode(gradient, true, 5);
    double given = 0, kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      given += std::pow(gradient[i], 2.0);
      kept += std::pow(coded.residual[i], 2.0);
    }
    const double bound = std::max(1.0, quantizer_->ErrorBound(n)) * given;
    EXPECT_LE(kept, bound * (1 + 1e-6))
        << n << " elements: squared norms of what is kept, and given";
  }
}

// Compares the mean of decoded values over steps, if the quantizer declares that it is unbiased.
TEST_F(Quantizers, IsUnbiasedWhereItSaysSo) {
  if (!part_.unbiased) GTEST_SKIP() << "it does not say so";
  constexpr std::size_t kElements = 64;
  constexpr int kSteps = 2000;
  const std::vector<float> gradient = Gradient(kElements);
  std::vector<double> sum(kElements), squares(kElements);
  for (int step = 0; step < kSteps; ++step) {
    const auto decoded =
        Decode(Encode(gradient, false, static_cast<std::uint64_t>(step)), kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      sum[i] += decoded[i];
      squares[i] += static_cast<double>(decoded[i]) * decoded[i];
    }
  }
  for (std::size_t i = 0; i < kElements; ++i) {
    const double mean = sum[i] / kSteps;
    const double deviation = std::sqrt(std::max(0.0, squares[i] / kSteps - mean * mean) / kSteps);
    EXPECT_NEAR(mean, gradient[i], 6 * deviation + 1e-3) << "element " << i;
  }
}

const std::vector<std::pair<std::string, std::string>>& Suites() {
  static const std::vector<std::pair<std::string, std::string>> kSuites = {
      {"planner", "Planners.*"},
      {"strategy", "Registered/EveryStrategy.*"},
      {"collective", "*CollectiveRounds.*_1:*CollectiveRounds.*_2"},
      {"feedback", "Feedbacks.*"},
      {"quantizer", "Quantizers.*"}};
  return kSuites;
}

// Sets the part to test. Its file runs once before any law, so that Python's refusals are reported
// once. Returns the tests of its kind.
std::string TestOne(const std::string& kind, const std::string& given) {
  std::string tests;
  std::vector<std::string> kinds;
  for (const auto& [known, suite] : Suites()) {
    kinds.push_back(known);
    if (known == kind) tests = suite;
  }
  if (tests.empty()) {
    SPARFUSE_THROW(kConfig,
                   "no laws of a kind of part named \"" + kind + "\"" + Suggestion(kind, kinds));
  }
  const std::string name =
      IsOutsidePart(given) ? harness::OutsidePartName(kind, given, std::filesystem::current_path())
                           : given;
  ThePart() = {kind, name};
  if (IsOutsidePart(
          given)) {  // the first broken law says enough, and further ones may wait as long
    LongestWait() = std::chrono::seconds(10);
    ::testing::GTEST_FLAG(fail_fast) = true;
  }
  if (kind == "planner") FindPlanner(name);
  if (kind == "strategy") FindStrategy(name);
  if (kind == "collective") FindCollective(name);
  if (kind == "feedback") FeedbackOptions(name);
  if (kind == "quantizer") FindQuantizer(name);
  return tests;
}

}  // namespace
}  // namespace sparfuse::testing

int main(int argc, char** argv) {
  if (argc < 3) {
    const bool help = argc == 2 && std::string_view(argv[1]) == "--help";
    std::fputs(sparfuse::testing::kUsage, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  try {
    ::testing::GTEST_FLAG(filter) = sparfuse::testing::TestOne(argv[1], argv[2]);
  } catch (const sparfuse::Error& error) {
    std::fprintf(stderr, "part-conformance: %s\n", error.what());
    return 2;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
