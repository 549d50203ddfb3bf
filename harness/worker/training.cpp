// Trains the cells of a launch on one rank: set-up, steps in turn, checks, outcomes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/live/mass_check.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "harness/records/trial.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "harness/store/step_log.hpp"
#include "harness/worker/hosts/launch_record.hpp"
#include "harness/worker/launch.hpp"
#include "harness/worker/planning.hpp"
#include "harness/worker/rank/quiet_monitor.hpp"
#include "harness/worker/rank/rank.hpp"
#include "harness/worker/rank/replica.hpp"
#include "harness/worker/rank/timing.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::size_t kTracedSteps = 3;
constexpr std::size_t kMostTracedSteps = 64;  // longest traced window

// A trial's training on one rank. It has its own replica, optimizer, engine and residuals. Several
// of them on one rank share the communication thread, the thread pool and the processor, and
// nothing else that a step changes. All members are collective, and throw the error that ends the
// trial.
class Training {
 public:
  // Broadcasts the state, observes the ready order, plans. `rank` must outlive this object.
  explicit Training(const Rank& rank)
      : rank_(rank),
        config_(rank.config),
        descriptor_(workloads::FindWorkload(config_.workload)),
        workload_(MakeTrialWorkload(rank)),
        composition_(Compose(config_)),
        local_steps_(composition_.local_steps()),
        window_(local_steps_ ? local_steps_->every : 1),
        topology_{rank.size(), config_.ranks_per_node},
        mass_(rank.loop),
        monitor_(rank, config_.steps) {
    BroadcastState(rank_, *workload_);
    ready_order_ = ObserveReadyOrder(rank_, *workload_);
    Build();
    monitor_.MeasureLink();
    rank_.Synchronise();
  }

  void WarmUp() {
    for (int step = 0; step < config_.warmup_steps && !reached_target_; ++step) Step({});
  }

  // A segment: `steps` measured steps in a row. Of round 1, 2, ...: after a step, or a window of
  // local steps, that is discarded. Round 0: of a trial that takes no turns.
  void Measure(int steps, int round) {
    for (std::uint64_t step = 0; round > 0 && step < window_; ++step) Step({.round = round});
    monitor_.Begin();
    for (int step = 0; step < steps && !reached_target_; ++step) {
      Step({.measured = true, .round = round});
      monitor_.StepIsDone(engine_->HasUnderWay());
    }
    monitor_.End();
  }

