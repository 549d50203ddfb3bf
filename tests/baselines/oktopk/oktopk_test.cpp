// Tests Ok-Topk's all-reduce by hand and over many steps, and its handling of sums that are not
// finite.
#include "baselines/oktopk/oktopk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/payload/sums.hpp"
#include "tests/baselines/oktopk/oktopk_cases.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::testing {
namespace {

// The outcomes of the last of `steps`, by rank.
std::vector<Outcome> LastOf(const std::vector<Sent>& steps) {
  return RunExchanges(*OkTopk(), steps).back();
}

// --- steps by hand ---

// Ranks vote for 1 and 6: the regions are [0, 3) and [3, 8). Sums 5, 2, -5 and 4 at 0, 1, 6 and 7.
const Sent kFirst = {"", 8, 2, {{{0, 5}, {1, 1}, {6, -2}}, {{1, 1}, {6, -3}, {7, 4}}}};

TEST(OkTopk, AppliesTheKLargestSumsAndReturnsTheOthers) {
  const auto outcomes = LastOf({kFirst});
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(NonZeros(outcome.applied), (SparseVector{{0, 5}, {6, -5}}));
    EXPECT_EQ(outcome.summed, 2u);
    // A vote or a mean of 8 bytes, an element of the other region, a count, two sums.
    EXPECT_EQ(outcome.traffic, (Traffic{4, 4, 40, 40}));
  }
  EXPECT_EQ(NonZeros(outcomes[0].returned), (SparseVector{{1, 1}}));
  EXPECT_EQ(NonZeros(outcomes[1].returned), (SparseVector{{1, 1}, {7, 4}}));
}

TEST(OkTopk, AppliesWhatReachesTheThresholdInStepsBetween) {
  // The threshold is 5 after the first step. One sum reaches it instead of two: it falls to 4.9603.
  const Sent second = {"", 8, 2, {{{0, 3}, {1, 4}}, {{0, 3}, {6, 4.9f}}}};
  const Sent third = {"", 8, 2, {{{0, 4.97f}}, {{6, 4.95f}}}};
  const auto steps = RunExchanges(*OkTopk(), {kFirst, second, third});
  for (const Outcome& outcome : steps[1]) {
    EXPECT_EQ(NonZeros(outcome.applied), (SparseVector{{0, 6}}));
    // Rank 1 alone sends an element of the other region; then a count; then one sum of rank 0.
    EXPECT_EQ(outcome.traffic.messages_sent, 3u);
  }
  EXPECT_EQ(steps[1][0].traffic.bytes_sent, 0 + 8 + kBytes);
  EXPECT_EQ(steps[1][1].traffic.bytes_sent, kBytes + 8 + 0);
  EXPECT_EQ(NonZeros(steps[1][0].returned), (SparseVector{{1, 4}}));
  EXPECT_EQ(NonZeros(steps[1][1].returned), (SparseVector{{6, 4.9f}}));
  EXPECT_EQ(NonZeros(steps[2][0].applied), (SparseVector{{0, 4.97f}}));
}

TEST(OkTopk, RaisesTheThresholdWhereManyReachIt) {
  // Three sums instead of two reach 5, and the threshold becomes 5.04.
  const Sent second = {"", 8, 2, {{{0, 6}, {1, 6}}, {{6, 6}}}};
  const Sent third = {"", 8, 2, {{{0, 5.03f}, {1, 5.05f}}, {}}};
  const auto steps = RunExchanges(*OkTopk(), {kFirst, second, third});
  EXPECT_EQ(steps[1][0].summed, 3u);
  EXPECT_EQ(NonZeros(steps[2][1].applied), (SparseVector{{1, 5.05f}}));
}

TEST(OkTopk, TakesTheFirstOfEqualSums) {
  const Sent equal = {"", 9, 3, {{{1, 2}, {4, -2}, {8, 2}}, {{2, 2}, {6, 2}}}};
  for (const Outcome& outcome : LastOf({equal})) {
    EXPECT_EQ(NonZeros(outcome.applied), (SparseVector{{1, 2}, {2, 2}, {4, -2}}));
  }
}

