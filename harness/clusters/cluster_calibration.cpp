#include "harness/clusters/cluster_calibration.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/engine/model/model_engine.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/profile_data.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using Vector = std::vector<double>;

constexpr std::uint64_t kCalibrationSeed = 1;  // seed of the selections' counts

bool IsSameStep(const ReferenceStep& a, const ReferenceStep& b) {
  return a.workload == b.workload && a.batch_per_worker == b.batch_per_worker &&
         a.workers == b.workers && a.method == b.method && a.method_options == b.method_options &&
         a.sparsifier == b.sparsifier && a.density == b.density && a.link == b.link;
}

std::string ShownStep(const ReferenceStep& step, double value) {
  return step.over ? fmt::format("{:.4g} times", value) : fmt::format("{:.4g} ms", 1e3 * value);
}

StepRecord SimulateReference(const DeclaredCluster& cluster, const ReferenceStep& step) {
  const CellConfig config = CellOf(cluster, step);
  const ProfileOutcomes outcomes = DeclaredProfile(cluster, config);
  const Profile& times = outcomes.front().profile;
  GradientLayout layout = MakeLayout(TensorsOf(times), {}, "workload " + step.workload);
  BackwardProfile backward = BackwardOf(times, layout);
  CostModel cost = KernelCosts(times);
  AddDeclaredLinks(cost, times);
  const Composition composition = Compose(config);
  const ModelConfig model =
      MakeModelConfig(composition, std::move(layout), {step.workers, config.ranks_per_node},
                      std::move(backward), std::move(cost), kCalibrationSeed);
  return SimulateStep(model, composition.usual_step(), 0, Recorded::kTimes).records.front();
}

double PartOf(const StepRecord& record, StepPart part) {
  switch (part) {
    case StepPart::kSparsify:
      return record.sparsify_seconds;
    case StepPart::kExposed:
      return record.exposed_communication_seconds + record.decompress_seconds;
    case StepPart::kStep:
      break;
  }
  return record.step_seconds;
}

const InputSpec& SpecOf(const std::string& name) {
  return *std::ranges::find_if(InputSpecs(),
                               [&](const InputSpec& spec) { return name == spec.name; });
}

// The modelled time of the step's part, or its ratio to the part of another step.
template <class Simulate>
double ModelledWith(const ReferenceStep& step, Simulate simulate) {
  const double value = PartOf(simulate(step), step.part);
  return step.over ? value / PartOf(simulate(*step.over), step.over->part) : value;
}

// Runs Levenberg-Marquardt on logarithms of the inputs and of modelled over measured times. A
// simulation of the slopes costs as much as one step per input. The search therefore simulates them
// only at its beginning and its apparent end. In between, each step updates them (Broyden, by row).
class LeastSquares {
 public:
  explicit LeastSquares(DeclaredCluster& cluster) : cluster_(cluster) {
    for (DeclaredInput& input : cluster.inputs) {
      if (!input.calibrated) continue;
      if (input.value <= 0) {
        SPARFUSE_THROW(kConfig, fmt::format("calibrate: input {} = {:g}: expected a value above 0 "
                                            "to begin with",
                                            input.name, input.value));
      }
      const Range values = SpecOf(input.name).values;
      constexpr double kWay = 1e6;  // from the starting value
      least_.push_back(std::log(std::max(values.least, input.value / kWay)));
      most_.push_back(std::log(std::min(values.most, input.value * kWay)));
      at_.push_back(std::log(input.value));
      begin_.push_back(at_.back());
      solved_.push_back(&input);
      std::vector<bool> affected;
      for (const ReferenceStep& step : cluster.references) affected.push_back(Affects(input, step));
      affects_.push_back(std::move(affected));
    }
  }

  // Starts at the current inputs, whose slopes are like `near`.
  void Solve(const CalibrationSlopes& near) { Take(Descend(at_, near)); }

  // The slopes at the current inputs.
  CalibrationSlopes SlopesHere() { return Slopes(Residuals(at_)); }

  // Starts at the current inputs and, if that leaves a reference far off, also elsewhere.
  void SolveFromSeveral() {
    const Vector declared = at_;
    Solution best = Descend(declared);
    if (const std::vector<std::size_t> far = FarOff(best); !far.empty()) {
      for (const Vector& begin : Grid(declared, best, far)) {
        Solution found = Descend(begin);
        if (Squares(found.off) < Squares(best.off)) best = std::move(found);
      }
    }
    Remark(best);
    Take(best);
  }