  // Compares the replicas, or their anchors, and, on rank 0, writes outcome.json and the series
  // into the trial's directory. turn_seconds: the trial's time so far.
  void Finish(double turn_seconds) {
    const auto begun = std::chrono::steady_clock::now();
    if (local_steps_) {
      engine_->FinishWindows();
      if (!anchors_differ_ && !AnchorsEqualRankZero(rank_, *engine_))
        anchors_differ_ = next_step_ - 1;
    } else if (composition_.strategy->delays) {
      engine_->FinishWindows();
    }
    const bool equal = local_steps_ ? !anchors_differ_ : StateEqualsRankZero(rank_, *workload_);
    const auto violations = rank_.Max({static_cast<std::int64_t>(engine_->mass_violations())})[0];
    const auto fibres = rank_.Max({static_cast<std::int64_t>(engine_->fibres_missing())})[0];
    const StepLog log = GatherSteps(rank_, log_);
    const std::vector<TracedStep> traced =
        GatherSpans(rank_, traced_, rank_.record->ReadClocks().by_rank());
    PrivateFacts facts;
    const Machine machine = MachineOf(rank_, facts);
    const std::optional<Quiet> quiet = monitor_.Gather(facts);
    if (rank_.rank() != 0) return;

    const StepLogContext context = LogContext();
    Outcome outcome;
    outcome.metrics = MetricsOf(log, context);
    if (!evaluations_.empty()) AddConvergence(log, outcome.metrics);
    if (engine_->fibres_checked() > 0) {
      outcome.metrics["fibres_missing"] = {
          static_cast<double>(fibres) / static_cast<double>(engine_->fibres_checked()),
          "of fibres"};
    }
    if (python_seconds_ > 0) {
      outcome.metrics["python_seconds"] = {python_seconds_ / static_cast<double>(measured_),
                                           "seconds"};
    }
    if (local_steps_) AddLocalSteps(outcome.metrics);
    outcome.checks = {{local_steps_ ? "anchors_equal" : "replicas_equal", equal},
                      {"loss_finite", true}};
    if (composition_.sparsifier != nullptr) outcome.checks["mass_conserved"] = violations == 0;
    if (engine_->KeepsMass()) outcome.checks["mass_conserved_over_ranks"] = lost_elements_ == 0;
    const bool passed = equal && violations == 0 && lost_elements_ == 0;
    outcome.status = passed ? TrialStatus::kOk : TrialStatus::kInvalid;
    outcome.reason = passed ? ""
                     : anchors_differ_
                         ? "anchors differ at step " + std::to_string(*anchors_differ_)
                     : !equal         ? "replicas differ at the end"
                     : violations > 0 ? "a selection lost mass"
                                      : "an exchange lost mass: " + std::to_string(lost_elements_) +
                                            " elements of sums and residuals do not add up";
    outcome.machine = machine;
    outcome.quiet = quiet;
    outcome.software = SoftwareOfWorker();
    outcome.plan = engine_->plan().UnitSizes();
    planning_->Describe(outcome);
    outcome.layout = LayoutOf(engine_->layout());
    AddSelection(outcome);
    outcome.rounds = RoundSeconds(log, context.every);
    WriteSteps(rank_.directory, log, context, outcome.series);
    WriteSpans(rank_.directory, traced, outcome.series, context.every);
    if (!evaluations_.empty()) WriteEvaluations(outcome.series);
    if (const std::string said = workload_->Predictions(); !said.empty())
      WriteFileDurably(rank_.directory / "predictions.json", said);
    outcome.turn_seconds = turn_seconds + SecondsSince(begun);
    WriteOutcome(rank_.directory, ToJson(outcome), facts);
  }

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

  void Build() {
    std::vector<TensorShape> tensors;
    for (const std::size_t parameter : ready_order_) {
      const workloads::ParameterInfo& info = workload_->Parameters()[parameter];
      tensors.push_back({info.name, info.shape, info.numel});
    }
    GradientLayout layout = MakeLayout(tensors, config_);
    planning_.emplace(rank_, composition_, topology_, layout, ready_order_);
    Plan plan = planning_->First();
    LiveConfig live =
        MakeLiveConfig(composition_, std::move(layout), std::move(plan), topology_, rank_.seed);
    // The deadline exceeds any single wait, so that the wait that names a rank ends first.
    live.exchange_host_seconds = config_.exchange_host_seconds();
    live.deadline = std::chrono::milliseconds(
        static_cast<std::int64_t>(2000 * config_.deadline_seconds) + 5000);
    live.device = rank_.device;
    live.compute = rank_.compute;
    live.pauses_between_steps = true;
    engine_.emplace(std::move(live), rank_.loop, rank_.pool);
    if (local_steps_) {
      std::vector<ParameterView> inner;
      for (std::size_t array = 0; array < *composition_.inner_arrays; ++array)
        inner.push_back(StateOf(*workload_, 1 + array, ready_order_));
      engine_->BeginWindows(StateOf(*workload_, 0, ready_order_), std::move(inner));
    }

    std::vector<std::size_t> position(workload_->Parameters().size(), kNotInLayout);
    for (std::size_t t = 0; t < ready_order_.size(); ++t) position[ready_order_[t]] = t;
    workload_->SetGradientHook(
        [this, position](std::size_t parameter, const float* gradient, std::size_t numel) {
          if (position[parameter] == kNotInLayout) {
            SPARFUSE_THROW(kInternal, "parameter " + workload_->Parameters()[parameter].name +
                                          " has a gradient, but had none in calibration");
          }
          if (mass_.active()) mass_.Announce(*engine_, position[parameter], {gradient, numel});
          engine_->AnnounceGradient(position[parameter], {gradient, numel});
        });
  }

