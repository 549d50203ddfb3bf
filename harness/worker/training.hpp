// Trains one cell on one rank: set-up, steps as its launch asks for them, checks, outcome.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/live/live_engine.hpp"
#include "core/engine/live/mass_check.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/records/trial.hpp"
#include "harness/store/step_log.hpp"
#include "harness/worker/planning.hpp"
#include "harness/worker/rank/anchors_over_ranks.hpp"
#include "harness/worker/rank/quiet_monitor.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

// A trial's training on one rank. It has its own replica, optimizer, engine and residuals. Several
// of them on one rank share the communication thread, the thread pool and the processor, and
// nothing else that a step changes. All members are collective, and throw the error that ends the
// trial.
class Training {
 public:
  // Broadcasts the state, observes the ready order, plans. `rank` must outlive this object.
  explicit Training(const Rank& rank);

  void WarmUp();

  // A segment: `steps` measured steps in a row. Of round 1, 2, ...: after a step, or a window of
  // local steps, that is discarded. Round 0: of a trial that takes no turns.
  void Measure(int steps, int round);

  // Compares the replicas, or their anchors, and, on rank 0, writes outcome.json and the series
  // into the trial's directory. turn_seconds: the trial's time so far.
  void Finish(double turn_seconds);

 private:
  struct StepPlace {
    bool measured = false;
    int round = 0;
  };
  struct EvaluatedStep {
    std::int64_t step = 0;
    double epoch = 0;
    std::int64_t samples = 0;
    double seconds = 0;  // of training
    double seconds_with_evaluation = 0;
    double learning_rate = 0;  // of the step before it
    workloads::Evaluation evaluation;
  };

  void Build();
  void SayThatStepsRun() const;
  // Runs the next step, and an evaluation if one is due.
  void Step(StepPlace place);
  void TrainOn(std::uint64_t step);
  void Log(std::uint64_t step, StepPlace place, const StepRecord& record);
  void Evaluate(std::uint64_t step);
  // Rank 0's workload, with the parameters that the cell wants evaluated. Collective.
  void EvaluateHere(std::uint64_t step);
  // With local steps, behind the update of a step, and behind the step.
  void Synchronise(std::uint64_t step);
  void CheckAnchors(std::uint64_t step);
  std::uint64_t verified_windows() const;
  void AddLocalSteps(MetricValues& metrics) const;
  void AddSelection(Outcome& outcome) const;
  StepLogContext LogContext() const;
  void AddConvergence(const StepLog& log, MetricValues& metrics) const;
  void WriteEvaluations(SeriesByFile& series) const;

  static constexpr std::size_t kNotInLayout = std::numeric_limits<std::size_t>::max();

  const Rank& rank_;
  const CellConfig& config_;
  const workloads::WorkloadDescriptor& descriptor_;
  std::unique_ptr<workloads::TrainingWorkload> workload_;
  Composition composition_;
  const std::optional<LocalSteps> local_steps_;
  const std::uint64_t window_;  // steps; 1 without local steps
  Topology topology_;
  std::vector<std::size_t> ready_order_;  // parameters
  std::optional<Planning> planning_;
  std::optional<LiveEngine> engine_;
  MassCheck mass_;
  std::uint64_t lost_elements_ = 0;              // in verified steps
  std::vector<Divergence> divergences_;          // of verified windows
  std::optional<std::uint64_t> anchors_differ_;  // since this step, with local steps
  QuietMonitor monitor_;
  std::uint64_t next_step_ = 0;
  std::uint64_t sent_steps_ = 0;  // made when the last exchange without a date began
  std::size_t measured_ = 0;      // steps
  std::vector<LoggedStep> log_;
  std::vector<TracedStep> traced_;                 // of this rank only, until gathered
  std::vector<EvaluatedStep> evaluations_;         // rank 0
  double python_before_ = 0, python_seconds_ = 0;  // in the process: of the step, of measured ones
  double training_seconds_ = 0;
  double evaluation_seconds_ = 0;  // rank 0
  bool reached_target_ = false;
};

}  // namespace sparfuse::harness
