// Tests the elements that a collective returns: nothing is lost between residuals, applied sums and
// returned elements.
#include "core/feedback/returned.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/feedback/momentum/momentum.hpp"
#include "core/feedback/residual_store.hpp"
#include "tests/support/communicators/dropping_collective.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr int kSteps = 10;
constexpr std::size_t kNumel = 900;
const std::vector<Range> kParts = {{40, 400}, {500, 823}};  // of the flat gradient
constexpr Range kExchanged = {40, 823};

// One rank's view of the run, per step.
struct Trace {
  std::vector<std::vector<float>> inputs;     // [kNumel] growth of the residual
  std::vector<std::vector<float>> residuals;  // [kNumel] after the step
  std::vector<std::vector<float>> applied;    // [kNumel] P * applied
  std::size_t returned = 0;
  bool velocity_touched = false;
};

struct Setting {
  int ranks;
  bool momentum;
};

class Returned : public ::testing::TestWithParam<Setting> {};

std::vector<float> IntegerGradient(int rank, int step) {
  std::mt19937 random(static_cast<std::uint32_t>(100 * rank + step));
  std::uniform_int_distribution<int> integer(-9, 9);
  std::vector<float> gradient(kNumel);
  for (float& value : gradient) value = static_cast<float>(integer(random));
  return gradient;
}

void RunOneRank(ProgressLoop& loop, bool with_momentum, Trace& trace) {
  const auto ranks = static_cast<std::size_t>(loop.size());
  const auto topk = MakeSparsifier("topk");
  ThreadPool pool(1);
  Workspace workspace;
  SelectCounters counters;
  ResidualStore residuals(kNumel);
  // Halves and integers, so that every sum of the run is exact in a float.
  MomentumCorrection momentum(kNumel, {.momentum = 0.5});
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> gradient = IntegerGradient(loop.rank(), step);
    std::vector<float>& input = trace.inputs.emplace_back(kNumel, 0.0f);
    Elements payload;
    for (const Range& part : kParts) {
      std::span<const float> grown(gradient.data() + part.begin, part.size());
      if (with_momentum) grown = momentum.Advance("local", part, grown, 1.0f, pool);
      std::copy(grown.begin(), grown.end(), input.begin() + static_cast<long>(part.begin));
      std::vector<std::uint32_t> indices(part.size());
      std::vector<float> values(part.size());
      Slot slot{
          {indices.data(), part.size(), {}}, {values.data(), part.size(), {}}, part.size(), 0};
      topk->Select({&pool, &workspace, &counters, {}},
                   {{grown.data(), grown.size(), {}}, residuals.Get("local", part)}, 0.04,
                   {0, "a", {}, static_cast<std::uint64_t>(step)}, nullptr, slot);
      indices.resize(slot.count);
      if (with_momentum) momentum.Sent("local", part, indices);
      for (std::size_t i = 0; i < slot.count; ++i) {
        payload.Add(static_cast<std::uint32_t>(indices[i] + part.begin - kExchanged.begin),
                    values[i]);
      }
    }

    const std::size_t capacity = payload.indices.size();  // equal on all ranks: top-k
    Buffer<float> own(2 * capacity);
    Buffer<float> gathered(2 * capacity * ranks);
    const auto own_bytes = std::as_writable_bytes(own.host());
    payload.WriteTo(own_bytes.data());
    ExchangeBuffers buffers;
    buffers.own = own_bytes;
    buffers.gathered = std::as_writable_bytes(gathered.host());
    buffers.capacity_bytes = own_bytes.size();
    loop.RunBlocking([&](Communicator& world) { return Dropping()->Run(world, buffers, 0); });

    const SparsePayload back = ViewSparsePayload(buffers.returned);
    std::size_t added = 0;
    for (const Range& part : kParts) {
      const std::span<const float> velocity = momentum.Velocity("local", part);
      const std::vector<float> before(velocity.begin(), velocity.end());
      added += AddReturned(back, {part.begin - kExchanged.begin, part.end - kExchanged.begin},
                           residuals.Get("local", part).host());
      if (!std::equal(before.begin(), before.end(), velocity.begin())) {
        trace.velocity_touched = true;
      }
    }
    EXPECT_EQ(added, back.indices.size());
    trace.returned += added;

    std::vector<float>& applied = trace.applied.emplace_back(kNumel, 0.0f);
    const SparsePayload survivors = ViewSparsePayload(buffers.payloads.at(0));
    for (std::size_t i = 0; i < survivors.indices.size(); ++i) {
      applied.at(survivors.indices[i] + kExchanged.begin) = survivors.values[i];
    }
    const auto all = residuals.Get("local", {0, kNumel}).host();
    trace.residuals.emplace_back(all.begin(), all.end());
  }
}

