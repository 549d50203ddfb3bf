#include "harness/worker/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "harness/worker/rank/timing.hpp"
#include "harness/worker/training.hpp"

namespace sparfuse::harness {
namespace {

// Prints it to the log, which the controller follows.
void SayRound(const Rank& rank, std::size_t round, std::size_t rounds) {
  if (rank.rank() != 0) return;
  std::printf("%s%s, round %zu of %zu\n", kMeasuringLine, rank.config.method.c_str(), round,
              rounds);
  std::fflush(stdout);
}

void TakeTurns(std::span<const Rank> trials, std::span<const std::unique_ptr<Training>> trainings,
               Turns& turns) {
  std::vector<std::vector<int>> steps;  // [trials][rounds]; longer trials have more rounds
  std::size_t rounds = 0;
  for (const Rank& trial : trials) {
    steps.push_back(StepsOfRounds(trial.config.steps, trial.config.method_options.window_steps()));
    rounds = std::max(rounds, steps.back().size());
  }
  const auto orders = OrderOfRounds(trials.size(), rounds, trials.front().seed);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (const std::size_t i : orders[round]) {
      if (round >= steps[i].size()) continue;
      turns.Give(trials[i], i);
      SayRound(trials[i], round + 1, rounds);
      trainings[i]->Measure(steps[i][round], static_cast<int>(round) + 1);
    }
  }
}

}  // namespace

void RunTrainings(std::span<const Rank> trials, Turns& turns) {
  std::vector<std::unique_ptr<Training>> trainings;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    turns.Give(trials[i], i);
    trainings.push_back(std::make_unique<Training>(trials[i]));
    trainings.back()->WarmUp();
  }
  if (trials.size() == 1) {
    trainings.front()->Measure(trials.front().config.steps, 0);
  } else {
    TakeTurns(trials, trainings, turns);
  }
  for (std::size_t i = 0; i < trials.size(); ++i) {
    turns.Give(trials[i], i);
    trainings[i]->Finish(turns.Seconds(i));
  }
}

}  // namespace sparfuse::harness
