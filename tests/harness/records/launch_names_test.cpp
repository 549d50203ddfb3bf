// Tests the record of a launch's hosts, the statements about it, and the host names that leave with
// it.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/records/launch.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/records/record.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ExpectIn;
using Words = std::vector<std::string>;

HostTraffic Traffic(const Words& others) { return {"", {{"eth0", {0, 1}}}, others}; }

const json kLaunch = json::parse(R"({
  "binding": {"card": [null, null], "cores": ["0-1", "0-1"], "hosts": ["n1", "n2"],
              "interface": [null, "eth0"], "numa": ["0", "0"]},
  "clocks": {"hosts": ["n1", "n2"], "offset_seconds": [0, 0.5], "drift_ppm": [0, 1.25],
             "drift_uncertainty_ppm": [0, 0.1], "uncertainty_seconds": [0, 1e-5]},
  "id": "tiny/throughput/wfbp-b1-1.1",
  "network": {"bytes": [{"lo": {"received": 104, "sent": 104}}, {"eth0": {"received": 1, "sent": 2}}],
              "hosts": ["n1", "n2"], "interface": "eth0", "others": [[], ["ib0"]]},
  "nodes": [{"cores": 2, "count": 2, "cpu_model": "AMD EPYC", "gpus": [], "memory_gib": 24,
             "network": [{"gbps": "unknown", "kind": "Ethernet"}]}],
  "failed_on": "n2", "left_out": ["n3"],
  "start_seconds": 1.1179001840000007, "trials": 4, "warnings": ["n2: cards are hidden, n22's too."]
})");

TrialLaunch LaunchOf(const json& stored) { return RecordOf<TrialLaunch>(stored, "launch"); }

TEST(Launch, IsWhatItWas) {
  EXPECT_EQ(ToJson(LaunchOf(kLaunch)), kLaunch);
  EXPECT_EQ(LaunchOf(ToJson(LaunchOf(kLaunch))), LaunchOf(kLaunch));
}

TEST(Launch, AHostWithTrafficOnASecondInterfaceIsNamed) {
  LaunchHosts launch;
  launch.network = TrafficOfHosts({"n1", "n2"}, {Traffic({}), Traffic({"ib0", "x"})});
  EXPECT_EQ(launch.network->others, (std::vector<Words>{{}, {"ib0", "x"}}));
  EXPECT_EQ(launch.network->bytes.size(), 2U);
  const auto said = WarningsOf(launch);
  ASSERT_EQ(said.size(), 1U);
  ExpectIn("n2: in addition to the busiest interface, ib0, x had traffic", said[0]);
  launch.network->interface = "eth0";
  ExpectIn("in addition to eth0, ib0", WarningsOf(launch)[0]);
  launch.network->others = {{}, {}};
  EXPECT_TRUE(WarningsOf(launch).empty());
  launch.warnings = {"peers are hidden"};
  EXPECT_EQ(WarningsOf(launch), Words{"peers are hidden"});
}

TEST(Launch, WhatRanksLeftIsTakenOnce) {
  const TemporaryFolder folder;
  EXPECT_EQ(TakeHostRecord(folder.path()), LaunchHosts());
  LaunchHosts left;
  left.network = TrafficOfHosts({"n1", "n2"}, {Traffic({}), Traffic({})});
  left.binding.emplace().hosts = {"n1", "n2"};
  const auto file = folder.path() / kHostRecord;
  std::ofstream(file) << ToJson(left);
  EXPECT_EQ(TakeHostRecord(folder.path()), left);
  EXPECT_FALSE(std::filesystem::exists(file));
  std::ofstream(file) << "{\"binding\": ";  // left by a rank that was killed
  EXPECT_EQ(TakeHostRecord(folder.path()), LaunchHosts());
}

TEST(PrivateFacts, ARecordNumbersHostsAndCards) {
  TrialLaunch launch = LaunchOf(kLaunch);
  launch.binding->card = {"0000:1F:00.0", ""};
  PrivateFacts facts;
  TakeNames(launch, facts);
  EXPECT_EQ(facts.hosts, (Words{"n1", "n2", "n3"}));
  EXPECT_EQ(facts.buses, Words{"0000:1F:00.0"});
  EXPECT_EQ(launch.binding->hosts, (Words{"host0", "host1"}));
  EXPECT_EQ(launch.binding->card, (Words{"card0", ""}));
  EXPECT_EQ(launch.network->bytes[0].begin()->first, "lo");
  EXPECT_EQ(launch.network->bytes[1].begin()->first, "eth0");
  EXPECT_EQ(launch.network->others[1], Words{"ib0"});
  EXPECT_EQ(launch.clocks->hosts, (Words{"host0", "host1"}));
  EXPECT_EQ(launch.failed_on, "host1");
  EXPECT_EQ(launch.left_out, Words{"host2"});
  EXPECT_EQ(launch.warnings, Words{"host1: cards are hidden, n22's too."});
  for (const char* name : {"\"n1\"", "\"n2\"", "1F:00"})
    EXPECT_EQ(ToJson(launch).dump().find(name), std::string::npos) << name;
}

TEST(PrivateFacts, HostsHaveTheSameNumbersInEveryRecordOfATrial) {
  Machine machine;
  machine.placement = {"n2", "n2", "n1"};
  CardState card;
  card.index = 3;
  card.uuid = "GPU-1";
  card.pci = "1F";
  machine.gpus.emplace().cards = {card};
  PrivateFacts facts;
  TakeNames(machine, facts);
  EXPECT_EQ(machine.placement, (Words{"host0", "host0", "host1"}));
  EXPECT_EQ(facts.NamesOf(machine.placement), (Words{"n2", "n2", "n1"}));
  EXPECT_EQ(facts.cards.at("3"), (PrivateCard{"GPU-1", "1F"}));
  EXPECT_EQ(machine.gpus->cards[0].uuid + machine.gpus->cards[0].pci, "");
  TrialLaunch launch = LaunchOf(kLaunch);
  TakeNames(launch, facts);
  EXPECT_EQ(launch.binding->hosts, (Words{"host1", "host0"}));
  Quiet quiet;
  quiet.cards = {{"python (12)"}, {}};
  TakeNames(quiet, facts);
  EXPECT_EQ(quiet.cards->other_processes, Words{"process0"});
  EXPECT_EQ(facts.processes, Words{"python (12)"});
}

TEST(PrivateFacts, ComeBackFromTheirFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(ReadPrivateFacts(folder.path()), PrivateFacts());
  PrivateFacts facts;
  facts.hosts = {"n1"};
  facts.cards = {{"0", {"GPU-1", "1F"}}};
  WritePrivateFacts(folder.path(), facts);
  EXPECT_EQ(ReadPrivateFacts(folder.path()), facts);
}

TEST(HostNames, AreNumberedInSentencesWhereTheyAreWords) {
  std::vector<std::string> hosts = {"host1", "n2.site.org"};
  const HostNames names(hosts);
  EXPECT_EQ(names.InText("host1, n2.site.org. and n2.site.org2: host12 or (host1)"),
            "host0, host1. and n2.site.org2: host12 or (host0)");
}

}  // namespace
}  // namespace sparfuse::harness
