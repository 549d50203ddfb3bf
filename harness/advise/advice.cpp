#include "harness/advise/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr double kDefaultDensity = 0.01;
constexpr double kBandwidths[] = {0.25, 0.5, 1, 2, 4};
constexpr double kTriedDensities[] = {0.001, 0.01, 0.1};
constexpr double kContender = 2;  // multiple of the winner's step time
constexpr double kTie = 1e-4;

// Throws Error{kConfig} that names the option if the value does not suit the key.
void CheckOption(const char* option, const char* key, const json& value) {
  const std::string wrong = WhatIsWrong(key, value);
  if (!wrong.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("--{} {}: expected {}", option, Shown(value), wrong));
  }
}

// Stands for the file in which cells are resolved. There is none, so errors lose its name and line.
constexpr const char* kNoFile = "sparfuse advise";
std::string WithoutPlace(const std::string& message) {
  const std::string place = std::string(kNoFile) + ":1: ";
  return message.starts_with(place) ? message.substr(place.size()) : message;
}

double UnitsPerStep(const CellConfig& cell) {
  return static_cast<double>(cell.workers) * cell.batch_per_worker * cell.accumulation *
         static_cast<double>(workloads::FindWorkload(cell.workload).units_per_sample);
}

template <class Value>
void SortUnique(std::vector<Value>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// Checks everything that can be checked before calibration.
AdviceRequest CheckedRequest(const Catalog& catalog, const ProfileFolders& profiles,
                             AdviceRequest request) {
  if (!workloads::IsTable(request.workload) && !request.workload.ends_with(".json"))
    NeedEntry(catalog.workloads, "workload", request.workload);
  NeedCluster(profiles, request.cluster);
  for (const std::string& method : request.methods) NeedEntry(catalog.methods, "method", method);
  if (request.sparsifier) NeedEntry(catalog.sparsifiers, "sparsifier", *request.sparsifier);
  for (const int workers : request.workers) CheckOption("workers", "workers", workers);
  for (const double density : request.densities) CheckOption("density", "density", density);
  if (request.batch) CheckOption("batch", "batch_per_worker", *request.batch);
  return request;
}

// How many times as fast steps of `of` are as steps of `over`, with a band if both have draws.
Interval TimesAsFast(double of, const std::vector<double>& of_draws, double over,
                     const std::vector<double>& over_draws) {
  const double ratio = over / of;
  if (of_draws.empty() || of_draws.size() != over_draws.size()) return {ratio, ratio, ratio, 1};
  std::vector<double> draws;
  for (std::size_t i = 0; i < of_draws.size(); ++i) draws.push_back(over_draws[i] / of_draws[i]);
  return BandOfDraws(ratio, std::move(draws));
}

// Whether the ratio is 1, except for rounding.
bool IsOne(const Interval& ratio) {
  constexpr double kRounding = 1e-9;
  return ratio.low > 1 - kRounding && ratio.high < 1 + kRounding;
}

constexpr double kBytesAnElement = 4 * sizeof(float);
constexpr double kBytesAnOutput = 2 * sizeof(float);
constexpr double kMostlyEmpty = 0.25;  // a card with less in use is mostly empty
constexpr double kHalfFull = 0.5;
constexpr int kMostBatch = 1 << 20;

// The output elements of kernels and matrices for one sample. Each output element takes as many
// multiply-accumulates as a row of the weight has elements.
double OutputsOf(const workloads::LayerTable& layers) {
  double outputs = 0;
  for (const workloads::LayerTensor& tensor : layers.tensors) {
    if (tensor.macs <= 0 || tensor.shape.empty() || tensor.numel == 0) continue;
    outputs +=
        tensor.macs * static_cast<double>(tensor.shape.front()) / static_cast<double>(tensor.numel);
  }
  return outputs;
}

// Factors on the declared rate. No real network lies beyond them.
constexpr double kLowest = 1e-4, kHighest = 1e4;
constexpr double kClose = 0.01;

// The least x from kLowest to kHighest with utilisation(x) >= wanted, which must grow with x.
template <class Utilisation>
std::optional<double> LeastFor(double wanted, Utilisation utilisation) {
  if (utilisation(kHighest) < wanted) return std::nullopt;
  double low = std::log(kLowest), high = std::log(kHighest);
  while (high - low > kClose / 2) {
    const double middle = (low + high) / 2;
    (utilisation(std::exp(middle)) >= wanted ? high : low) = middle;
  }
  return std::exp(high);
}

SentInWindows SentBy(const CellConfig& cell, const StepModel& model) {
  const Composition method = Compose(cell);
  SentInWindows sent;
  sent.steps = cell.method_options.window_steps();
  sent.bytes = model.sent_bytes * sent.steps;
  sent.compute_seconds = model.compute_seconds;
  if (const auto local = method.local_steps()) sent.delay = static_cast<int>(local->delay);
  if (method.strategy->delays) sent.delay = 1;
  if (method.planner->name == kFragmentsPlanner)
    sent.exchanges = static_cast<int>(IntOption(method.planner_options, "fragments"));
  return sent;
}

}  // namespace