 private:
  static constexpr double kFlat = 1e-6;  // a change of logarithms

  struct Solution {
    Vector at, off;
  };

  static double Product(const Vector& a, const Vector& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }
  static double Squares(const Vector& values) { return Product(values, values); }

  // The references that the solution does not meet.
  static std::vector<std::size_t> FarOff(const Solution& solution) {
    constexpr double kNear = 0.02;
    std::vector<std::size_t> far;
    for (std::size_t r = 0; r < solution.off.size(); ++r) {
      if (std::abs(solution.off[r]) >= kNear) far.push_back(r);
    }
    return far;
  }

  // The best starting points of a grid that scales all inputs, or the inputs of one name, up or
  // down. A point counts only if it moves one of the references in `far`.
  std::vector<Vector> Grid(const Vector& declared, const Solution& best,
                           const std::vector<std::size_t>& far) {
    std::vector<std::string> names = {""};
    for (const DeclaredInput* input : solved_) {
      if (std::ranges::find(names, input->name) == names.end()) names.push_back(input->name);
    }
    if (names.size() == 2) names.pop_back();  // all inputs have this name
    const auto is_far = [&](std::size_t r) { return std::ranges::count(far, r) > 0; };
    std::vector<std::pair<double, Vector>> grid;
    for (const double factor :
         {1.0 / 4096, 1.0 / 512, 1.0 / 64, 1.0 / 8, 8.0, 64.0, 512.0, 4096.0}) {
      for (const std::string& name : names) {
        Vector at = declared;
        for (std::size_t i = 0; i < at.size(); ++i) {
          if (name.empty() || solved_[i]->name == name)
            at[i] = std::clamp(at[i] + std::log(factor), least_[i], most_[i]);
        }
        const Vector off = Residuals(at, best.off, is_far);
        if (std::ranges::none_of(
                far, [&](std::size_t r) { return std::abs(off[r] - best.off[r]) > kFlat; })) {
          continue;
        }
        grid.emplace_back(Squares(Residuals(at, off, [&](std::size_t r) { return !is_far(r); })),
                          std::move(at));
      }
    }
    std::ranges::stable_sort(grid, {}, &std::pair<double, Vector>::first);
    constexpr std::size_t kMostBeginnings = 3;
    std::vector<Vector> beginnings;
    for (auto& [squares, at] : grid) {
      if (beginnings.size() < kMostBeginnings) beginnings.push_back(std::move(at));
    }
    return beginnings;
  }

  // slopes: of a nearby point; empty if they must be simulated.
  Solution Descend(const Vector& begin, CalibrationSlopes slopes = {}) {
    at_ = begin;
    constexpr int kMostSteps = 60;
    constexpr double kDone = 1e-7;
    // The least relative gain in the squares. References that nothing meets dominate the sum, and
    // at jumps of a planner's choice, shorter and shorter steps gain less and less. Gains are
    // judged at points with simulated slopes, so that one more such step meets whatever can be met.
    constexpr double kNoBetter = 1e-6;
    constexpr double kDamping = 1e-3;
    Vector off = Residuals(at_);
    bool simulated = slopes.size() != at_.size();  // whether the slopes are simulated at this point
    if (simulated) slopes = Slopes(off);
    double damping = kDamping;
    for (int step = 0; step < kMostSteps && Squares(off) > kDone * kDone; ++step) {
      const double before = Squares(off);
      const bool by_simulated = simulated;
      double moved = 0;
      bool better = false;
      for (; damping < 1e8 && !better; damping *= 4) {
        const Vector next = Step(slopes, off, damping);
        moved = 0;
        for (std::size_t i = 0; i < at_.size(); ++i) moved += std::abs(next[i] - at_[i]);
        if (moved < kDone) break;
        Vector next_off = Residuals(next);
        better = Squares(next_off) < before;
        Follow(slopes, next, off, next_off);
        simulated = false;
        if (!better && !by_simulated) break;  // a shorter step would not help old slopes
        if (!better) continue;
        at_ = next;
        off = std::move(next_off);
      }
      if (better && before - Squares(off) >= kNoBetter * before) {
        damping = std::max(1e-9, damping / 40);
        continue;
      }
      if (by_simulated) break;
      slopes = Slopes(off);
      simulated = true;
      damping = kDamping;
    }
    return {at_, std::move(off)};
  }

  // Sets the cluster to the solution.
  void Take(const Solution& solution) {
    at_ = solution.at;
    Residuals(at_);
  }

