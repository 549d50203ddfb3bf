// Tests the findings about the facts that ranks report, and the reading of facts from a launch's
// log.
#include <gtest/gtest.h>

#include "harness/run/live/hosts/preflight.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using testing::ExpectIn;

HostFacts Facts(int rank, const std::string& host) {
  HostFacts facts;
  facts.rank = rank;
  facts.host = host;
  facts.worker = "0123456789ab";
  facts.mpi = "Open MPI v4.1.4";
  facts.libraries = {{"libmpi.so.40", "aa"}, {"libtorch_cpu.so", "bb"}};
  facts.cpu = "A";
  facts.cores = "0-3";
  facts.numa = "0";
  facts.memlock_bytes = 65536;
  facts.shm_free_bytes = 1e9;
  facts.interfaces = {"eth0", "ib0"};
  facts.sees_results = true;
  facts.clock_ahead_seconds = 0;
  facts.clock_uncertainty_seconds = 0;
  return facts;
}

class PreflightFindings : public ::testing::Test {
 protected:
  PreflightFindings() {
    request_.worker = "/opt/w";
    request_.results = "/r";
    request_.method.interface = "ib0";
    preflight_.ranks = {Facts(0, "n1"), Facts(1, "n1"), Facts(2, "n2")};
  }
  HostFacts& second() { return preflight_.ranks.back(); }

  // The only finding among errors and warnings, which must have this level.
  std::string Only(Finding::Level level) const {
    std::vector<std::string> said;
    for (const Finding& finding : JudgePreflight(preflight_, request_)) {
      if (finding.level == Finding::Level::kGood) continue;
      EXPECT_EQ(finding.level, level) << finding.message;
      said.push_back(finding.what + ": " + finding.message);
    }
    EXPECT_EQ(said.size(), 1U);
    return said.empty() ? "" : said.front();
  }

  Preflight preflight_;
  PreflightRequest request_;
};

TEST_F(PreflightFindings, HostsThatAreAlikeAreWell) {
  for (const Finding& finding : JudgePreflight(preflight_, request_))
    EXPECT_EQ(finding.level, Finding::Level::kGood) << finding.message;
}

TEST_F(PreflightFindings, WhatMakesTrialsFailIsAnErrorThatNamesTheHost) {
  second().worker = "fedcba987654";
  ExpectIn("worker: n2 has fedcba987654, and n1 0123456789ab: expected the same file at /opt/w",
           Only(Finding::Level::kError));
  second() = Facts(2, "n2");
  second().libraries["libtorch_cpu.so"] = "cc";
  ExpectIn("libraries: libtorch_cpu.so of n2 differ from n1's", Only(Finding::Level::kError));
  second() = Facts(2, "n2");
  second().sees_results = false;
  ExpectIn("results: n2 does not see /r", Only(Finding::Level::kError));
  second() = Facts(2, "n2");
  second().interfaces = {"eth0"};
  ExpectIn("n2 has no ib0 that is up, but eth0: expected --interface eth0",
           Only(Finding::Level::kError));
  second() = Facts(2, "n2");
  preflight_.failures = {{"n3", "no route to host"}};
  ExpectIn("reached: n3: no route to host", Only(Finding::Level::kError));
  preflight_.ranks.clear();
  ExpectIn("reached: n3: no route to host", Only(Finding::Level::kError));
  EXPECT_EQ(TableOfHosts(preflight_), "");
}

TEST_F(PreflightFindings, WhatMakesNumbersDoubtfulIsAWarning) {
  second().cards = {"H100"};
  ExpectIn("cards: n2 has H100, and n1 none", Only(Finding::Level::kWarning));
  second() = Facts(2, "n2");
  second().rdma = true;
  ExpectIn("n2 lets a process lock 64 KiB", Only(Finding::Level::kWarning));
  second().memlock_bytes.reset();
  EXPECT_EQ(JudgePreflight(preflight_, request_).back().level, Finding::Level::kGood);
  second() = Facts(2, "n2");
  second().clock_ahead_seconds = -2.5;
  ExpectIn("clocks: n2 is 2.500 s behind n1", Only(Finding::Level::kWarning));
  second().clock_uncertainty_seconds = 2.0;  // it may be half a second
  EXPECT_EQ(JudgePreflight(preflight_, request_).back().level, Finding::Level::kGood);
  second() = Facts(2, "n2");
  preflight_.ranks[0].shm_free_bytes = 100 << 20;  // for two ranks
  ExpectIn("n1 has 100 MiB free for 2 rank(s)", Only(Finding::Level::kWarning));
  preflight_.ranks[0] = Facts(0, "n1");
  request_.method.interface = "";
  ExpectIn("all hosts have eth0, ib0", Only(Finding::Level::kWarning));
}

TEST(PreflightFacts, AreReadFromBetweenOtherWords) {
  const auto ranks = ReadFacts(
      "mpirun warns\n"
      "preflight: {\"rank\": 1, \"host\": \"b\"}\n"
      "0: preflight: {\"rank\": 0, \"host\": \"a\"}\n"
      "preflight: {\"rank\": 0, \"hos\n"
      "preflight: [1]\n"
      "preflight: {\"rank\": 1, \"clock_ahead_seconds\": 2}\n"
      "preflight: {\"rank\": 2, \"error\": \"died before it knew its host\"}\n");
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].host, "a");
  EXPECT_EQ(ranks[1].clock_ahead_seconds, 2);
}

}  // namespace
}  // namespace sparfuse::harness