Adviser::Adviser(const Catalog& catalog, const ProfileFolders& profiles, AdviceRequest request,
                 ProfileOutcomes measured, AdviceProgress progress)
    : catalog_(catalog),
      profiles_(profiles),
      request_(CheckedRequest(catalog, profiles, std::move(request))),
      progress_(std::move(progress)),
      cluster_(profiles, request_.cluster, std::move(measured)),
      pool_(Processors()) {
  if (request_.workers.empty()) request_.workers = DefaultWorkers();
  if (request_.densities.empty()) request_.densities = {kDefaultDensity};
  SortUnique(request_.workers);
  SortUnique(request_.densities);
  for (const std::string& method : Names(catalog.methods)) {
    const auto& wanted = request_.methods;
    if (wanted.empty() || std::ranges::count(wanted, method) > 0) asked_.push_back(method);
  }
  with_dense_ = asked_;
  if (std::ranges::find(asked_, "dense") == asked_.end()) with_dense_.emplace_back("dense");
  // An error of the question is an error for dense, too.
  for (const int workers : request_.workers) {
    const CellConfig dense = CellOf("dense", workers, request_.densities.front());
    if (cluster_.declared() == nullptr) cluster_.Profiles(dense, 0);
  }
}

std::vector<int> Adviser::DefaultWorkers() const {
  const DeclaredCluster* declared = cluster_.declared();
  if (declared == nullptr) return {2, 4, 8};
  const int devices = declared->ranks();
  std::vector<int> workers;
  for (const int part : {4, 2, 1}) {
    if (devices % part == 0 && devices / part > 1) workers.push_back(devices / part);
  }
  return workers.empty() ? std::vector<int>{devices} : workers;
}

CellConfig Adviser::CellOf(const std::string& method, int workers, double density) const {
  GivenKeys given;
  const auto give = [&](const char* key, json value) {
    given[key] = GivenValue{std::move(value), "", false};
  };
  give("mode", "modelled");
  give("workload", request_.workload);
  give("cluster", request_.cluster);
  give("method", method);
  give("workers", workers);
  give("density", density);
  if (request_.batch) give("batch_per_worker", *request_.batch);
  if (request_.link) give("link", ToJson(request_.link));
  const Method& known = NeedEntry(catalog_.methods, "method", method);
  if (request_.sparsifier && !known.dense() && !known.sparsifier_fixed)
    give("sparsifier", *request_.sparsifier);
  try {
    return ResolveCell({TomlFile::Parse("", kNoFile), catalog_, profiles_}, "", given);
  } catch (const Error& error) {
    throw Error(error.kind(), WithoutPlace(error.what()));
  }
}