  // Runs the next step, and an evaluation if one is due.
  void Step(StepPlace place) {
    const std::uint64_t step = next_step_++;
    if (auto plan = planning_->At(step)) engine_->Replan(*std::move(plan));
    engine_->SetDensity(composition_.feedback.DensityFactor(step, composition_.density));
    PrepareStep(rank_, *workload_, step);
    TrainOn(step);
    Log(step, place, engine_->EndStep());
    if (local_steps_) CheckAnchors(step);
    if (step == 0) {  // it needed every rank, so no rank is still starting
      SayMeasuring(rank_, std::to_string(config_.warmup_steps + config_.steps) + " steps");
    }
    const auto every = static_cast<std::uint64_t>(config_.evaluate_every.value_or(0));
    const auto last = static_cast<std::uint64_t>(config_.warmup_steps + config_.steps);
    if (every > 0 && ((step + 1) % every == 0 || step + 1 == last)) Evaluate(step);
  }

  void TrainOn(std::uint64_t step) {
    const int micro_steps = config_.accumulation;
    const std::uint64_t dense = composition_.dense_warmup_steps;
    const bool verified = step < kVerifiedSteps || (step >= dense && step - dense < kVerifiedSteps);
    if (verified && engine_->KeepsMass()) mass_.Begin(*engine_);
    python_before_ = SecondsInPython();
    engine_->BeginStep(step, verified);
    workload_->ClearGradients();
    for (int micro = 0; micro < micro_steps; ++micro) {
      engine_->BeginForward();
      workload_->BeginForward(step, micro);
      engine_->EndForward();
      const bool last = micro + 1 == micro_steps;
      workload_->Backward(last);
      if (!last) engine_->EndMicroStep();
    }
    engine_->EndBackward();
    engine_->FinishStep();
    if (mass_.active()) lost_elements_ += mass_.Violations(*engine_);
    // On an emulated device, the workload's update is not in the stream's order.
    if (rank_.device.kind == DeviceKind::kEmulated) gpu::Synchronize(rank_.compute);
    for (std::size_t t = 0; engine_->HasAverage() && t < ready_order_.size(); ++t) {
      workload_->SetGradient(ready_order_[t], engine_->AveragedOnDevice(t).data);
    }
    engine_->BeginUpdate();
    workload_->Update(step);
    if (local_steps_) Synchronise(step);
  }

  void Log(std::uint64_t step, StepPlace place, const StepRecord& record) {
    LoggedStep logged{static_cast<std::int64_t>(step), place.measured, workload_->MeanLoss(),
                      record, place.round};
    training_seconds_ += record.step_seconds;
    if (!std::isfinite(logged.loss)) {
      SPARFUSE_THROW(kNumeric, "the loss is " + std::to_string(logged.loss) + " at step " +
                                   std::to_string(step));
    }
    logged.record.residual_norm = engine_->ResidualNorm();
    logged.loader_wait_seconds = workload_->TakeLoaderWait();
    // On a card, the wait for a step's data precedes the step.
    if (rank_.device.kind == DeviceKind::kCuda) training_seconds_ += logged.loader_wait_seconds;
    log_.push_back(logged);
    // Without dates, the next exchange begins where one is received.
    if (sent_steps_ == 0 || record.exchanges > 0) sent_steps_ = next_step_;
    planning_->Observe(step, engine_->timeline());
    if (!place.measured) return;
    python_seconds_ += SecondsInPython() - python_before_;
    const std::size_t traced =
        std::max(kTracedSteps, std::min<std::size_t>(window_, kMostTracedSteps));
    if (measured_++ + traced >= static_cast<std::size_t>(config_.steps)) {
      traced_.push_back(
          {logged.step, {engine_->timeline().Sorted()}, {engine_->timeline_began_seconds()}});
    }
  }

