// Tests every registered collective on every number of ranks. Nothing is lost, all ranks get equal
// bits, and the counted traffic equals the rounds of the recorded sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "baselines/registry.hpp"
#include "core/base/outside_parts.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/methods/named_part.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

// --- dense ---

struct DenseOutcome {
  std::vector<float> sum;
  Traffic traffic;
  std::vector<std::uint64_t> seen;
};

std::vector<DenseOutcome> RunDense(const Collective& collective, int ranks, int ranks_per_node,
                                   std::size_t elements) {
  std::vector<DenseOutcome> outcomes(static_cast<std::size_t>(ranks));
  RunRanks(ranks, ranks_per_node, kExchangeDeadline, [&](ProgressLoop& loop) {
    auto& [data, traffic, seen] = outcomes[static_cast<std::size_t>(loop.rank())];
    data.resize(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      data[i] = static_cast<float>(static_cast<std::size_t>(loop.rank() + 1) * (i % 1000));
    }
    ExchangeBuffers buffers;
    buffers.dense = data;
    loop.RunBlocking([&, &traffic = traffic](Communicator& world) -> Task {
      const Traffic before = Total(world.traffic());
      co_await collective.Run(world, buffers, 32);
      traffic = Total(world.traffic()) - before;
    });
    seen = buffers.seen;
  });
  return outcomes;
}

// --- payloads of the ranks ---

// Integers, so that sums are exact in any order; none is 0.
float ValueOf(std::mt19937& random) {
  const int value = static_cast<int>(random() % 41) - 20;
  return static_cast<float>(value == 0 ? 21 : value);
}

enum class Support { kOverlapping, kIdentical, kDisjoint };

// Every rank sends `counts[rank]` elements.
Sent Make(std::string name, std::size_t elements, const std::vector<std::size_t>& counts,
          Support support) {
  std::mt19937 random(static_cast<unsigned>(elements + 31 * counts.size()));
  Sent sent{std::move(name), elements, *std::max_element(counts.begin(), counts.end()), {}};
  sent.kept = std::max<std::size_t>(sent.kept, 1);
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (support == Support::kIdentical) random.seed(7);
    SparseVector own;
    while (own.size() < counts[rank]) {
      auto index = static_cast<std::uint32_t>(random() % elements);
      // Half of the indices lie in the first tenth, so that regions differ.
      if (random() % 2 == 0) index = static_cast<std::uint32_t>(index / 10);
      if (support == Support::kDisjoint) {
        const auto ranks = static_cast<std::uint32_t>(counts.size());
        index = index / ranks * ranks + static_cast<std::uint32_t>(rank);
        if (index >= elements) continue;
      }
      own[index] = ValueOf(random);
    }
    sent.by_rank.push_back(std::move(own));
  }
  return sent;
}

std::vector<Sent> Cases(std::size_t ranks, const CollectiveTraits& traits) {
  const std::vector<std::size_t> equal(ranks, 40);
  std::vector<Sent> cases = {
      Make("identical", 1000, equal, Support::kIdentical),
      Make("all_of_it", ranks + 3, std::vector(ranks, ranks + 3), Support::kIdentical),
      Make("nothing", 100, std::vector<std::size_t>(ranks, 0), Support::kIdentical)};
  if (traits.same_indices) return cases;
  cases.push_back(Make("overlapping", 1000, equal, Support::kOverlapping));
  cases.push_back(
      Make("disjoint", 4000 * ranks, std::vector<std::size_t>(ranks, 30), Support::kDisjoint));
  cases.push_back(Make("fewer_elements_than_ranks", ranks > 1 ? ranks - 1 : 1,
                       std::vector<std::size_t>(ranks, 1), Support::kOverlapping));
  cases.push_back(Make("dense_union", 60, equal, Support::kOverlapping));
  if (traits.equal_counts) return cases;
  for (const auto& counts : UnequalSizes(ranks)) {
    cases.push_back(
        Make("unequal_" + std::to_string(cases.size()), 20'000, counts, Support::kOverlapping));
  }
  return cases;
}

// --- the laws ---

struct Case {
  std::string collective;
  Options options;
  std::string variant;
  int ranks;
  int ranks_per_node;
};

std::ostream& operator<<(std::ostream& out, const Case& each) {
  return out << each.collective << " " << each.variant << " on " << each.ranks << " ranks";
}

// The options, besides the defaults, that the laws are tested with.
std::vector<std::pair<std::string, Options>> VariantsOf(const CollectiveDescriptor& descriptor) {
  std::vector<std::pair<std::string, Options>> variants = {{"", {}}};
  for (const OptionSpec& option : descriptor.options) {
    if (std::holds_alternative<bool>(option.fallback)) {
      variants.push_back({option.name, {{option.name, !std::get<bool>(option.fallback)}}});
    }
    if (option.name == "levels") {
      variants.push_back({option.name, {{option.name, std::int64_t{2}}}});
    }
    for (const std::string& choice : option.choices) {
      if (OptionValue(choice) == option.fallback) continue;
      variants.push_back({option.name + "_" + choice, {{option.name, choice}}});
    }
  }
  return variants;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  if (!ThePart().name.empty() && !IsNamed("collective")) return cases;
  std::vector<std::string> names;
  for (const CollectiveDescriptor& each : Collectives()) names.emplace_back(each.name);
  if (IsNamed("collective")) names = {ThePart().name};
  for (const std::string& name : names) {
    const CollectiveDescriptor& each = FindCollective(name);
    if (each.native) continue;
    for (const auto& [variant, options] : VariantsOf(each)) {
      if (!each.WhyOnlyModelled(ResolveOptions(each.name, each.options, options)).empty()) continue;
      for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32}) {
        for (const int per_node : {1, 2}) {
          if (kThreadSanitized && ranks > 4) continue;
          if (per_node == 2 && (ranks > 6 || (!variant.empty() && variant != "levels"))) continue;
          if (per_node == 1 && variant == "levels") continue;  // the same as one level
          cases.push_back({std::string(each.name), options, variant, ranks, per_node});
        }
      }
    }
  }
  return cases;
}