std::vector<LeftOut> Adviser::Model(const std::vector<Point>& points, bool draws,
                                    const std::string& doing, const std::vector<std::string>* of) {
  std::vector<LeftOut> left_out;
  const auto leave_out = [&](const std::string& method, int workers, const std::string& reason) {
    if (std::ranges::count(asked_, method) == 0) return;  // dense was only added for comparison
    const auto same = std::ranges::find_if(left_out, [&](const LeftOut& each) {
      return each.method == method && each.reason == reason;
    });
    LeftOut& entry = same != left_out.end() ? *same : left_out.emplace_back(method, reason);
    entry.workers.push_back(workers);
    SortUnique(entry.workers);
  };
  std::vector<Modelled*> missing;
  for (const Point& point : points) {
    for (const std::string& method : of != nullptr ? *of : with_dense_) {
      const auto known = keys_.find({method, point});
      Key key;
      if (known == keys_.end()) {
        CellConfig cell;
        try {
          cell = CellOf(method, point.workers, point.density);
        } catch (const Error& error) {
          leave_out(method, point.workers, error.what());
          continue;
        }
        key = {ConfigHash(cell), point.bandwidth};
        keys_[{method, point}] = key;
        modelled_.try_emplace(key, Modelled{std::move(cell), point.bandwidth, {}, {}, false, ""});
      } else {
        key = known->second;
      }
      Modelled& modelled = modelled_.at(key);
      if (!modelled.failure.empty()) continue;
      const bool lacks = modelled.step.seconds == 0 || (draws && !modelled.has_draws);
      if (lacks && std::ranges::find(missing, &modelled) == missing.end())
        missing.push_back(&modelled);
    }
  }
  std::mutex mutex;
  std::size_t done = 0;
  const bool shown = progress_ && !doing.empty();
  if (shown) progress_(doing, 0, missing.size());
  pool_.ParallelFor(missing.size(), [&](std::size_t i, int) {
    Modelled& each = *missing[i];
    try {
      const TrialConfig trial = FirstTrial(each.cell);
      KnownLayout layout;
      if (each.step.seconds == 0)
        each.step = ModelSteps(trial, cluster_.Profiles(each.cell, 0, each.bandwidth),
                               Recorded::kTimes, &layout);
      if (draws && cluster_.HasDraws(each.cell)) {
        for (int draw = 1; draw <= kDraws; ++draw) {
          each.draws.push_back(
              ModelUsualStep(trial, cluster_.Profiles(each.cell, draw, each.bandwidth), &layout)
                  .seconds);
        }
      }
      each.has_draws = each.has_draws || draws;
    } catch (const std::exception& error) {
      each.failure = error.what();
    }
    const std::lock_guard lock(mutex);
    if (shown) progress_(doing, ++done, missing.size());
  });
  for (const Modelled* each : missing) {
    if (!each->failure.empty()) leave_out(each->cell.method, each->cell.workers, each->failure);
  }
  return left_out;
}

const Adviser::Modelled* Adviser::Find(const std::string& method, const Point& point) const {
  const auto key = keys_.find({method, point});
  if (key == keys_.end()) return nullptr;
  const Modelled& modelled = modelled_.at(key->second);
  return modelled.failure.empty() && modelled.step.seconds > 0 ? &modelled : nullptr;
}

std::vector<const Adviser::Modelled*> Adviser::Ordered(const Point& point) const {
  std::vector<const Modelled*> order;
  for (const std::string& method : asked_) {
    if (const Modelled* each = Find(method, point)) order.push_back(each);
  }
  std::ranges::stable_sort(order, {}, [](const Modelled* each) { return each->step.seconds; });
  return order;
}

Ranking Adviser::Rank(const Point& point) const {
  Ranking ranking;
  ranking.workers = point.workers;
  ranking.density = point.density;
  const std::vector<const Modelled*> order = Ordered(point);
  const Modelled* dense = Find("dense", point);
  for (const Modelled* each : order) {
    RankedMethod ranked;
    ranked.cell = each->cell;
    ranked.step_seconds = each->step.seconds;
    ranked.formulas = each->step.formulas;
    const double units = UnitsPerStep(each->cell);
    const double rate = units / each->step.seconds;
    ranked.throughput = {rate, rate, rate, 1};
    if (!each->draws.empty()) {
      std::vector<double> rates;
      for (const double seconds : each->draws) rates.push_back(units / seconds);
      ranked.throughput = BandOfDraws(rate, std::move(rates));
    }
    const auto times_as_fast_as = [&](const Modelled& over) {
      return TimesAsFast(each->step.seconds, each->draws, over.step.seconds, over.draws);
    };
    ranked.over_best = times_as_fast_as(*order.front());
    ranked.equal = each != order.front() && IsOne(ranked.over_best);
    ranked.undecided = each != order.front() && !ranked.equal && ranked.over_best.high >= 1;
    if (dense != nullptr) ranked.over_dense = times_as_fast_as(*dense);
    ranking.methods.push_back(std::move(ranked));
  }
  return ranking;
}

