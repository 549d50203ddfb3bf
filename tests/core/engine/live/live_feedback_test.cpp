// Tests the elements that are not sent, in the live engine: momentum, tensors without feedback,
// whole tensors, changes of plan and density between steps, and collectives that drop.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>

#include "core/engine/live/live_engine.hpp"
#include "core/engine/unit_strategy.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "tests/support/communicators/dropping_collective.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::testing {
namespace {

constexpr double kDensity = 0.05;
constexpr int kWorkers = 3;

LiveConfig Configure(Device device) {
  return SparseLive(
      {{Unit{0, 5, Sparsified::kAhead, kDensity}, Unit{5, 8, Sparsified::kAhead, kDensity}}},
      {kWorkers, 1}, device);
}

using Change = std::function<void(LiveConfig&)>;

std::vector<RankResult> RunWith(Device device, const Change& change,
                                const Gradients& gradients = IntegerGradient,
                                const std::function<void(LiveEngine&, int)>& before_step = {}) {
  return RunLive(
      [&] {
        LiveConfig config = Configure(device);
        if (change) change(config);
        return config;
      },
      kWorkers, gradients, 999, before_step);
}

std::vector<double> Nothing(const std::vector<RankResult>& results) {
  return std::vector<double>(results.front().residual.size(), 0.0);
}

class LiveFeedback : public ::testing::TestWithParam<Device> {
 protected:
  static std::vector<RankResult> RunWith(
      const Change& change, const Gradients& gradients = IntegerGradient,
      const std::function<void(LiveEngine&, int)>& before_step = {}) {
    return testing::RunWith(GetParam(), change, gradients, before_step);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, LiveFeedback, ::testing::Values(Device{}, kEmulated),
                         [](const auto& instance) { return NameOf(instance.param); });

// One tensor on one worker, as in the paper (DGC, algorithm 1 with masking).
struct Reference {
  std::vector<float> u, v;

  // The indices of the k largest |v|; ties go to the lower index.
  std::vector<std::size_t> Step(const std::vector<float>& gradient, const MomentumOptions& options,
                                std::size_t k) {
    u.resize(gradient.size());
    v.resize(gradient.size());
    const auto m = static_cast<float>(options.momentum);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      u[i] = options.nesterov ? m * (u[i] + gradient[i]) : m * u[i] + gradient[i];
      v[i] += options.nesterov ? u[i] + gradient[i] : u[i];
    }
    std::vector<std::size_t> order(v.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return std::abs(v[a]) > std::abs(v[b]);
    });
    order.resize(k);
    return order;
  }
  void Sent(std::size_t i, const MomentumOptions& options) {
    v[i] = 0;
    if (options.masking) u[i] = 0;
  }
};

class Momentum : public ::testing::TestWithParam<std::tuple<MomentumOptions, Device>> {};

TEST_P(Momentum, IsCorrectedAsThePaperSays) {
  MomentumOptions options = std::get<0>(GetParam());
  options.momentum = 0.5;  // sums of halves are exact in any order
  const auto results = RunWith(std::get<1>(GetParam()), [&](LiveConfig& config) {
    config.feedback = {FeedbackKind::kMomentum, options};
  });
  std::vector<std::vector<Reference>> references(kWorkers,
                                                 std::vector<Reference>(kTensorSizes.size()));
  for (int step = 0; step < kLiveSteps; ++step) {
    std::vector<float> expected;
    for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
      const std::size_t n = kTensorSizes[t];
      std::vector<float> sum(n);
      for (int rank = 0; rank < kWorkers; ++rank) {
        Reference& reference = references[static_cast<std::size_t>(rank)][t];
        const auto sent =
            reference.Step(IntegerGradient(rank, step, t), options, KeptCount(n, kDensity));
        for (const std::size_t i : sent) {
          sum[i] += reference.v[i];
          reference.Sent(i, options);
        }
      }
      for (const float value : sum) expected.push_back(value * (1.0f / kWorkers));
    }
    EXPECT_EQ(results[0].averaged[static_cast<std::size_t>(step)], expected) << "step " << step;
  }
  for (const RankResult& rank : results) EXPECT_EQ(rank.mass_violations, 0u);
}