TEST(OkTopk, ReturnsWhatCancels) {
  const Sent cancels = {"", 9, 3, {{{1, 2}, {4, 3}}, {{1, -2}, {4, 1}}}};
  const auto steps = RunExchanges(*OkTopk(), {cancels, cancels});
  for (const auto& outcomes : steps) {
    EXPECT_EQ(outcomes[0].summed, 1u);  // fewer than k: the next step scans all sums, too
    EXPECT_EQ(outcomes[0].seen[0] & 2, 2u);
    EXPECT_EQ(NonZeros(outcomes[0].returned), (SparseVector{{1, 2}}));
    EXPECT_EQ(NonZeros(outcomes[1].returned), (SparseVector{{1, -2}}));
  }
}

TEST(OkTopk, AddsInRankOrder) {
  // In another order the 1, or both the 1 and the 2, would be lost.
  const Sent sent = {"", 4, 1, {{{2, 1e8f}}, {{2, -1e8f}}, {{2, 1}}, {{2, 2}}}};
  for (const Outcome& outcome : LastOf({sent})) {
    EXPECT_EQ(NonZeros(outcome.applied), (SparseVector{{2, 3}}));
  }
}

TEST(OkTopk, LooksAtAllSumsForAnotherK) {
  Sent other = kFirst;
  other.kept = 3;
  const auto steps = RunExchanges(*OkTopk(), {kFirst, kFirst, other});
  EXPECT_EQ(NonZeros(steps[1][0].applied), (SparseVector{{0, 5}, {6, -5}}));
  EXPECT_EQ(NonZeros(steps[2][0].applied), (SparseVector{{0, 5}, {6, -5}, {7, 4}}));
}

TEST(OkTopk, WorksWithoutAState) {
  ExchangeBuffers buffers;
  RunRanks(1, 1, kExchangeDeadline, [&](ProgressLoop& loop) {
    Buffer<float> own(6);
    const std::vector<std::byte> payload = PayloadOf({{3, 1}, {4, 2}, {9, -3}});
    std::memcpy(own.data(), payload.data(), payload.size());
    Buffer<float> gathered(6);
    const auto collective = OkTopk();
    for (std::uint64_t step = 0; step < 2; ++step) {
      buffers = {};
      buffers.shape = {10, 2, step};
      buffers.own = std::as_bytes(own.host());
      buffers.gathered = std::as_writable_bytes(gathered.host());
      buffers.capacity_bytes = 24;
      loop.RunBlocking([&](Communicator& world) { return collective->Run(world, buffers, 32); });
      ASSERT_EQ(buffers.payloads.size(), 1u);
      const SparsePayload applied = ViewSparsePayload(buffers.payloads[0]);
      EXPECT_EQ(std::vector(applied.indices.begin(), applied.indices.end()),
                (std::vector<std::uint32_t>{4, 9}));
      EXPECT_EQ(ViewSparsePayload(buffers.returned).indices[0], 3u);
    }
  });
}

// --- many steps ---

struct Trained {
  Outcome outcome;
  std::size_t selected = 0;
  std::vector<float> residual;
};
using Gradient = std::function<std::vector<float>(std::size_t rank, std::size_t step)>;

// Trains with a residual, like a trial: every rank sends the k largest elements of residual +
// gradient. The sent and the returned elements change the residual. Returns [step][rank].
std::vector<std::vector<Trained>> Train(const Collective& collective, std::size_t ranks,
                                        std::size_t elements, std::size_t k, std::size_t steps,
                                        const Gradient& gradient_of) {
  std::vector<std::vector<Trained>> trained(steps, std::vector<Trained>(ranks));
  RunRanks(static_cast<int>(ranks), 1, kExchangeDeadline, [&](ProgressLoop& loop) {
    const auto rank = static_cast<std::size_t>(loop.rank());
    ExchangeBuffers buffers;
    buffers.capacity_bytes = k * kBytes;
    Buffer<float> gathered(ranks * k * 2);
    buffers.gathered = std::as_writable_bytes(gathered.host());
    const auto state = collective.MakeState({elements, k, 0}, {static_cast<int>(ranks), 1});
    buffers.state = state.get();
    std::vector<float> residual(elements);
    std::vector<std::uint32_t> all(elements);
    for (std::uint32_t i = 0; i < elements; ++i) all[i] = i;
    SparseSums own, rest;
    for (std::size_t step = 0; step < steps; ++step) {
      const std::vector<float> gradient = gradient_of(rank, step);
      for (std::size_t i = 0; i < elements; ++i) residual[i] += gradient[i];
      KeepLargest({all, residual}, k, own, rest);
      for (const std::uint32_t index : own.indices) residual[index] = 0;
      Buffer<float> payload(2 * k);
      buffers.own = own.WriteTo(std::as_writable_bytes(payload.host()));
      buffers.shape = {elements, k, step};
      buffers.payloads.clear();
      buffers.returned.clear();
      buffers.seen.clear();
      Trained& here = trained[step][rank];
      loop.RunBlocking([&](Communicator& world) -> Task {
        const Traffic before = Total(world.traffic());
        co_await collective.Run(world, buffers, 32);
        here.outcome.traffic = Total(world.traffic()) - before;
      });
      here.outcome.applied.assign(elements, 0);
      for (const auto sums : buffers.payloads) {
        AddTo(here.outcome.applied, sums);
        here.outcome.summed += sums.size() / kBytes;
      }
      AddTo(residual, buffers.returned);
      here.outcome.seen = buffers.seen;
      here.selected = own.size();
      here.residual = residual;
    }
  });
  return trained;
}

