// Compares the inner optimizer's state after a synchronisation with a plain loop over ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/errors.hpp"
#include "tests/support/methods/inner_states.hpp"

namespace sparfuse::testing {
namespace {

struct PlainRank {
  Floats w, sent;
  std::vector<Floats> state;
  std::vector<int> since;
};

// The mean over ranks of an element, added up in their order.
template <class Of>
float MeanOverRanks(const std::vector<PlainRank>& ranks, const Of& of) {
  float sum = 0;
  for (const PlainRank& rank : ranks) sum += of(rank);
  return sum * (1.0f / static_cast<float>(ranks.size()));
}

// The ranks after all steps, of local steps whose outer rule is the average of the parameters.
std::vector<PlainRank> TrainPlainly(const InnerCase& which, const Windows& windows) {
  const GradientLayout layout = windows.Layout();
  std::vector<int> fragment_of(layout.numel());
  for (const Unit& unit : windows.MakePlan().units) {
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const Range range = layout.tensor(t).range();
      for (std::size_t i = range.begin; i < range.end; ++i) fragment_of[i] = unit.date;
    }
  }
  std::vector<PlainRank> ranks(static_cast<std::size_t>(windows.workers));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].w = ranks[r].sent = windows.start(static_cast<int>(r));
    ranks[r].state.assign(which.arrays, Floats(layout.numel()));
    ranks[r].since.assign(layout.numel(), 0);
  }
  const Floats start = ranks[0].w;
  const bool lags = which.delay == which.every;
  const int period = which.every / which.fragments;
  const auto due = [&](int step) {
    return step % period == 0 ? std::optional((step / period - 1) % which.fragments) : std::nullopt;
  };
  for (int t = 1; t <= windows.steps; ++t) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      PlainRank& rank = ranks[r];
      const Floats gradient = windows.gradient(static_cast<int>(r), rank.w, t);
      windows.with_state(rank.w, rank.state, gradient, t, rank.since);
    }
    const auto sent = due(lags ? t : t + which.delay);
    const auto received = lags && t <= which.every ? std::nullopt : due(t);
    std::vector<PlainRank> now = ranks;
    for (std::size_t i = 0; i < layout.numel(); ++i) {
      const bool is_sent = sent == fragment_of[i];
      if (received == fragment_of[i]) {
        const bool at_once = which.delay == 0;
        const float anchor = MeanOverRanks(
            ranks, [&](const PlainRank& rank) { return at_once ? rank.w[i] : rank.sent[i]; });
        for (PlainRank& rank : now) {
          const auto mix = static_cast<float>(which.mix);
          rank.w[i] = mix == 0 ? anchor : anchor + mix * (rank.w[i] - anchor);
          if (which.inner_state == std::string("reset")) rank.since[i] = t;
          for (std::size_t k = 0; k < which.arrays; ++k) {
            if (which.inner_state == std::string("reset")) rank.state[k][i] = 0;
            if (which.inner_state == std::string("average"))
              rank.state[k][i] =
                  MeanOverRanks(ranks, [&](const PlainRank& each) { return each.state[k][i]; });
          }
        }
      } else if (lags && t == which.every) {
        for (PlainRank& rank : now) rank.w[i] = start[i];
      }
      for (std::size_t r = 0; is_sent && r < ranks.size(); ++r) now[r].sent[i] = ranks[r].w[i];
    }
    ranks = std::move(now);
  }
  return ranks;
}

void ExpectAlike(const Floats& got, const Floats& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << what << " " << i;
}

class InnerStates : public ::testing::TestWithParam<std::tuple<InnerCase, int>> {};

TEST_P(InnerStates, AreWhatAPlainLoopMakesOfThem) {
  const auto& [which, workers] = GetParam();
  const Windows windows = InnerWindows(which, workers);
  const auto ranks = Train(windows);
  const auto expected = TrainPlainly(which, windows);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    SCOPED_TRACE(r);
    const Floats& w = ranks[r].parameters.back();
    const std::vector<Floats>& state = ranks[r].inner.back();
    if (workers <= 2) {  // sums of two do not depend on their order
      EXPECT_EQ(w, expected[r].w);
      EXPECT_EQ(state, expected[r].state);
      continue;
    }
    ExpectAlike(w, expected[r].w, "parameters");
    for (std::size_t k = 0; k < which.arrays; ++k)
      ExpectAlike(state[k], expected[r].state[k], "state");
  }
}