INSTANTIATE_TEST_SUITE_P(Options, Momentum,
                         ::testing::Combine(::testing::Values(MomentumOptions{},
                                                              MomentumOptions{0.5, true, true},
                                                              MomentumOptions{0.5, false, false}),
                                            ::testing::Values(Device{}, kEmulated)),
                         [](const auto& instance) {
                           const MomentumOptions& options = std::get<0>(instance.param);
                           return std::string(options.nesterov  ? "nesterov_"
                                              : options.masking ? "plain_"
                                                                : "unmasked_") +
                                  NameOf(std::get<1>(instance.param));
                         });

TEST_P(LiveFeedback, ClippedMomentumIsThatOfClippedGradients) {
  constexpr double kClip = 100;
  const auto clipped = [](int rank, int step, std::size_t tensor) {
    auto gradient = IntegerGradient(rank, step, tensor);
    ThreadPool pool(1);
    const float scale = ClipFactor(gradient, kClip, pool);
    for (float& value : gradient) value *= scale;
    return gradient;
  };
  const auto run = [](double clip, const Gradients& gradients) {
    return RunWith(
        [&](LiveConfig& config) {
          config.feedback.kind = FeedbackKind::kMomentum;
          config.feedback.clip = clip;
        },
        gradients);
  };
  const auto inside = run(kClip, IntegerGradient);
  const auto before = run(0, clipped);
  EXPECT_EQ(inside[0].averaged, before[0].averaged);
  EXPECT_EQ(inside[0].residual, before[0].residual);
  EXPECT_NE(inside[0].averaged, run(0, IntegerGradient)[0].averaged);
}

TEST_P(LiveFeedback, TensorsWithoutItLoseWhatIsNotSent) {
  constexpr std::size_t kWithout = 4;
  const auto results = RunWith([](LiveConfig& config) {
    config.layout = {};
    for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
      config.layout.Add("t", {}, kTensorSizes[t], false, t != kWithout);
    }
  });
  const auto lost = LostMass(results);
  std::size_t begin = 0;
  for (std::size_t t = 0; t < kWithout; ++t) begin += kTensorSizes[t];
  const std::size_t end = begin + kTensorSizes[kWithout];
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const bool without = i >= begin && i < end;
    if (!without) {
      ASSERT_EQ(lost[i], 0.0);
    }
    ASSERT_TRUE(!without || results[0].residual[i] == 0.0f);
  }
  EXPECT_TRUE(std::any_of(lost.begin() + static_cast<long>(begin),
                          lost.begin() + static_cast<long>(end),
                          [](double value) { return value != 0; }));
}

// Tensors 0, 2 and 4 are sent whole, the others are not.
Plan WithWholeTensors() {
  Plan plan = Configure({}).plan;
  plan.tensors.assign(kTensorSizes.size(), {kDensity, false, false});
  for (const std::size_t t : {0u, 2u, 4u}) plan.tensors[t].density = 1;
  return plan;
}

TEST_P(LiveFeedback, WholeTensorsTravelWithoutIndicesAsTheyDoWithThem) {
  const auto run = [](const char* quantizer, PayloadCoding coding) {
    return RunWith([&](LiveConfig& config) {
      config.plan = WithWholeTensors();
      config.coding = coding;
      if (quantizer != nullptr) config.dense_quantizer = FindQuantizer(quantizer).make({}, 1);
    });
  };
  const auto indexed = run(nullptr, {});
  for (const PayloadCoding coding :
       {PayloadCoding{}, PayloadCoding{ValueCoding::kF16, IndexCoding::kDelta}}) {
    const auto whole = run("fp32", coding);
    ExpectSound(whole);
    if (coding == PayloadCoding{}) {
      EXPECT_EQ(whole[0].averaged, indexed[0].averaged);
      EXPECT_EQ(whole[0].residual, indexed[0].residual);
      const std::size_t saved =
          sizeof(std::uint32_t) * (kTensorSizes[0] + kTensorSizes[2] + kTensorSizes[4]);
      EXPECT_EQ(whole[0].records[0].payload_bytes + saved, indexed[0].records[0].payload_bytes);
    }
    EXPECT_EQ(whole[0].records[0].selected, indexed[0].records[0].selected);
  }
  const auto halves = run("fp16", {});  // keeps integers up to 100 exactly
  EXPECT_EQ(halves[0].averaged, indexed[0].averaged);
}