  void Evaluate(std::uint64_t step) {
    AverageStatistics(rank_, *workload_);
    if (config_.evaluate == "anchor") {
      engine_->SwapAnchor();
      EvaluateHere(step);
      engine_->SwapAnchor();
    } else if (config_.evaluate == "average") {
      std::vector<float> own(workload_->DeviceState().front().size);
      workload_->CopyState(0, own);
      AverageParameters(rank_, StateOf(*workload_, 0, ready_order_));
      EvaluateHere(step);
      workload_->SetState(0, own);
    } else {
      EvaluateHere(step);
    }
  }

  // Rank 0's workload, with the parameters that the cell wants evaluated. Collective.
  // Rank 0 evaluates while the others wait. Running statistics are averaged over ranks.
  void EvaluateHere(std::uint64_t step) {
    std::int64_t reached = 0;
    double loss = 0;
    if (rank_.rank() == 0) {
      const auto begun = std::chrono::steady_clock::now();
      const workloads::Evaluation evaluation = workload_->Evaluate(descriptor_.evaluation_samples);
      evaluation_seconds_ += SecondsSince(begun);
      const std::uint64_t epoch = workload_->StepsPerEpoch();
      const double epochs =
          epoch == 0 ? 0 : static_cast<double>(step + 1) / static_cast<double>(epoch);
      evaluations_.push_back(
          {.step = static_cast<std::int64_t>(step) + 1,
           .epoch = epochs,
           .samples = std::llround(epochs * static_cast<double>(workload_->TrainingSamples())),
           .seconds = training_seconds_,
           .seconds_with_evaluation = training_seconds_ + evaluation_seconds_,
           .learning_rate = workload_->LearningRateAt(step),
           .evaluation = evaluation});
      loss = evaluation.loss;
      if (config_.target) {
        reached = descriptor_.higher_is_better ? evaluation.metric >= *config_.target
                                               : evaluation.metric <= *config_.target;
      }
    }
    rank_.BroadcastFromZero(std::as_writable_bytes(std::span(&loss, 1)));
    workload_->Observe(loss);
    reached_target_ = rank_.Max({reached})[0] != 0;
  }

  // With local steps, behind the update of a step, and behind the step.
  // Parameters differ most at the last date of a window at which something is sent. Without dates,
  // windows are measured at their ends.
  void Synchronise(std::uint64_t step) {
    const bool dated = !local_steps_->lags() && !local_steps_->when_idle;
    const std::uint64_t ahead = dated ? local_steps_->delay : 0;
    if (step / window_ < verified_windows() && (step + 1 + ahead) % window_ == 0) {
      divergences_.push_back(DivergenceOf(rank_, *engine_, StateOf(*workload_, 0, ready_order_)));
    }
    engine_->Synchronise();
    for (const std::size_t tensor : engine_->Renewed())
      workload_->CountUpdatesFrom(ready_order_[tensor], step + 1);
  }

  void CheckAnchors(std::uint64_t step) {
    if (anchors_differ_ || step / window_ >= verified_windows() || (step + 1) % window_ != 0)
      return;
    if (!AnchorsEqualRankZero(rank_, *engine_)) anchors_differ_ = step;
  }

  // If time is measured, only warm-up windows are verified, because comparing all ranks takes time.
  std::uint64_t verified_windows() const {
    if (config_.kind == TrialKind::kConvergence) return kVerifiedSteps;
    return std::min<std::uint64_t>(kVerifiedSteps,
                                   static_cast<std::uint64_t>(config_.warmup_steps) / window_);
  }

  void AddLocalSteps(MetricValues& metrics) const {
    if (!divergences_.empty()) {
      Divergence sum;
      for (const Divergence& each : divergences_) {
        sum.from_average += each.from_average;
        sum.from_anchor += each.from_anchor;
      }
      const auto windows = static_cast<double>(divergences_.size());
      metrics["replica_divergence"] = {sum.from_average / windows, ""};
      metrics["anchor_distance"] = {sum.from_anchor / windows, ""};
    }
    metrics["method_memory_bytes"] = {static_cast<double>(engine_->method_memory_bytes()), "bytes"};
    if (config_.kind != TrialKind::kConvergence) return;
    std::uint64_t fragments = 1;
    for (const Unit& unit : engine_->plan().units)
      fragments = std::max(fragments, std::uint64_t{unit.date} + 1);
    metrics["unsynchronised_steps"] = {
        static_cast<double>(local_steps_->when_idle ? next_step_ - sent_steps_
                                                    : next_step_ % (window_ / fragments)),
        "steps"};
  }