void ExpectCounted(const RoundPlan& plan, std::span<const Traffic> counted,
                   const Topology& topology) {
  ASSERT_EQ(plan.per_rank.size(), counted.size());
  std::uint64_t busiest_bytes = 0;
  for (std::size_t rank = 0; rank < counted.size(); ++rank) {
    const Traffic& planned = plan.per_rank[rank];
    EXPECT_EQ(counted[rank].messages_sent, planned.messages_sent) << "rank " << rank;
    EXPECT_EQ(counted[rank].messages_received, planned.messages_received) << "rank " << rank;
    EXPECT_EQ(counted[rank].bytes_sent, planned.bytes_sent) << "rank " << rank;
    EXPECT_EQ(counted[rank].bytes_received, planned.bytes_received) << "rank " << rank;
    busiest_bytes =
        std::max({busiest_bytes, counted[rank].bytes_sent, counted[rank].bytes_received});
  }
  // A round takes as long as its busiest rank: the rounds bound every rank's bytes. A round over
  // both link classes may count its bytes within nodes separately.
  std::uint64_t round_bytes = 0;
  for (const Round& round : plan.rounds) {
    round_bytes += round.bytes + round.within_bytes;
    if (topology.nodes() == 1) {
      EXPECT_EQ(round.link, LinkClass::kIntraNode);
    }
  }
  EXPECT_GE(round_bytes, busiest_bytes);
}

std::vector<Traffic> TrafficOf(const std::vector<Outcome>& outcomes) {
  std::vector<Traffic> traffic;
  for (const Outcome& outcome : outcomes) traffic.push_back(outcome.traffic);
  return traffic;
}

void ExpectKept(const Collective& collective, const Sent& sent,
                const std::vector<Outcome>& outcomes) {
  const CollectiveTraits& traits = collective.traits();
  std::vector<double> sum(sent.elements);
  for (const SparseVector& own : sent.by_rank) {
    if (traits.selects) break;  // payloads were not taken from a residual before
    for (const auto& [index, value] : own) sum[index] += value;
  }
  if (!traits.drops && !traits.selects) {
    for (std::size_t i = 0; i < sent.elements; ++i) {
      ASSERT_EQ(outcomes[0].applied[i], static_cast<float>(sum[i])) << i;
    }
  }
  if (traits.mass == Conservation::kLost) return;
  std::vector<double> there(outcomes[0].applied.begin(), outcomes[0].applied.end());
  for (const Outcome& outcome : outcomes) {
    for (std::size_t i = 0; i < sent.elements; ++i) there[i] += outcome.returned[i];
  }
  for (std::size_t i = 0; i < sent.elements; ++i) ASSERT_EQ(there[i], sum[i]) << "element " << i;
}

class CollectiveRounds : public ::testing::TestWithParam<Case> {};