TEST_P(LiveFeedback, IsKeptByAnotherPlan) {
  const auto results = RunWith({}, IntegerGradient, [](LiveEngine& engine, int step) {
    if (step == 1) engine.Replan({{Unit{0, 8, Sparsified::kBehind, kDensity}}});
    if (step == 2) engine.Replan(WithWholeTensors());
    if (step == 3) {
      Plan plan = WithWholeTensors();
      plan.tensors[1].offloaded = plan.tensors[7].offloaded = true;
      plan.tensors[0].reduced = plan.tensors[4].reduced = true;
      engine.Replan(plan);
    }
  });
  ExpectSound(results);
  EXPECT_EQ(results[0].records[1].exchanges, 1u);
  EXPECT_EQ(results[0].records[3].exchanges, 3u);  // an all-reduce before the first all-gather
}

TEST_P(LiveFeedback, AnotherDensityHoldsFromTheNextStep) {
  const auto results = RunWith({}, IntegerGradient, [](LiveEngine& engine, int step) {
    engine.SetDensity(step == 0 ? 4 : 1);  // 0.2, then 0.05
  });
  std::uint64_t many = 0;
  std::uint64_t few = 0;
  for (const std::size_t n : kTensorSizes) {
    many += KeptCount(n, 4 * kDensity);
    few += KeptCount(n, kDensity);
  }
  EXPECT_EQ(results[0].records[0].selected, many);
  EXPECT_EQ(results[0].records[1].selected, few);
  EXPECT_EQ(LostMass(results), Nothing(results));
}

TEST(Feedback, WarmsTheDensityUp) {
  Feedback feedback;
  feedback.warmup_epochs = 2;
  feedback.epoch_steps = 3;
  // The densities are 0.001^(1/3) and 0.001^(2/3), then 0.001.
  EXPECT_NEAR(feedback.DensityFactor(0, 0.001), 100, 1e-9);
  EXPECT_NEAR(feedback.DensityFactor(2, 0.001), 100, 1e-9);
  EXPECT_NEAR(feedback.DensityFactor(3, 0.001), 10, 1e-9);
  EXPECT_EQ(feedback.DensityFactor(6, 0.001), 1);
  EXPECT_EQ(Feedback{}.DensityFactor(0, 0.001), 1);
}

// The gradient is 4, 2 and 1 in every step, and one element is sent. With a halved residual, the
// other sums stay below twice their value, so the 4 is always sent. Without decay, 2 + 2 + 2
// exceeds 4 in the third step.
TEST_P(LiveFeedback, AResidualThatDecaysSumsUpLess) {
  constexpr std::size_t kTensor = 5;
  constexpr std::size_t kOffset = 10 + 1 + 640 + 64 + 9000;
  const auto run = [&](double decay) {
    return RunWith([&](LiveConfig& config) { config.feedback.decay = decay; },
                   [&](int rank, int step, std::size_t tensor) {
                     return tensor == kTensor ? std::vector<float>{4, 2, 1}
                                              : IntegerGradient(rank, step, tensor);
                   },
                   [&](LiveEngine& engine, int) { EXPECT_EQ(engine.KeepsMass(), decay == 1); });
  };
  const auto of_tensor = [&](const std::vector<float>& flat) {
    return std::vector<float>(flat.begin() + kOffset, flat.begin() + kOffset + 3);
  };
  const auto halved = run(0.5);
  const auto kept = run(1);
  for (const RankResult& rank : halved) {
    EXPECT_EQ(of_tensor(rank.averaged[2]), (std::vector<float>{4, 0, 0}));
    EXPECT_EQ(of_tensor(rank.averaged[3]), (std::vector<float>{4, 0, 0}));
    EXPECT_EQ(of_tensor(rank.residual), (std::vector<float>{0, 3.75f, 1.875f}));
    EXPECT_GT(rank.mass_checks, 0u);
    EXPECT_EQ(rank.mass_violations, 0u);  // after the decay a selection loses nothing
    EXPECT_EQ(rank.averaged, halved[0].averaged);
  }
  EXPECT_EQ(of_tensor(kept[0].averaged[2]), (std::vector<float>{0, 6, 0}));
  EXPECT_NE(halved[0].averaged, kept[0].averaged);
  EXPECT_NE(LostMass(halved), Nothing(halved));
}