TEST_P(Returned, ResidualsAndWhatWasAppliedSumUpToTheInputs) {
  const auto [ranks, with_momentum] = GetParam();
  std::vector<Trace> traces(static_cast<std::size_t>(ranks));
  RunRanks(ranks, 2, std::chrono::milliseconds(60'000), [&](ProgressLoop& loop) {
    RunOneRank(loop, with_momentum, traces[static_cast<std::size_t>(loop.rank())]);
  });
  std::vector<double> inputs(kNumel, 0.0);   // of all ranks and steps
  std::vector<double> applied(kNumel, 0.0);  // P times
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::size_t survivors = 0;
    for (std::size_t i = 0; i < kNumel; ++i) {
      double residuals = 0;
      for (const Trace& trace : traces) {
        inputs[i] += static_cast<double>(trace.inputs[step][i]);
        residuals += static_cast<double>(trace.residuals[step][i]);
        ASSERT_EQ(trace.applied[step][i], traces[0].applied[step][i]);
      }
      applied[i] += static_cast<double>(traces[0].applied[step][i]);
      survivors += traces[0].applied[step][i] != 0 ? 1 : 0;
      ASSERT_EQ(residuals + applied[i], inputs[i]) << "step " << step << " element " << i;
    }
    EXPECT_GT(survivors, 0u);
    EXPECT_LE(survivors, kSurvivors);
  }
  for (const Trace& trace : traces) {
    EXPECT_GT(trace.returned, 0u);
    EXPECT_FALSE(trace.velocity_touched);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Returned,
                         ::testing::Values(Setting{1, false}, Setting{2, false}, Setting{3, false},
                                           Setting{4, false}, Setting{1, true}, Setting{3, true}),
                         [](const auto& instance) {
                           return std::to_string(instance.param.ranks) +
                                  (instance.param.momentum ? "_momentum" : "_residual");
                         });

TEST(AddReturned, AddsToItsPartAndCountsWhatLiesInIt) {
  const std::vector<std::uint32_t> indices = {0, 2, 3, 6, 7};
  const std::vector<float> values = {1, 2, 4, 8, 16};
  const SparsePayload returned{indices, values};
  std::vector<float> residual = {10, 20, 30, 40};
  EXPECT_EQ(AddReturned(returned, {2, 6}, residual), 2u);
  EXPECT_EQ(residual, (std::vector<float>{12, 24, 30, 40}));
  EXPECT_EQ(AddReturned(returned, {6, 9}, {}), 2u);  // without error feedback
  EXPECT_EQ(AddReturned(returned, {8, 9}, {}), 0u);
  EXPECT_EQ(AddReturned({}, {2, 6}, residual), 0u);
  EXPECT_EQ(residual, (std::vector<float>{12, 24, 30, 40}));
}

TEST(AddReturned, RefusesIndicesThatDoNotIncrease) {
  const std::vector<float> values = {1, 2, 4};
  std::vector<float> residual(4, 0.0f);
  for (const std::vector<std::uint32_t>& indices :
       std::vector<std::vector<std::uint32_t>>{{4, 4, 5}, {5, 4, 6}, {6, 5, 0}}) {
    ExpectError(FailureKind::kComm, {}, [&] {
      (void)AddReturned({indices, values}, {4, 8}, residual);
    });
  }
}

}  // namespace
}  // namespace sparfuse::testing