void Adviser::AddSweeps(Advice& advice) {
  std::vector<int> workers = request_.workers;
  if (const DeclaredCluster* declared = cluster_.declared()) {
    for (int count = std::max(2, declared->ranks_per_node); count <= declared->ranks(); count *= 2)
      workers.push_back(count);
  }
  SortUnique(workers);
  std::vector<double> densities(std::begin(kTriedDensities), std::end(kTriedDensities));
  densities.insert(densities.end(), request_.densities.begin(), request_.densities.end());
  SortUnique(densities);
  advice.fixed_bandwidth = request_.link ? "--link gives it" : cluster_.WhyFixedBandwidth();

  struct Line {
    Sweep sweep;
    std::vector<std::pair<double, Point>> points;
  };
  std::vector<Line> lines;
  const double gbps =
      cluster_.declared() != nullptr ? cluster_.declared()->Value("inter_node_gbps") : 0;
  for (const double density : request_.densities) {
    for (const int count : request_.workers) {
      // Within a node no message uses the network.
      const DeclaredCluster* declared = cluster_.declared();
      if (!advice.fixed_bandwidth.empty() || count <= declared->ranks_per_node) continue;
      Line& line = lines.emplace_back(Sweep{"inter_node_gbps", count, density, {}});
      for (const double factor : kBandwidths)
        line.points.push_back({factor * gbps, Point{count, density, factor}});
    }
    Line& line = lines.emplace_back(Sweep{"workers", 0, density, {}});
    for (const int count : workers)
      line.points.push_back({static_cast<double>(count), Point{count, density}});
  }
  for (const int count : request_.workers) {
    Line& line = lines.emplace_back(Sweep{"density", count, 0, {}});
    for (const double density : densities) line.points.push_back({density, Point{count, density}});
  }
  std::vector<Point> points;
  for (const Line& line : lines) {
    for (const auto& [at, point] : line.points) points.push_back(point);
  }
  Model(points, false, "changes of the order");
  for (Line& line : lines) {
    for (const auto& [at, point] : line.points) {
      const std::vector<const Modelled*> order = Ordered(point);
      if (order.empty()) continue;
      auto& winners = line.sweep.winners;
      // Among methods with the same plan here, only rounding would choose a winner.
      const Modelled* before = winners.empty() ? nullptr : Find(winners.back().second, point);
      const bool tie =
          before != nullptr && before->step.seconds < (1 + kTie) * order.front()->step.seconds;
      const std::string winner = (tie ? before : order.front())->cell.method;
      if (!winners.empty() && winners.back().second != winner) {
        advice.changes.push_back({line.sweep.along, winners.back().first, at, winners.back().second,
                                  winner, line.sweep.workers, line.sweep.density});
      }
      winners.emplace_back(at, winner);
    }
    advice.sweeps.push_back(std::move(line.sweep));
  }
}

void Adviser::AddDeciding(Advice& advice) {
  if (cluster_.declared() == nullptr) return;
  if (progress_) progress_("calibrating with each input at its ends", 0, 0);
  cluster_.PrepareEnds();
  std::size_t done = 0;
  const std::string doing = "deciding inputs";
  if (progress_) progress_(doing, 0, advice.rankings.size());
  for (Ranking& ranking : advice.rankings) {
    const CellConfig& best = ranking.methods.front().cell;
    const auto second = std::find_if(ranking.methods.begin() + 1, ranking.methods.end(),
                                     [](const RankedMethod& each) { return !each.equal; });
    std::vector<const CellConfig*> two = {&best};
    if (second != ranking.methods.end()) {
      two.push_back(&second->cell);
      ranking.second = second->cell.method;
      ranking.deciding = EffectsOfInputs(cluster_, best, second->cell, pool_);
    }
    std::vector<ExposedShare> exposed(two.size());
    pool_.ParallelFor(two.size(),
                      [&](std::size_t i, int) { exposed[i] = ExposedOf(cluster_, *two[i]); });
    for (std::size_t i = 0; i < two.size(); ++i) {
      if (exposed[i].mostly_not_links()) ranking.exposed.emplace_back(two[i]->method, exposed[i]);
    }
    if (progress_) progress_(doing, ++done, advice.rankings.size());
  }
}