std::mt19937 RandomOf(std::size_t rank, std::size_t step) {
  return std::mt19937(static_cast<unsigned>(7919 * step + rank + 1));
}

// 70 steps cross both periods. The values are integers, so that sums are exact in any order.
TEST(OkTopk, KeepsMassOverManyStepsOnAnyNumberOfRanks) {
  constexpr std::size_t kElements = 300;
  constexpr std::size_t kSteps = 70;
  const Gradient gradient = [](std::size_t rank, std::size_t step) {
    std::mt19937 random = RandomOf(rank, step);
    std::vector<float> values(kElements);
    for (float& value : values) value = static_cast<float>(random() % 41) - 20;
    return values;
  };
  const auto collective = OkTopk();
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    SCOPED_TRACE(ranks);
    const auto steps = Train(*collective, ranks, kElements, 12, kSteps, gradient);
    std::vector<float> sum(kElements), applied(kElements);
    for (std::size_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(step);
      std::vector<float> left(kElements);
      ExchangeSizes sizes{{kElements, 12, step}, {}, {}};
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Trained& here = steps[step][rank];
        const std::vector<float> given = gradient(rank, step);
        for (std::size_t i = 0; i < kElements; ++i) {
          sum[i] += given[i];
          left[i] += here.residual[i];
        }
        ASSERT_EQ(here.outcome.applied, steps[step][0].outcome.applied);
        EXPECT_EQ(here.outcome.seen[0], (step % 64 == 0 ? 1u : 0u) + (step % 32 == 0 ? 2u : 0u));
        sizes.payload_bytes.push_back(here.selected * kBytes);
        sizes.seen.push_back(here.outcome.seen);
      }
      for (std::size_t i = 0; i < kElements; ++i) {
        applied[i] += steps[step][0].outcome.applied[i];
        ASSERT_EQ(applied[i] + left[i], sum[i]) << "element " << i;
      }
      const RoundPlan plan = collective->Rounds(sizes, {static_cast<int>(ranks), 1});
      EXPECT_EQ(plan.sums, steps[step][0].outcome.summed);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(plan.per_rank[rank], steps[step][rank].outcome.traffic);
      }
    }
  }
}