// After a synchronisation of the whole model, averaged states are equal on all ranks, bit for bit,
// and others are not.
TEST(InnerState, IsEqualOnAllRanksIfAveraged) {
  for (const InnerCase& which : InnerCases()) {
    if (which.fragments > 1 || which.delay > 0) continue;
    SCOPED_TRACE(which.name);
    const auto ranks = Train(InnerWindows(which, 3));
    const auto at = static_cast<std::size_t>(which.every) - 1;
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      EXPECT_EQ(ranks[r].inner[at] == ranks[0].inner[at], which.inner_state != std::string("keep"));
      EXPECT_EQ(ranks[r].parameters[at], ranks[0].parameters[at]);
    }
  }
}

// Around a ring of two, a rank sends every element once; of more, 2 (P - 1) / P times.
TEST_P(InnerStates, AreCountedInTheBytesOfTheirSteps) {
  const auto& [which, workers] = GetParam();
  InnerCase kept = which;
  kept.inner_state = "keep";
  const auto ranks = Train(InnerWindows(which, workers));
  const auto plain = Train(InnerWindows(kept, workers));
  const bool averages = which.inner_state == std::string("average");
  const std::uint64_t times = averages ? 1 + which.arrays : 1;
  std::uint64_t exchanges = 0;
  for (std::size_t t = 0; t < ranks[0].records.size(); ++t) {
    SCOPED_TRACE(t);
    const StepRecord& of = ranks[0].records[t];
    const StepRecord& without = plain[0].records[t];
    EXPECT_EQ(of.sent_bytes, times * without.sent_bytes);
    EXPECT_EQ(of.received_bytes, times * without.received_bytes);
    EXPECT_EQ(of.payload_bytes, times * without.payload_bytes);
    EXPECT_EQ(of.exchanges, times * without.exchanges);
    EXPECT_EQ(of.selected, without.selected);  // the method's own elements
    exchanges += of.exchanges;
  }
  EXPECT_GT(exchanges, 0u);
  EXPECT_EQ(ranks[0].finish.exchanges, plain[0].finish.exchanges);  // no update follows
  // The state of a fragment's parameters is sent from memory of its own.
  const std::size_t anchors = sizeof(float) * 2789;
  const std::size_t fragment = plain[0].memory - anchors;
  EXPECT_EQ(ranks[0].memory, anchors + times * fragment);
}

INSTANTIATE_TEST_SUITE_P(All, InnerStates,
                         ::testing::Combine(::testing::ValuesIn(InnerCases()),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

TEST(InnerState, OfParametersThatBeginAnewIsToldByTensors) {
  const auto ranks = Train(InnerWindows({"", "reset", 1, 4, 2, 0}, 1));
  std::vector<std::size_t> all = ranks[0].renewed[1];
  EXPECT_FALSE(all.empty());
  all.insert(all.end(), ranks[0].renewed[3].begin(), ranks[0].renewed[3].end());
  std::ranges::sort(all);
  EXPECT_EQ(all, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(ranks[0].renewed[0].empty());
  EXPECT_TRUE(ranks[0].renewed[2].empty());
}

TEST(InnerState, ThatIsNotFiniteNamesItsTensor) {
  Windows windows = InnerWindows({"", "average", 1, 2, 1, 0}, 1);
  windows.with_state = [of = MomentumInside()](Floats& w, std::vector<Floats>& state,
                                               const Floats& g, int t,
                                               const std::vector<int>& since) {
    of(w, state, g, t, since);
    if (t == 2) state[0][700] = std::numeric_limits<float>::infinity();
  };
  ExpectError(FailureKind::kNumeric, {"what the inner optimizer keeps of", "in window 0"},
              [&] { Train(windows); });
}

TEST(InnerState, IsRefusedWhereItHasNoMeaning) {
  Windows windows = InnerWindows({"", "average", 1, 2, 1, 0}, 1);
  windows.arrays = 0;
  windows.with_state = {};
  ExpectError(FailureKind::kConfig, {"inner_state", "expected \"keep\""}, [&] { Train(windows); });
  const auto why = [](Options options) {
    options["inner_state"] = std::string("average");
    Windows refused;
    refused.strategy = std::move(options);
    return ErrorOf([&] { LocalStepsOf(refused.Resolved()); });
  };
  EXPECT_SAYS(why({{"mix", 1.0}}), "inner_state = average with mix = 1");
  EXPECT_SAYS(why({{"outer", std::string("elastic")}, {"outer_rate", .25}}),
              "inner_state = average with outer = elastic");
}

}  // namespace
}  // namespace sparfuse::testing