  // Adds a remark to each input that the references do not determine, with the reason.
  void Remark(const Solution& solution) {
    constexpr double kAtEnd = 1e-9;
    at_ = solution.at;
    const CalibrationSlopes slopes = Slopes(solution.off);
    for (std::size_t i = 0; i < at_.size(); ++i) {
      DeclaredInput& input = *solved_[i];
      const bool flat =
          std::ranges::all_of(slopes[i], [](double slope) { return std::abs(slope) < kFlat; });
      // A logarithm never reaches 0: the search stops where the rest of the way changes nothing.
      const bool to_nothing = SpecOf(input.name).values.least <= 0 && at_[i] < begin_[i] &&
                              Moves(solution, i, begin_[i]) && !Moves(solution, i, least_[i]);
      if (to_nothing) {
        input.remark = "practically 0, the end of its range: the references ask for less";
      } else if (flat) {
        input.remark = "no reference depends on it: its slope is 0 here";
      } else if (at_[i] <= least_[i] + kAtEnd || at_[i] >= most_[i] - kAtEnd) {
        input.remark = "at the end of its range: the references ask for more";
      }
    }
  }

  // Whether a reference changes if input i moves from the solution to `where`.
  bool Moves(const Solution& solution, std::size_t i, double where) {
    constexpr double kNoticed = 1e-3;  // a change of a logarithm
    Vector at = solution.at;
    at[i] = where;
    const Vector off = Residuals(at, solution.off, [&](std::size_t r) { return affects_[i][r]; });
    for (std::size_t r = 0; r < off.size(); ++r) {
      if (std::abs(off[r] - solution.off[r]) > kNoticed) return true;
    }
    return false;
  }

  // Whether the input applies to the reference's workload.
  bool Affects(const DeclaredInput& input, const ReferenceStep& step) const {
    const std::string_view family = workloads::FindWorkload(step.workload).family();
    return std::as_const(cluster_).Find(input.name, family) == &input;
  }

  Vector Residuals(const Vector& at) {
    return Residuals(at, {}, [](std::size_t) { return true; });
  }

  // Computes the residuals of the references for which `asked` is true, and takes the others from
  // `before`.
  template <class Asked>
  Vector Residuals(const Vector& at, Vector before, Asked asked) {
    for (std::size_t i = 0; i < at.size(); ++i) solved_[i]->value = std::exp(at[i]);
    Vector off = std::move(before);
    off.resize(cluster_.references.size());
    std::vector<std::pair<const ReferenceStep*, StepRecord>> simulated;
    const auto simulate = [&](const ReferenceStep& step) {
      for (const auto& [known, record] : simulated) {
        if (IsSameStep(*known, step)) return record;
      }
      return simulated.emplace_back(&step, SimulateReference(cluster_, step)).second;
    };
    for (std::size_t r = 0; r < off.size(); ++r) {
      if (!asked(r)) continue;
      ReferenceStep& step = cluster_.references[r];
      step.modelled = ModelledWith(step, simulate);
      constexpr double kNothing = 1e-12;  // seconds
      off[r] = std::log(std::max(step.modelled, kNothing) / step.measured);
    }
    return off;
  }

  CalibrationSlopes Slopes(const Vector& off) {
    constexpr double kStep = 1e-3;
    CalibrationSlopes slopes;
    for (std::size_t i = 0; i < at_.size(); ++i) {
      Vector moved = at_;
      const double way = moved[i] + kStep <= most_[i] ? kStep : -kStep;
      moved[i] += way;
      Vector slope = Residuals(moved, off, [&](std::size_t r) { return affects_[i][r]; });
      for (std::size_t r = 0; r < slope.size(); ++r) slope[r] = (slope[r] - off[r]) / way;
      slopes.push_back(std::move(slope));
    }
    return slopes;
  }

  // Makes the least change to each residual's slopes after which they predict the effect of the
  // step from at_ to `next`.
  void Follow(CalibrationSlopes& slopes, const Vector& next, const Vector& off,
              const Vector& next_off) const {
    for (std::size_t r = 0; r < off.size(); ++r) {
      double missing = next_off[r] - off[r], squares = 0;
      const auto way = [&](std::size_t i) { return affects_[i][r] ? next[i] - at_[i] : 0.0; };
      for (std::size_t i = 0; i < at_.size(); ++i) {
        missing -= slopes[i][r] * way(i);
        squares += way(i) * way(i);
      }
      if (squares == 0) continue;
      for (std::size_t i = 0; i < at_.size(); ++i) slopes[i][r] += missing / squares * way(i);
    }
  }

