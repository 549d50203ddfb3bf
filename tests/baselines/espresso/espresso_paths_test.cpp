// Tests the results of single options of Espresso: by hand, beside flat methods, and with other
// sparsifiers.
#include "baselines/espresso/espresso_paths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/strategies.hpp"
#include "tests/baselines/espresso/espresso_runs.hpp"
#include "tests/support/communicators/stopping_communicator.hpp"

namespace sparfuse::baselines {
namespace {

// On nodes of one rank, the options equal flat methods: the same elements and the same values.
TEST(EspressoPaths, OnNodesOfOneRankAreFlatMethods) {
  const auto expect_equal = [](const std::vector<int>& options, const Setting& flat) {
    const auto expected = Trained(flat);
    for (const int option : options) {
      SCOPED_TRACE(option);
      const auto results = Trained({.option = option, .topology = flat.topology});
      for (std::size_t rank = 0; rank < results.size(); ++rank) {
        EXPECT_EQ(results[rank].averaged, expected[rank].averaged);
        EXPECT_EQ(results[rank].residual, expected[rank].residual);
      }
    }
  };
  const auto behind = [] { return std::unique_ptr<Strategy>(new UnitStrategy); };
  const auto owners = [] { return std::unique_ptr<Strategy>(new OwnedParts); };
  for (const Topology topology : {Topology{4, 1}, Topology{3, 1}}) {
    const auto ranks = static_cast<std::uint16_t>(topology.ranks);
    expect_equal({4, 8, 9, 10, 12},
                 {.option = kGatherAll, .topology = topology, .strategy = behind});
    expect_equal(
        {3, 5, 7, 11},
        {.option = kAllToAllOfAll, .topology = topology, .partitions = ranks, .strategy = owners});
    expect_equal({2, 6}, {.option = kRootBetween, .topology = topology, .strategy = owners});
    // Integers of up to 400 are also exact as halves.
    expect_equal({0, 1, 13, 14}, {.option = kWhole, .topology = topology, .strategy = behind});
  }
}

// Copies of a selection on other ranks select the same elements (option 12), with any sparsifier:
// random numbers, and thresholds of earlier steps.
TEST(EspressoPaths, LoseNothingWhateverSelects) {
  for (const int option : {2, 6, 8, 9, 11, 12}) {
    for (const auto& [sparsifier, period] : {std::pair{"dgc", 1}, std::pair{"dgc", 3},
                                             std::pair{"randomk", 1}, std::pair{"topk", 3}}) {
      SCOPED_TRACE(std::to_string(option) + ", " + sparsifier + ", " + std::to_string(period));
      ExpectSound(Trained({.option = option,
                           .topology = {4, 2},
                           .sparsifier = sparsifier,
                           .threshold_period = period}));
    }
  }
}

// The second half of a tensor is zero on all ranks, so that one of its shards has nothing to send.
// Top-k sends its zeros, thresholds send nothing.
TEST(EspressoPaths, LoseNothingWhereAShardIsZero) {
  const auto halved = [](int rank, int step, std::size_t tensor) {
    auto gradient = testing::IntegerGradient(rank, step, tensor);
    std::fill(gradient.begin() + static_cast<std::ptrdiff_t>(gradient.size() / 2), gradient.end(),
              0.0f);
    return gradient;
  };
  for (int option = 2; option <= 12; ++option) {
    for (const char* sparsifier : {"topk", "dgc"}) {
      SCOPED_TRACE(std::to_string(option) + ", " + sparsifier);
      const Setting setting{.option = option, .topology = {4, 2}, .sparsifier = sparsifier};
      const auto results = Trained(setting, halved);
      ExpectSound(results, halved);
      if (setting.sparsifier == "topk") ExpectModelled(setting, results);
    }
  }
}

// Two nodes of two ranks, 1000 elements at 10 %. Shards of 500 send 50 elements in 400 bytes;
// quarters of 250 send 25. The numbers are the bytes sent by rank 0, its node's first rank and a
// root:
TEST(EspressoPaths, BytesByHand) {
  const std::vector<std::uint64_t> expected = {
      6000,                       // 3/4 of 4000 bytes, twice
      3000,                       // 3/4 of 2000 bytes, twice
      2000 + 0 + 400 + 2000,      // a half within the node; as the root, its second selection
      2000 + 200 + 200 + 2000,    // a quarter to its owner, its own quarter to the other node
      2000 + 400 + 2000,          //
      1000 + 200 + 200 + 2000,    // the first payload as halves
      400 + 0 + 400 + 400,        // a shard to its owner; as root, to the other node; the result
      400 + 200 + 200 + 400,      // the results are two quarters
      0 + 800 + 1600,             // all of its node's, then both nodes' to the other rank
      400 + 400 + 800,            // the results are two shards
      3 * 800,                    // its own shard and all others' but the next rank's
      3 * 200 + 3 * 200,          //
      400 + 400 + 400,            //
      1000 + 500 + 500 + 1000,    // a half, a quarter, and back
      2000 + 1000 + 1000 + 2000,  //
  };
  for (int option = 0; option < kEspressoOptions; ++option) {
    const Setting setting{.option = option, .topology = {4, 2}, .density = 0.1, .sizes = {1000}};
    EXPECT_EQ(Modelled(setting).records[0].sent_bytes, expected[static_cast<std::size_t>(option)])
        << option;
  }
}

// Integers of up to 99,700, which halves round or saturate to other integers.
TEST(EspressoPaths, KeepWhatHalvesTake) {
  const auto wide = [](int rank, int step, std::size_t tensor) {
    auto gradient = testing::IntegerGradient(rank, step, tensor);
    for (float& value : gradient) value *= 997;
    return gradient;
  };
  for (const int option : {static_cast<int>(kHalves), static_cast<int>(kOnProcessor),
                           static_cast<int>(kHalvesByServers)}) {
    SCOPED_TRACE(option);
    const auto results = Trained({.option = option, .topology = {4, 2}}, wide);
    const std::vector<double> lost = testing::LostMass(results, wide);
    EXPECT_EQ(lost, std::vector<double>(lost.size(), 0.0));
    EXPECT_NE(results[0].residual, std::vector<float>(lost.size(), 0.0f));
    for (const testing::RankResult& rank : results) EXPECT_EQ(rank.averaged, results[0].averaged);
  }
}

// Residuals are halved each step, and only the first step leaves any.
TEST(EspressoPaths, LetWhatHalvesTakeDecayOnceAStep) {
  const auto first_alone = [](int rank, int step, std::size_t tensor) {
    auto gradient = testing::IntegerGradient(rank, step, tensor);
    for (float& value : gradient) value *= step == 0 ? 997 : 0;
    return gradient;
  };
  for (const int option : {static_cast<int>(kHalves), static_cast<int>(kHalvesByServers)}) {
    for (const Topology topology : {Topology{4, 2}, Topology{4, 4}, Topology{4, 1}}) {
      SCOPED_TRACE(std::to_string(option) + ", " + std::to_string(topology.ranks_per_node));
      const auto results = Trained(
          {.option = option, .topology = topology, .density = 1, .decay = 0.5}, first_alone);
      std::vector<double> left(results[0].residual.size());  // of all ranks
      for (std::size_t step = 0; step < results[0].averaged.size(); ++step) {
        std::size_t i = 0;
        for (std::size_t t = 0; t < testing::kTensorSizes.size(); ++t) {
          std::vector<double> sum(testing::kTensorSizes[t]);
          for (int rank = 0; rank < topology.ranks; ++rank) {
            const auto gradient = first_alone(rank, static_cast<int>(step), t);
            for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += gradient[e];
          }
          for (const double given : sum) {
            left[i] = left[i] / 2 + given - 4.0 * results[0].averaged[step][i];
            ++i;
          }
        }
      }
      for (const testing::RankResult& rank : results) {
        for (std::size_t i = 0; i < left.size(); ++i) left[i] -= rank.residual[i];
      }
      EXPECT_EQ(left, std::vector<double>(left.size(), 0.0));
    }
  }
}

// Payloads are forwarded as they arrived, and selected from again.
TEST(EspressoPaths, HaveRoomForWhatIsSelectedOnADevice) {
  for (const int option : {kFirstOfNode, kGatherSelected, kSelectedTwice}) {
    ExpectSound(Trained({.option = option,
                         .topology = {4, 2},
                         .density = 0.001,
                         .device = testing::kEmulated,
                         .begins_with = 500}));
  }
}

// Rank 3 is a root, and it owns the last part on its node and between nodes. Rank 2 is its node's
// first.
TEST(EspressoPaths, NameARankThatStopsInAnyOfTheirSteps) {
  std::vector<testing::StoppedRun> runs;
  for (const int option : {2, 3, 5, 8, 9, 12, 13}) {
    const Setting setting{
        .option = option, .topology = {4, 2}, .tensors = testing::kTensorSizes.size()};  // one unit
    const int stopped = option == kFirstOfNode ? 2 : 3;
    const auto messages = static_cast<int>(
        Trained(setting)[static_cast<std::size_t>(stopped)].records.front().messages_sent);
    runs.push_back({stopped, messages, [setting](const testing::Wrap& wrap, auto wait) {
                      Trained(setting, testing::IntegerGradient, wait, wrap);
                    }});
  }
  testing::ExpectTheStoppedRankIsNamed(runs);
}

// The roots of the two shards are on different nodes: rank 0 works for the first shard, rank 3 for
// the second.
TEST(EspressoPaths, RootsAreSpreadOverNodes) {
  const ModelStep step =
      Modelled({.option = kRootBetween, .topology = {4, 2}, .density = 0.1, .sizes = {1000}});
  // The sums within nodes take 2000 bytes out and 2000 back. Besides these, a rank sends its
  // selection to the root, or the root sends its second selection to the other node.
  const std::uint64_t within = 4000;
  for (const StepRecord& record : step.records) EXPECT_EQ(record.sent_bytes, within + 400);
  // The root has two payloads, besides 4000 bytes for each sum within nodes.
  EXPECT_EQ(step.records[0].payload_bytes, 8000u + 800);
  EXPECT_EQ(step.records[1].payload_bytes, 8000u + 400);
  EXPECT_EQ(step.records[2].payload_bytes, 8000u + 400);
  EXPECT_EQ(step.records[3].payload_bytes, 8000u + 800);
}

// Two nodes of two ranks, 1000 elements at 10 %. Each option first selects 100 elements; the two
// ranks of a node select 50 each from its sum. Dense payloads count whole.
TEST(EspressoPaths, CountWhatIsSelectedAtFirst) {
  for (int option = 0; option < kEspressoOptions; ++option) {
    const Setting setting{.option = option, .topology = {4, 2}, .density = 0.1, .sizes = {1000}};
    for (const StepRecord& record : Modelled(setting).records) {
      EXPECT_EQ(record.selected, EspressoCompresses(option) ? 100u : 1000u) << option;
    }
  }
}

}  // namespace
}  // namespace sparfuse::baselines
