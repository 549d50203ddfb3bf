// Tests the texts that ranks exchange outside the steps, and an outcome's record of its machine.
#include "harness/worker/rank/rank.hpp"

#include <gtest/gtest.h>

#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "tests/harness/worker/worker_ranks.hpp"

namespace sparfuse::harness {
namespace {

using Words = std::vector<std::string>;

class Ranks : public testing::WorkerRanks {};

TEST_F(Ranks, GatherTextsOfUnlikeLengthsInTheirOrder) {
  OnRanks(3, [](const Rank& rank) {
    const std::string own(static_cast<std::size_t>(5 * rank.rank()), 'x');
    EXPECT_EQ(GatherTexts(rank, own), (Words{"", "xxxxx", "xxxxxxxxxx"}));
    EXPECT_EQ(GatherTexts(rank, "\xff").at(1), "\uFFFD");  // not UTF-8
  });
}

TEST_F(Ranks, GatherRecordsAsTheyWere) {
  OnRanks(2, [](const Rank& rank) {
    HostTraffic own;
    own.bytes["eth0"] = {static_cast<std::uint64_t>(rank.rank()), 1ULL << 60U};
    const auto all = GatherRecords(rank, own);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[static_cast<std::size_t>(rank.rank())], own);
    EXPECT_EQ(all[1].bytes.at("eth0").received, 1U);
  });
}

TEST_F(Ranks, TakeTheLargestOfEachNumber) {
  OnRanks(3, [](const Rank& rank) {
    const std::int64_t own = rank.rank();
    EXPECT_EQ(rank.Max({own, -own}), (std::vector<std::int64_t>{2, 0}));
  });
}

TEST_F(Ranks, RecordAMachineWhoseHostsHaveNumbers) {
  OnRanks(2, [&](const Rank& rank) {
    PrivateFacts facts;
    const Machine machine = MachineOf(rank, facts);
    EXPECT_EQ(machine.placement, (Words{"host0", "host0"}));
    EXPECT_EQ(facts.hosts, Words{HostName()});
    EXPECT_FALSE(machine.communication_threads.empty());
    EXPECT_FALSE(machine.gpus || machine.load_before);
    if (rank.rank() == 0) WriteOutcome(rank.directory, {{"machine", ToJson(machine)}}, facts);
  });
  EXPECT_EQ(ReadPrivateFacts(folder_.path()).hosts, Words{HostName()});
  EXPECT_EQ(ReadJsonFile(folder_.path() / "outcome.json")["machine"]["placement"],
            nlohmann::json({"host0", "host0"}));
}

}  // namespace
}  // namespace sparfuse::harness