TEST(OkTopk, GivesTheExactTopKWhereRanksAgree) {
  constexpr std::size_t kElements = 500;
  std::mt19937 random(5);
  for (const std::size_t ranks : {2u, 3u, 8u}) {
    std::vector<Sent> steps;
    for (int step = 0; step < 3; ++step) {
      Sent sent{"", kElements, 20, {}};
      SparseVector own;
      while (own.size() < 60) {
        own[static_cast<std::uint32_t>(random() % kElements)] =
            static_cast<float>(1 + random() % 100'000);
      }
      // Later steps reach the first step's threshold with the same magnitudes at other indices.
      if (step > 0) {
        std::vector<float> magnitudes;
        for (const auto& [index, value] : steps[0].by_rank[0]) magnitudes.push_back(value);
        std::shuffle(magnitudes.begin(), magnitudes.end(), random);
        std::size_t i = 0;
        for (auto& [index, value] : own) value = random() % 2 ? magnitudes[i++] : -magnitudes[i++];
      }
      sent.by_rank.assign(ranks, own);
      steps.push_back(std::move(sent));
    }
    const auto outcomes = RunExchanges(*OkTopk(), steps);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      std::vector<std::pair<float, std::uint32_t>> ordered;
      for (const auto& [index, value] : steps[step].by_rank[0]) {
        ordered.emplace_back(-std::fabs(value), index);
      }
      std::sort(ordered.begin(), ordered.end());
      SparseVector expected;
      for (std::size_t i = 0; i < 20; ++i) {
        const std::uint32_t index = ordered[i].second;
        expected[index] = static_cast<float>(ranks) * steps[step].by_rank[0].at(index);
      }
      EXPECT_EQ(NonZeros(outcomes[step][0].applied), expected) << ranks << " ranks, step " << step;
    }
  }
}

// Ranks share most of their gradients, which drift. Before residuals have grown, the first step's
// threshold is too low, and it rises by 0.8 % a step.
TEST(OkTopk, StaysInItsBandOnceResidualsHaveGrown) {
  constexpr std::size_t kElements = 5000;
  constexpr std::size_t kKept = 500;
  constexpr std::size_t kSteps = 90;
  std::vector<std::vector<float>> shared;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> now(kElements), scale(kElements);
  for (float& value : scale) value = std::exp(normal(random));
  for (float& value : now) value = normal(random);
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (float& value : now) value = 0.8f * value + 0.6f * normal(random);
    shared.push_back(now);
    for (std::size_t i = 0; i < kElements; ++i) shared.back()[i] *= scale[i];
  }
  const Gradient gradient = [&](std::size_t rank, std::size_t step) {
    std::mt19937 own = RandomOf(rank, step);
    std::normal_distribution<float> noise(0, 0.1f);
    std::vector<float> values = shared[step];
    for (std::size_t i = 0; i < kElements; ++i) values[i] += scale[i] * noise(own);
    return values;
  };
  const auto steps = Train(*OkTopk(), 8, kElements, kKept, kSteps, gradient);
  double first_most = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const double applied = static_cast<double>(steps[step][0].outcome.summed) / kKept;
    if (step % 32 == 0) {
      EXPECT_EQ(applied, 1) << "step " << step;
    }
    if (step < 32) first_most = std::max(first_most, applied);
    if (step < 40) continue;
    EXPECT_GE(applied, 2.0 / 3) << "step " << step;
    EXPECT_LE(applied, 4.0 / 3) << "step " << step;
  }
  EXPECT_GT(first_most, 4.0 / 3);
}

TEST(OkTopk, GivesEqualBitsWithAndWithoutBalance) {
  constexpr std::size_t kRanks = 8;
  constexpr std::size_t kElements = 4000;
  std::mt19937 random(11);
  std::vector<Sent> steps;
  for (int step = 0; step < 6; ++step) {
    Sent sent{"", kElements, 50, std::vector<SparseVector>(kRanks)};
    for (SparseVector& own : sent.by_rank) {
      while (own.size() < 50) {
        const auto index = static_cast<std::uint32_t>(random() % kElements);
        // After the vote, the large values lie in the first fortieth.
        const float factor = step > 0 && index < kElements / 40 ? 100.0f : 1.0f;
        if (factor == 1.0f && step > 0 && random() % 20 > 0) continue;
        own[index] = factor * (static_cast<float>(random() % 10'000) - 5000.5f) / 7.0f;
      }
    }
    steps.push_back(std::move(sent));
  }
  const auto balanced = RunExchanges(*OkTopk({{"balance", std::string("on")}}), steps);
  const auto direct = RunExchanges(*OkTopk({{"balance", std::string("off")}}), steps);
  const auto chosen = RunExchanges(*OkTopk(), steps);
  const auto never = RunExchanges(*OkTopk({{"balance_above", 8.0}}), steps);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    std::uint64_t most = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(balanced[step][rank].applied, direct[step][rank].applied);
      ASSERT_EQ(balanced[step][rank].returned, direct[step][rank].returned);
      ASSERT_EQ(chosen[step][rank].applied, direct[step][rank].applied);
      most = std::max(most, direct[step][rank].seen[5]);
    }
    const auto messages = [&](const std::vector<std::vector<Outcome>>& outcomes) {
      std::uint64_t sum = 0;
      for (const Outcome& outcome : outcomes[step]) sum += outcome.traffic.messages_sent;
      return sum;
    };
    EXPECT_EQ(messages(never), messages(direct));
    if (step == 0) {
      EXPECT_EQ(messages(balanced), messages(direct));  // all sums are gathered in place
      continue;
    }
    EXPECT_GT(most * kRanks, 4 * direct[step][0].summed);  // a case that the default balances
    EXPECT_GT(messages(balanced), messages(direct));
    EXPECT_EQ(messages(chosen), messages(balanced));
  }
}

