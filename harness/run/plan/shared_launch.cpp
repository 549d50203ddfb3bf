#include "harness/run/plan/shared_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/device/card.hpp"
#include "core/device/device.hpp"
#include "harness/machine/system.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
// The usable part of the free memory: other programs grow, and the estimate ignores fragmentation.
constexpr double kUsable = 0.75;
// LibTorch, MPI and the activations of a step. A rank has them once for all trials of its launch.
constexpr double kBytesOfARank = 0.5 * kGiB;

LaunchMemory MemoryOfThisMachine(Place device) {
  // Without a card the trials fail, whatever memory they need.
  if (device == Place::kCpu || CudaDeviceCount() == 0) return {AvailableMemoryBytes(), 0};
  return {static_cast<double>(CardOf(0).memory_bytes), static_cast<std::size_t>(CudaDeviceCount())};
}

// Why the trials, which may share a launch, do not fit into memory; "" if they fit. Each of several
// hosts has its share of the ranks. Its memory is not known here and is taken to equal this host's.
std::string WhyAlone(std::span<const PlannedTrial> trials,
                     const std::optional<LaunchMemory>& given) {
  const CellConfig& config = trials.front().config;
  const LaunchMemory memory = given ? *given : MemoryOfThisMachine(config.device);
  const int hosts = std::max(1, trials.front().hosts);
  const int ranks = (config.workers + hosts - 1) / hosts;
  double needed = config.workers * kBytesOfARank;
  for (const PlannedTrial& trial : trials) needed += BytesBetweenTurns(trial.config);
  needed *= static_cast<double>(ranks) / config.workers;
  if (memory.cards > 0) {  // ranks take cards in turn; the fullest card must hold its ranks
    const auto cards = static_cast<int>(memory.cards);
    needed *= static_cast<double>((ranks + cards - 1) / cards) / ranks;
  }
  const double there = kUsable * memory.bytes;
  if (needed <= there) return "";
  return fmt::format("{} trials side by side need about {:.1f} GiB, {:.1f} GiB may be used",
                     trials.size(), needed / kGiB, there / kGiB);
}

}  // namespace

bool MayShareALaunch(const CellConfig& a, const CellConfig& b) {
  const auto takes_turns = [](const CellConfig& config) {
    return config.kind == TrialKind::kThroughput && !config.modelled() &&
           !config.method_options.exchanges_beside_steps();
  };
  return &a == &b || (takes_turns(a) && takes_turns(b) && HaveTheSameProcesses(a, b));
}

double BytesBetweenTurns(const CellConfig& config) {
  const auto elements = static_cast<double>(workloads::LayersOf(config.workload).numel());
  // Parameters, gradient, two moments of the optimizer; flat gradient and average, or anchor and
  // outer state; with error feedback, residual and velocity.
  const double copies =
      6 + (config.method_options.has_local_steps() ? 1 : 0) + (config.feedback == "none" ? 0 : 2);
  // Indices and values. A slot has room for four times the density, on both sides of an exchange
  // that delivers every rank's payload. A dense exchange works on the flat gradient.
  const double payload = config.sparsifier == "none"
                             ? 1
                             : 8 * std::min(1.0, 4 * config.density) * (1 + config.workers) / 4.0;
  return 4 * elements * (copies + payload) * config.workers;
}

void FormLaunches(std::span<PlannedTrial> trials, const std::optional<LaunchMemory>& memory,
                  bool interleave, std::size_t& next) {
  std::vector<std::size_t> firsts;  // first trial of each group
  const std::size_t begin = next;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const auto same = std::ranges::find_if(firsts, [&](std::size_t first) {
      return interleave && MayShareALaunch(trials[first].config, trials[i].config);
    });
    trials[i].launch = begin + static_cast<std::size_t>(same - firsts.begin());
    if (same == firsts.end()) firsts.push_back(i);
  }
  next = begin + firsts.size();
  std::ranges::stable_sort(trials, {}, &PlannedTrial::launch);
  for (std::size_t i = 0; i < trials.size();) {
    const std::size_t size = FirstLaunch(trials.subspan(i)).size();
    const std::span<PlannedTrial> group = trials.subspan(i, size);
    const std::string why = size > 1 ? WhyAlone(group, memory) : "";
    for (PlannedTrial& trial : group) {
      if (!why.empty()) trial.launch = next++;
      trial.alone = why;
      const double launches = why.empty() ? static_cast<double>(size) : 1;
      trial.estimated_seconds = trial.estimate.turns + trial.estimate.start / launches;
    }
    i += size;
  }
}

std::span<const PlannedTrial> FirstLaunch(std::span<const PlannedTrial> trials) {
  const auto end = std::ranges::find_if(trials, [&](const PlannedTrial& trial) {
    return trial.launch == 0 ? &trial != &trials.front() : trial.launch != trials.front().launch;
  });
  return trials.first(static_cast<std::size_t>(end - trials.begin()));
}

std::vector<int> StepsOfRounds(int steps, int every) {
  constexpr int kMostAtOnce = 3;  // steps
  const int windows = steps / every;
  const int most = std::max(1, kMostAtOnce / every);
  const int rounds = (windows + most - 1) / most;
  std::vector<int> of_rounds;
  for (int round = 0; round < rounds; ++round) {
    of_rounds.push_back(every * (windows / rounds + (round < windows % rounds ? 1 : 0)));
  }
  return of_rounds;
}

std::vector<std::vector<std::size_t>> OrderOfRounds(std::size_t trials, std::size_t rounds,
                                                    std::uint64_t seed) {
  std::vector<std::size_t> order(trials);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::size_t>> orders;
  for (std::size_t round = 0; round < rounds; ++round) {
    Shuffle(order, random);
    orders.push_back(order);
  }
  return orders;
}

}  // namespace sparfuse::harness
