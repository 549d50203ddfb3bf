// Runs a function on every rank of a launch whose ranks are threads, each with the trial's folder.
#pragma once

#include <chrono>
#include <functional>

#include "harness/worker/rank/rank.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::harness::testing {

class WorkerRanks : public ::testing::Test {
 protected:
  void OnRanks(int ranks, const std::function<void(const Rank&)>& body) const {
    sparfuse::testing::RunRanks(ranks, ranks, std::chrono::seconds(20), [&](ProgressLoop& loop) {
      ThreadPool pool(1);
      body(Rank{config_, 1, folder_.path(), loop, pool});
    });
  }

  CellConfig config_;
  TemporaryFolder folder_;
};

}  // namespace sparfuse::harness::testing