void Adviser::AddBuffers(Advice& advice) const {
  const DeclaredCluster* declared = cluster_.declared();
  const CellConfig& cell = advice.rankings.front().methods.front().cell;
  advice.buffer_bytes = workloads::BroadcastBytesOf(cell.workload);
  if (declared == nullptr || advice.buffer_bytes == 0) return;
  advice.buffers = kBuffersNames[static_cast<std::size_t>(declared->buffers)];
  for (Ranking& ranking : advice.rankings) {
    const auto each = std::ranges::find_if(ranking.methods, [](const RankedMethod& method) {
      return !method.cell.method_options.has_local_steps();
    });
    if (each == ranking.methods.end()) continue;
    const ProfileOutcomes outcomes = cluster_.Profiles(each->cell, 0);
    CostModel cost = KernelCosts(outcomes.front().profile);
    AddDeclaredLinks(cost, outcomes.front().profile);
    ranking.broadcast_seconds = cost.BroadcastSeconds(ranking.workers);
  }
}

Advice Adviser::Answer() {
  std::vector<Point> points;
  for (const double density : request_.densities) {
    for (const int workers : request_.workers) points.push_back({workers, density});
  }
  Advice advice;
  advice.left_out = Model(points, true, "ranking");
  for (const Point& point : points) {
    Ranking ranking = Rank(point);
    if (ranking.methods.empty()) {
      std::string why;
      if (!advice.left_out.empty())
        why = ": " + advice.left_out.front().method + ": " + advice.left_out.front().reason;
      SPARFUSE_THROW(
          kConfig, fmt::format("no method can be modelled with {} workers{}", point.workers, why));
    }
    advice.bands = advice.bands || ranking.methods.front().throughput.has_bounds();
    advice.rankings.push_back(std::move(ranking));
  }
  AddSweeps(advice);
  AddDeciding(advice);
  advice.request = request_;
  advice.declared = cluster_.declared() != nullptr;
  const CellConfig& cell = advice.rankings.front().methods.front().cell;
  const std::string& workload = cell.workload;
  if (advice.declared) {
    advice.memory = MemoryOf(workloads::LayersOf(workload), cluster_.declared()->card_gbytes,
                             cell.batch_per_worker);
  }
  AddBuffers(advice);
  advice.unit = workloads::FindWorkload(workload).unit;
  advice.label = WorkloadLabel(workload);
  return advice;
}

std::vector<PhasePoint> Adviser::Phase(const std::vector<double>& bandwidths,
                                       const std::vector<int>& workers) {
  const std::string fixed = request_.link ? "--link gives it" : cluster_.WhyFixedBandwidth();
  if (!fixed.empty())
    SPARFUSE_THROW(kConfig,
                   "--phase: the bandwidth of " + cluster_.name() + " cannot be varied: " + fixed);
  const double density = request_.densities.front();
  std::vector<Point> points;
  for (const double factor : bandwidths) {
    for (const int count : workers) points.push_back({count, density, factor});
  }
  Model(points, false, "phase diagram");
  std::vector<PhasePoint> phase;
  for (const Point& point : points) {
    std::vector<const Modelled*> order = Ordered(point);
    if (order.empty()) continue;
    std::vector<std::string> contenders;
    for (const Modelled* each : order) {
      if (each->step.seconds <= kContender * order.front()->step.seconds)
        contenders.push_back(each->cell.method);
    }
    if (progress_) progress_("bands of the phase diagram", phase.size(), points.size());
    Model({point}, true, "", &contenders);
    const Modelled& best = *order.front();
    PhasePoint found{point.bandwidth, point.workers, best.cell.method, {}, 0};
    for (const Modelled* each : order) {
      if (each == &best || each->draws.empty()) continue;
      const Interval over =
          TimesAsFast(each->step.seconds, each->draws, best.step.seconds, best.draws);
      if (over.high >= 1 && !IsOne(over)) found.undecided.push_back(each->cell.method);
    }
    if (const Modelled* dense = Find("dense", point))
      found.over_dense = dense->step.seconds / best.step.seconds;
    phase.push_back(std::move(found));
  }
  return phase;
}