  void AddSelection(Outcome& outcome) const {
    const auto sparsifier = composition_.MakeSparsifier(0);
    if (sparsifier != nullptr && rank_.device.kind != DeviceKind::kHost) {
      outcome.selection =
          sparsifier->SelectsOnDevice() ? "on the device" : "on the host, copies included";
    }
    const SelectCounters& counters = engine_->select_counters();
    outcome.selection_counters = {
        {"selections", static_cast<std::int64_t>(counters.selections)},
        {"overflows", static_cast<std::int64_t>(counters.overflows)},
        {"fallbacks", static_cast<std::int64_t>(counters.fallbacks)},
        {"mass_checks", static_cast<std::int64_t>(engine_->mass_checks())}};
  }

  StepLogContext LogContext() const {
    StepLogContext context;
    context.dense_elements = static_cast<double>(engine_->layout().numel());
    context.units_per_step = static_cast<double>(rank_.size()) * config_.batch_per_worker *
                             config_.accumulation *
                             static_cast<double>(descriptor_.units_per_sample);
    context.unit = descriptor_.unit;
    context.every = static_cast<int>(window_);
    return context;
  }

  void AddConvergence(const StepLog& log, MetricValues& metrics) const {
    const EvaluatedStep& last = evaluations_.back();
    const std::string unit = descriptor_.metric;
    metrics["final_metric"] = {last.evaluation.metric, unit};
    metrics["final_loss"] = {last.evaluation.loss, "nats"};
    if (reached_target_) {
      metrics["steps_to_target"] = {static_cast<double>(last.step), "steps"};
      metrics["seconds_to_target"] = {last.seconds, "seconds"};
      metrics["seconds_to_target_with_evaluation"] = {last.seconds_with_evaluation, "seconds"};
      metrics["epochs_to_target"] = {last.epoch, "epochs"};
      metrics["samples_to_target"] = {static_cast<double>(last.samples), "samples"};
      metrics["sent_bytes_to_target"] = {SentBytesBefore(log, static_cast<double>(last.step)),
                                         "bytes"};
    }
    if (last.evaluation.exact_match)
      metrics["final_exact_match"] = {*last.evaluation.exact_match, "exact match"};
    if (const auto baseline = workload_->UnigramBaseline())
      metrics["unigram_baseline"] = {*baseline, unit};
  }

  void WriteEvaluations(SeriesByFile& series) const {
    NpyTable table("every evaluation");
    const auto add = [&]<class Value>(const char* name, const char* unit, const Value& value_of) {
      std::vector<std::decay_t<decltype(value_of(evaluations_.front()))>> values;
      for (const EvaluatedStep& evaluated : evaluations_) values.push_back(value_of(evaluated));
      table.AddColumn(name, unit, std::move(values));
    };
    using E = EvaluatedStep;
    add("step", "", [](const E& e) { return e.step; });
    add("epoch", "epochs", [](const E& e) { return e.epoch; });
    add("samples", "samples", [](const E& e) { return e.samples; });
    add("seconds", "seconds", [](const E& e) { return e.seconds; });
    add("seconds_with_evaluation", "seconds", [](const E& e) { return e.seconds_with_evaluation; });
    add("learning_rate", "", [](const E& e) { return e.learning_rate; });
    add("metric", descriptor_.metric.c_str(), [](const E& e) { return e.evaluation.metric; });
    add("loss", "nats", [](const E& e) { return e.evaluation.loss; });
    table.Write(rank_.directory / "evaluations.npy");
    series["evaluations.npy"] = SeriesOf(table);
  }

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
      SayMeasuring(trials[i], trials[i].config.method + ", round " + std::to_string(round + 1) +
                                  " of " + std::to_string(rounds));
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