TEST(OkTopk, ShowsWhatIsNotFiniteToAllRanks) {
  const float most = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [first, second] : {std::pair{most, most}, std::pair{nan, 1.0f}}) {
    Sent bad = kFirst;
    bad.by_rank[0][2] = first;
    bad.by_rank[1][2] = second;
    for (const auto& steps : {std::vector{bad}, std::vector{kFirst, bad}}) {
      for (const Outcome& outcome : LastOf(steps)) {
        EXPECT_FALSE(std::isfinite(outcome.applied[2]));
      }
    }
  }
}

// --- options ---

TEST(OkTopk, HasTheConstantsOfItsApplications) {
  const CollectiveDescriptor& descriptor = FindCollective("oktopk");
  const auto application = [](const char* name) {
    return Options{{"application", std::string(name)}};
  };
  const Options mixed = {{"application", std::string("bert")},
                         {"global_threshold_period", std::int64_t{5}},
                         {"raise_by", 2.0},
                         {"lower_by", 4.0},
                         {"band_low", 0.5},
                         {"band_high", 3.0}};
  const struct {
    Options given;
    std::uint64_t period;
    std::vector<std::pair<std::size_t, float>> after;  // sums that reach it instead of 100
  } applications[] = {{{}, 32, {{66, 1 / 1.008f}, {67, 1}, {133, 1}, {134, 1.008f}}},
                      {application("lstm"), 32, {{74, 1 / 1.01f}, {126, 1.008f}}},
                      {application("bert"), 128, {{79, 1 / 1.036f}, {80, 1}, {126, 1.025f}}},
                      {mixed, 5, {{50, 1}, {49, 0.25f}, {301, 2}}}};
  for (const auto& [given, period, after] : applications) {
    const auto threshold =
        baselines::ReadGlobalThreshold(ResolveOptions("oktopk", descriptor.options, given));
    EXPECT_EQ(threshold.period, period);
    for (const auto& [reached, factor] : after) {
      EXPECT_EQ(threshold.After(1, reached, 100), factor) << period << ", " << reached;
    }
  }
}

TEST(OkTopk, FollowsItsPeriods) {
  const auto outcomes = RunExchanges(*OkTopk({{"global_threshold_period", std::int64_t{2}},
                                              {"repartition_period", std::int64_t{3}}}),
                                     std::vector<Sent>(7, kFirst));
  std::vector<std::uint64_t> flags;
  for (const auto& step : outcomes) flags.push_back(step[1].seen[0]);
  EXPECT_EQ(flags, (std::vector<std::uint64_t>{3, 0, 2, 1, 2, 0, 3}));
}

TEST(OkTopk, RefusesConstantsThatMakeNoSense) {
  const CollectiveDescriptor& descriptor = FindCollective("oktopk");
  const auto why = [&](const Options& given) {
    return descriptor.refuses(ResolveOptions("oktopk", descriptor.options, given), {4, 1});
  };
  EXPECT_EQ(why({}), "");
  EXPECT_EQ(why({{"band_low", 0.9}, {"band_high", 0.8}}),
            "needs band_low below band_high: they are 0.9 and 0.8");
  EXPECT_EQ(why({{"lower_by", 0.5}}),
            "needs lower_by and raise_by of at least 1: they are 0.5 and 1.008");
  EXPECT_THROW(OkTopk({{"balance", std::string("perhaps")}}), Error);
  EXPECT_THROW(OkTopk({{"bucket_size", std::int64_t{0}}}), Error);
}

}  // namespace
}  // namespace sparfuse::testing