  // One step from at_ by the damped normal equations, within the inputs' ranges.
  Vector Step(const CalibrationSlopes& slopes, const Vector& off, double damping) const {
    const std::size_t n = at_.size();
    std::vector<Vector> rows(n, Vector(n + 1));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) rows[i][j] = Product(slopes[i], slopes[j]);
      constexpr double kLeast = 1e-12;  // an input without effect stays
      rows[i][i] += damping * rows[i][i] + kLeast;
      rows[i][n] = -Product(slopes[i], off);
    }
    for (std::size_t i = 0; i < n; ++i) {  // Gaussian elimination with pivoting
      std::size_t pivot = i;
      for (std::size_t j = i + 1; j < n; ++j) {
        if (std::abs(rows[j][i]) > std::abs(rows[pivot][i])) pivot = j;
      }
      std::swap(rows[i], rows[pivot]);
      for (std::size_t j = 0; j < n; ++j) {
        if (j == i) continue;
        const double factor = rows[j][i] / rows[i][i];
        for (std::size_t k = i; k <= n; ++k) rows[j][k] -= factor * rows[i][k];
      }
    }
    Vector next = at_;
    constexpr double kFurthest = 1.5;  // the largest change of a logarithm in one step
    for (std::size_t i = 0; i < n; ++i) {
      const double way = std::clamp(rows[i][n] / rows[i][i], -kFurthest, kFurthest);
      next[i] = std::clamp(next[i] + way, least_[i], most_[i]);
    }
    return next;
  }

  DeclaredCluster& cluster_;
  std::vector<DeclaredInput*> solved_;
  std::vector<std::vector<bool>> affects_;  // by input and reference
  Vector at_, begin_, least_, most_;        // logarithms
};

[[noreturn]] void FailToMeet(const DeclaredCluster& cluster, const ReferenceStep& step) {
  const StepRecord record = SimulateReference(cluster, step);
  std::vector<std::string> inputs;
  for (const DeclaredInput& input : cluster.inputs) {
    if (!input.calibrated) continue;
    inputs.push_back(fmt::format("{} = {:.4g}{}", input.name, input.value,
                                 input.remark.empty() ? "" : " (" + input.remark + ")"));
  }
  SPARFUSE_THROW(
      kConfig,
      fmt::format("{} of {} with {} on {} workers: {} measured, {} modelled at the nearest"
                  ", with {}. Of its {:.4g} ms forward and backward take {:.4g}, "
                  "sparsification {:.4g}, exposed communication {:.4g}, decompression {:.4g}, the "
                  "update {:.4g}: expected inputs that leave room for the measured time",
                  kStepPartNames[static_cast<std::size_t>(step.part)], step.workload, step.method,
                  step.workers, ShownStep(step, step.measured), ShownStep(step, step.modelled),
                  fmt::join(inputs, ", "), record.step_seconds * 1e3,
                  (record.forward_seconds + record.backward_seconds) * 1e3,
                  record.sparsify_seconds * 1e3, record.exposed_communication_seconds * 1e3,
                  record.decompress_seconds * 1e3, record.update_seconds * 1e3));
}

constexpr double kGradientBytes = 4;
constexpr double kGbps = 1e9 / 8;  // bytes a second

bool SendsDense(const ReferenceStep& step) {
  return step.sparsifier == "none" && step.method_options.collective == "ring-allreduce";
}

}  // namespace

CellConfig CellOf(const DeclaredCluster& cluster, const ReferenceStep& step) {
  CellConfig config;
  config.workload = step.workload;
  config.workload_options =
      ResolveOptions("workload " + step.workload,
                     OptionsWithoutRecipe(workloads::FindWorkload(step.workload)), {});
  config.batch_per_worker = step.batch_per_worker;
  config.workers = step.workers;
  config.ranks_per_node = std::min(cluster.ranks_per_node, step.workers);
  config.cluster = cluster.name;
  config.link = step.link;
  config.method = step.method;
  config.method_options = step.method_options;
  config.sparsifier = step.sparsifier;
  config.density = step.density;
  config.feedback = step.feedback;
  return config;
}

double Modelled(const DeclaredCluster& cluster, const ReferenceStep& step) {
  return ModelledWith(step,
                      [&](const ReferenceStep& of) { return SimulateReference(cluster, of); });
}