TEST_P(CollectiveRounds, SumsAndCountsAsPlanned) {
  const auto& [name, options, variant, rank_count, per_node] = GetParam();
  const CollectiveDescriptor& descriptor = FindCollective(name);
  const Topology topology{rank_count, per_node};
  const auto ranks = static_cast<std::size_t>(rank_count);
  const std::string why =
      descriptor.WhyNot(ResolveOptions(name, descriptor.options, options), topology);
  ASSERT_FALSE(IsOutsidePart(name) && !why.empty()) << why;
  if (!why.empty()) GTEST_SKIP() << why;
  const auto collective = MakeCollective(descriptor, options);
  if (descriptor.payload == PayloadKind::kDense) {
    for (const std::size_t n : {0, 1, 2, 3, 7, 8, 9, 1000, 100'003}) {
      SCOPED_TRACE(std::to_string(n) + " elements");
      const auto outcomes = RunDense(*collective, rank_count, per_node, n);
      std::vector<Traffic> counted;
      ExchangeSizes sizes = SizesOf(std::vector<std::uint64_t>(ranks, n * sizeof(float)));
      for (const DenseOutcome& outcome : outcomes) {
        if (!outcome.seen.empty()) sizes.seen.push_back(outcome.seen);
        counted.push_back(outcome.traffic);
        ASSERT_EQ(outcome.sum, outcomes[0].sum);
      }
      // Blocks of eight or four bits round each rank's payload and then the sum, with two levels
      // once more. The largest value is 999.
      const bool exact = collective->traits().mass == Conservation::kExact;
      const int encodings = variant == "levels" ? 3 : 2;
      const double most = static_cast<double>(ranks * (ranks + 1) / 2) * 999;
      for (std::size_t i = 0; i < n; ++i) {
        const auto sum = static_cast<double>(ranks * (ranks + 1) / 2 * (i % 1000));
        ASSERT_NEAR(outcomes[0].sum[i], sum, exact ? 0 : encodings * most / 14) << i;
      }
      ExpectCounted(collective->Rounds(sizes, topology), counted, topology);
      ExchangeSizes expected = sizes;
      expected.seen.clear();
      collective->Expect({}, topology, expected);
      ASSERT_EQ(expected.seen.size(), sizes.seen.size());
      (void)collective->Rounds(expected, topology);
    }
    return;
  }
  for (const Sent& sent : Cases(ranks, collective->traits())) {
    SCOPED_TRACE(sent.name);
    // Runs three steps, since a collective's state may change its behaviour.
    const auto steps = RunExchanges(*collective, {sent, sent, sent}, per_node);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const std::vector<Outcome>& outcomes = steps[step];
      for (const Outcome& outcome : outcomes) {
        ASSERT_EQ(outcome.applied, outcomes[0].applied);
        ASSERT_TRUE(outcome.increasing);
      }
      ExpectKept(*collective, sent, outcomes);
      const ExchangeSizes recorded = RecordedSizes(*collective, sent, step, outcomes);
      const RoundPlan plan = collective->Rounds(recorded, topology);
      ExpectCounted(plan, TrafficOf(outcomes), topology);
      if (collective->traits().sums) {
        ASSERT_TRUE(plan.sums.has_value());
        EXPECT_EQ(plan.dense_sums, outcomes[0].dense);
        EXPECT_EQ(*plan.sums, outcomes[0].dense ? sent.elements : outcomes[0].summed);
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(outcomes[rank].served, plan.served.empty() ? 0 : plan.served[rank]) << rank;
      }
      // The model's expectation has the form of a run's record.
      ExchangeSizes expected = recorded;
      expected.seen.clear();
      collective->Expect({}, topology, expected);
      ASSERT_EQ(expected.seen.empty(), recorded.seen[0].empty());
      for (std::size_t rank = 0; rank < expected.seen.size(); ++rank) {
        EXPECT_EQ(expected.seen[rank].size(), recorded.seen[rank].size());
      }
      (void)collective->Rounds(expected, topology);
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectiveRounds);
INSTANTIATE_TEST_SUITE_P(All, CollectiveRounds, ::testing::ValuesIn(AllCases()),
                         [](const auto& instance) {
                           const Case& each = instance.param;
                           const std::string name = InTestName(
                               each.collective + (each.variant.empty() ? "" : "_") + each.variant);
                           return name + "_" + std::to_string(each.ranks) + "_" +
                                  std::to_string(each.ranks_per_node);
                         });

// A model of a thousand ranks takes milliseconds, and all sent bytes arrive.
TEST(Collectives, RoundsOfAThousandRanks) {
  for (const CollectiveDescriptor& each : Collectives()) {
    const Topology topology{1024, 8};
    if (!each.WhyNot(ResolveOptions(each.name, each.options, {}), topology).empty()) continue;
    const auto collective = MakeCollective(each);
    const ExchangeSizes sizes =
        ExpectedSizes(*collective, {100'000'000, 1'000'000, 1},
                      std::vector<std::uint64_t>(1024, 8'000'000), {.theta = 0.2}, topology);
    const RoundPlan plan = collective->Rounds(sizes, topology);
    EXPECT_LE(plan.rounds.size(), 64u) << each.name;
    Traffic sent;
    for (const auto& traffic : plan.per_rank) sent += traffic;
    EXPECT_EQ(sent.bytes_sent, sent.bytes_received) << each.name;
    EXPECT_EQ(sent.messages_sent, sent.messages_received) << each.name;
  }
}

TEST(Collectives, UnknownNameSuggestsTheNearest) {
  EXPECT_EQ(ErrorOf([&] { (void)FindCollective("ring-alreduce"); }, FailureKind::kConfig),
            "unknown collective \"ring-alreduce\"; did you mean \"ring-allreduce\"?");
}

}  // namespace
}  // namespace sparfuse::testing