bool CardMemory::mostly_empty() const {
  return card_gbytes > 0 && filled_gbytes < kMostlyEmpty * card_gbytes && larger_batch > 0;
}

CardMemory MemoryOf(const workloads::LayerTable& layers, double card_gbytes, int batch) {
  const double outputs = OutputsOf(layers);
  const double fixed = 1e-9 * kBytesAnElement * static_cast<double>(layers.numel());
  const auto filled = [&](int samples) {
    return fixed + 1e-9 * kBytesAnOutput * samples * outputs;
  };
  CardMemory memory{card_gbytes, filled(batch)};
  if (outputs <= 0) return memory;
  for (int larger = 1; larger <= kMostBatch && filled(larger) <= kHalfFull * card_gbytes;
       larger *= 2) {
    if (larger > batch) memory.larger_batch = larger;
  }
  return memory;
}

std::string NoteOn(const CardMemory& memory, int batch) {
  if (!memory.mostly_empty()) return "";
  return fmt::format(
      "batch {} fills about {:.2g} of the card's {:g} GB (an estimate: weights, gradients, "
      "momentum, residuals and outputs of layers); a larger batch computes longer for the same "
      "exchange, and methods gain less: `--batch {}` would fill at most half",
      batch, memory.filled_gbytes, memory.card_gbytes, memory.larger_batch);
}

double RateOfBytes(const SentInWindows& sent, double utilisation) {
  const double compute = sent.steps * sent.compute_seconds / sent.exchanges;
  const double seconds = sent.delay * sent.compute_seconds + compute * (1 / utilisation - 1);
  return 8e-9 * sent.bytes / sent.exchanges / seconds;
}

std::vector<NeededRates> Adviser::Rates() {
  const std::string why = cluster_.WhyFixedBandwidth();
  if (!why.empty() || cluster_.declared() == nullptr) {
    SPARFUSE_THROW(kConfig, "--utilisation on cluster " + cluster_.name() +
                                ": its links have one rate each" + (why.empty() ? "" : ": " + why) +
                                "; expected a declared cluster, without --link");
  }
  const double declared = cluster_.declared()->Value("inter_node_gbps");
  const int workers = request_.workers.back();
  std::vector<std::optional<NeededRates>> found(asked_.size());
  std::mutex mutex;
  std::size_t done = 0;
  pool_.ParallelFor(asked_.size(), [&](std::size_t i, int) {
    try {
      const CellConfig cell = CellOf(asked_[i], workers, request_.densities.front());
      std::map<double, StepModel> modelled;  // bisections of one method begin alike
      const auto at = [&](double factor) -> const StepModel& {
        const auto known = modelled.find(factor);
        if (known != modelled.end()) return known->second;
        return modelled[factor] = ModelSteps(FirstTrial(cell), cluster_.Profiles(cell, 0, factor));
      };
      NeededRates rates{asked_[i], cell.method_options.window_steps(), {}, {}};
      const SentInWindows sent = SentBy(cell, at(1));
      for (const double wanted : kUtilisations) {
        const auto factor = LeastFor(wanted, [&](double x) { return at(x).utilisation; });
        rates.gbps.push_back(factor ? std::optional(declared * *factor) : std::nullopt);
        rates.naive_gbps.push_back(RateOfBytes(sent, wanted));
      }
      found[i] = std::move(rates);
    } catch (const Error&) {  // the ranking lists the method and the reason
    }
    const std::lock_guard lock(mutex);
    if (progress_) progress_("rates for utilisations", ++done, asked_.size());
  });
  std::vector<NeededRates> all;
  for (auto& each : found) {
    if (each) all.push_back(*std::move(each));
  }
  std::ranges::stable_sort(all, {}, [](const NeededRates& each) {
    return each.gbps.front().value_or(std::numeric_limits<double>::infinity());
  });
  return all;
}

}  // namespace sparfuse::harness