TEST(Feedback, TakesADecayAboveZeroUpToOne) {
  const auto made = [](double decay) {
    return MakeFeedback("residual", ResolveOptions("feedback residual", FeedbackOptions("residual"),
                                                   {{"decay", decay}}))
        .decay;
  };
  EXPECT_EQ(made(0.9), 0.9);
  EXPECT_EQ(made(1), 1);
  EXPECT_EQ(MakeFeedback("residual", ResolveOptions("r", FeedbackOptions("residual"), {})).decay,
            1);
  for (const double wrong : {0.0, -0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    ExpectError(FailureKind::kConfig,
                {"expected a number in (0, 1]; without a residual it "
                 "is feedback \"none\""},
                [&] { made(wrong); });
  }
  EXPECT_THROW(ResolveOptions("momentum", FeedbackOptions("momentum"), {{"decay", 0.9}}), Error);
}

// Selects each tensor for the residual "local", sends and applies it, then selects it once more for
// each residual of `others`.
class SelectsAgain final : public Strategy {
 public:
  SelectsAgain(double density, std::vector<std::string_view> others)
      : density_(density), others_(std::move(others)) {}
  void StepBegin(Engine&) override { exchanges_.clear(); }
  void GradientReady(Engine& engine, std::size_t tensor) override {
    const Range range = engine.layout().tensor(tensor).range();
    const Handle local = engine.Sparsify({.range = range, .density = density_});
    std::vector<Handle> selections;
    for (const std::string_view other : others_) {
      selections.push_back(
          engine.Sparsify({.range = range, .density = 4 * kDensity, .residual = other}));
    }
    exchanges_.push_back(Send(engine, local));
    for (const Handle selection : selections) Send(engine, selection);
  }
  void BackwardEnd(Engine& engine) override {
    for (const Handle exchange : exchanges_) engine.Apply({.exchange = exchange});
  }

 private:
  static Handle Send(Engine& engine, Handle selection) {
    return engine.Exchange({.pattern = SparseSum{{selection}}});
  }

  double density_;
  std::vector<std::string_view> others_;
  std::vector<Handle> exchanges_;
};

std::vector<RankResult> RunSelectingAgain(Device device, std::vector<std::string_view> others,
                                          double density = kDensity) {
  return RunWith(device, [&](LiveConfig& config) {
    config.strategy = std::make_unique<SelectsAgain>(density, others);
  });
}

TEST_P(LiveFeedback, ASelectionForAnotherResidualLeavesTheFirstAlone) {
  const auto once = RunSelectingAgain(GetParam(), {});
  const auto again = RunSelectingAgain(GetParam(), {"other"});
  const auto other = RunSelectingAgain(GetParam(), {}, 4 * kDensity);
  for (std::size_t rank = 0; rank < once.size(); ++rank) {
    EXPECT_EQ(again[rank].averaged, once[rank].averaged);
    std::vector<float> held = once[rank].residual;  // the sum of the residuals of all names
    for (std::size_t i = 0; i < held.size(); ++i) held[i] += other[rank].residual[i];
    EXPECT_EQ(again[rank].residual, held);
    EXPECT_EQ(again[rank].mass_violations, 0u);
  }
}

TEST_P(LiveFeedback, ASecondSelectionForTheSameResidualIsRefused) {
  ExpectError(FailureKind::kInternal, {"t10 is selected twice"},
              [&] { RunSelectingAgain(GetParam(), {"local"}); });
}

TEST_P(LiveFeedback, TakesWhatACollectiveDropsBackIntoTheResidualsOfItsTensors) {
  const auto results = RunWith([](LiveConfig& config) { config.sparse_collective = Dropping(); });
  EXPECT_EQ(LostMass(results), Nothing(results));
  for (const RankResult& rank : results) EXPECT_EQ(rank.averaged, results[0].averaged);
  const auto applied = std::count_if(results[0].averaged[0].begin(), results[0].averaged[0].end(),
                                     [](float value) { return value != 0; });
  EXPECT_LE(applied, static_cast<long>(2 * kSurvivors));
}

}  // namespace
}  // namespace sparfuse::testing