void CalibrateOnSteps(DeclaredCluster& cluster) {
  LeastSquares(cluster).SolveFromSeveral();
  std::size_t solved = 0;
  for (DeclaredInput& input : cluster.inputs) {
    if (!input.calibrated) continue;
    input.kind = "calibrated";
    input.low = input.high = input.value;
    ++solved;
  }
  if (cluster.references.size() > solved) return;
  constexpr double kQuarter = 0.2231;  // of a logarithm: a quarter off
  for (const ReferenceStep& step : cluster.references) {
    if (std::abs(std::log(step.modelled / step.measured)) > kQuarter) FailToMeet(cluster, step);
  }
}

CalibrationSlopes SlopesOf(DeclaredCluster cluster) { return LeastSquares(cluster).SlopesHere(); }

void RecalibrateOnSteps(DeclaredCluster& cluster, const CalibrationSlopes& near) {
  LeastSquares(cluster).Solve(near);
}

RateBounds RateBoundsOf(std::string_view workload, int ranks, int nodes, double exposed_seconds,
                        double longest_seconds) {
  const double gradients =
      kGradientBytes * static_cast<double>(workloads::LayersOf(workload).numel());
  const auto sent = [&](double count) { return 2 * (count - 1) / count * gradients; };
  RateBounds rate;
  rate.least_bytes = sent(nodes);
  rate.most_bytes = sent(ranks);
  rate.least = rate.least_bytes / longest_seconds / kGbps;
  rate.most = exposed_seconds > 0 ? rate.most_bytes / exposed_seconds / kGbps
                                  : std::numeric_limits<double>::infinity();
  return rate;
}

std::optional<ImpliedRate> ImpliedRateOf(const DeclaredCluster& cluster,
                                         const ReferenceStep& step) {
  if (step.workers <= cluster.ranks_per_node || step.part == StepPart::kSparsify || step.over ||
      !SendsDense(step)) {
    return std::nullopt;
  }
  const ProfileOutcomes outcomes = DeclaredProfile(cluster, CellOf(cluster, step));
  const Profile& profile = outcomes.front().profile;
  const BackwardTimes& compute = *profile.backward;
  const double backward = compute.backward_seconds();
  double exposed = step.measured;
  if (step.part == StepPart::kStep)
    exposed -= compute.forward_seconds + backward + compute.update_seconds;
  const int nodes = (step.workers + cluster.ranks_per_node - 1) / cluster.ranks_per_node;
  ImpliedRate rate;
  static_cast<RateBounds&>(rate) =
      RateBoundsOf(step.workload, step.workers, nodes, exposed, std::max(exposed, 0.0) + backward);
  rate.nominal = (step.link ? step.link->gbps : cluster.Value("inter_node_gbps")) *
                 cluster.Value("network_cards");
  const auto delivered = [&](const char* link) {
    return 1 / profile.links.at(link).seconds_per_byte / kGbps;
  };
  rate.delivered = delivered("inter_node");
  if (cluster.ranks_per_node > 1)
    rate.delivered = std::min(rate.delivered, delivered("intra_node"));
  return rate;
}

std::string RateConflict(const DeclaredCluster& cluster, const ReferenceStep& step) {
  const auto rate = ImpliedRateOf(cluster, step);
  if (!rate) return "";
  const std::string of =
      fmt::format("{} of {} with {} on {} workers",
                  step.part == StepPart::kStep ? "a step" : "exposed communication", step.workload,
                  step.method, step.workers);
  constexpr double kTooMuch = 1.05, kTooLittle = 0.5;
  if (rate->least > kTooMuch * rate->nominal) {
    return fmt::format(
        "{} sends {:.4g} MB or more out of a node: with all of backward to hide in that is {:.4g} "
        "Gbit/s, and the nominal rate is {:g} (inter_node_gbps, network_cards): the network is "
        "faster than declared, or the time belongs to another step",
        of, 1e-6 * rate->least_bytes, rate->least, rate->nominal);
  }
  if (rate->most < kTooLittle * rate->delivered) {
    return fmt::format(
        "{} sends {:.4g} MB out of a node by a ring: in its exposed time that is {:.4g} Gbit/s at "
        "most, and {:.4g} are declared as delivered ({:g} nominal): the network is slower than its "
        "label, or the host takes the time (exchange_host_*)",
        of, 1e-6 * rate->most_bytes, rate->most, rate->delivered, rate->nominal);
  }
  return "";
}

}  // namespace sparfuse::harness
