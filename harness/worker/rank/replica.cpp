#include "harness/worker/rank/replica.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/device/runtime.hpp"

namespace sparfuse::harness {
namespace {

// Elements that ranks gather at once. This many from each rank are in memory.
constexpr std::size_t kGathered = std::size_t{1} << 20;

// Calls body(begin, part) for every part of the values.
template <class Body>
void ForParts(std::span<const float> own, const Body& body) {
  for (std::size_t begin = 0; begin < own.size(); begin += kGathered)
    body(begin, own.subspan(begin, std::min(kGathered, own.size() - begin)));
}

// Calls body(begin, values) for every part of the values; values: [ranks][part].
template <class Body>
void ForGathered(const Rank& rank, std::span<const float> own, const Body& body) {
  ForParts(own, [&](std::size_t begin, std::span<const float> part) {
    body(begin, GatherValues(rank, part));
  });
}

// Whether the values differ from rank 0's, on this rank alone. Collective.
bool DiffersFromRankZero(const Rank& rank, std::span<const float> own) {
  bool differs = false;
  ForParts(own, [&](std::size_t, std::span<const float> part) {
    std::vector<float> expected(part.begin(), part.end());
    rank.BroadcastFromZero(std::as_writable_bytes(std::span(expected)));
    differs = differs || std::memcmp(expected.data(), part.data(), part.size_bytes()) != 0;
  });
  return differs;
}

// Calls body(part, values) for the parts of a replica's state, copied to the host.
template <class Body>
void ForState(workloads::TrainingWorkload& workload, const Body& body) {
  const auto state = workload.DeviceState();
  for (std::size_t part = 0; part < state.size(); ++part) {
    if (state[part].size == 0) continue;
    std::vector<float> values(state[part].size);
    workload.CopyState(part, values);
    body(part, values);
  }
}

float AverageAt(const std::vector<std::vector<float>>& values, std::size_t i) {
  double sum = 0;
  for (const std::vector<float>& of_rank : values) sum += of_rank[i];
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// A copy of a tensor's parameters, which may lie on the rank's device.
std::vector<float> OnHost(const Rank& rank, std::span<const float> values) {
  std::vector<float> copy(values.size());
  if (rank.device.kind == DeviceKind::kHost) {
    std::ranges::copy(values, copy.begin());
  } else {
    gpu::CopyAsync(rank.compute, copy.data(), values.data(), values.size_bytes());
    gpu::Synchronize(rank.compute);
  }
  return copy;
}

double Relative(double squares, double ranks, double norm_squares) {
  return norm_squares == 0 ? 0 : std::sqrt(squares / ranks / norm_squares);
}

// The largest error of two ranks' times relative to each other. Rank 0's clock is right; of two
// other ranks, both may be wrong.
double UncertaintyOfTwo(std::span<const ClockLine> clocks) {
  double largest = 0;
  double second = 0;
  for (const ClockLine& clock : clocks) {
    second = std::max(second, std::min(largest, clock.uncertainty_seconds()));
    largest = std::max(largest, clock.uncertainty_seconds());
  }
  return largest + second;
}

}  // namespace

std::unique_ptr<workloads::TrainingWorkload> MakeTrialWorkload(const Rank& rank) {
  const CellConfig& config = rank.config;
  workloads::WorkloadConfig made;
  made.rank = rank.rank();
  made.world = rank.size();
  made.batch_per_worker = static_cast<std::size_t>(config.batch_per_worker);
  made.accumulation = config.accumulation;
  made.seed = rank.seed;
  made.threads = config.threads_per_worker;
  if (rank.device.kind == DeviceKind::kCuda) made.stream = rank.compute;
  made.precision = config.precision;
  made.deterministic = config.kind == TrialKind::kConvergence;
  if (made.deterministic) made.total_steps = static_cast<std::uint64_t>(config.steps);
  made.data = config.data;
  made.data_id = config.data_id;
  made.weights = config.weights;
  made.weights_id = config.weights_id;
  made.options = config.workload_options;
  for (const auto& [key, value] : config.recipe) made.options[key] = value;
  return workloads::MakeWorkload(config.workload, made);
}

void PrepareStep(const Rank& rank, workloads::TrainingWorkload& workload, std::uint64_t step) {
  if (rank.device.kind != DeviceKind::kCuda) return;
  const int micro_steps = rank.config.accumulation;
  for (int micro = 0; micro < micro_steps; ++micro) workload.Prepare(step, micro);
  gpu::Synchronize(rank.compute);
}

std::vector<std::size_t> ObserveReadyOrder(const Rank& rank,
                                           workloads::TrainingWorkload& workload) {
  const std::size_t parameters = workload.Parameters().size();
  std::vector<std::int64_t> order;
  workload.SetGradientHook([&order](std::size_t parameter, const float*, std::size_t) {
    order.push_back(static_cast<std::int64_t>(parameter));
  });
  workload.ClearGradients();
  const std::vector<float> statistics = workload.Statistics();  // this pass is not part of training
  const int micro_steps = rank.config.accumulation;
  for (int micro = 0; micro < micro_steps; ++micro) {
    workload.BeginForward(0, micro);
    workload.Backward(micro + 1 == micro_steps);
  }
  workload.ClearGradients();
  workload.SetStatistics(statistics);
  workload.TakeLoaderWait();
  order.resize(parameters, -1);
  rank.BroadcastFromZero(std::as_writable_bytes(std::span(order)));
  std::vector<std::size_t> observed;
  for (const std::int64_t parameter : order) {
    if (parameter >= 0) observed.push_back(static_cast<std::size_t>(parameter));
  }
  return observed;
}

ParameterView StateOf(workloads::TrainingWorkload& workload, std::size_t part,
                      std::span<const std::size_t> ready_order) {
  const DeviceSpan<float> state = workload.DeviceState().at(part);
  const std::span<float> all{state.data, state.size};
  ParameterView view;
  for (const std::size_t parameter : ready_order) {
    const workloads::ParameterInfo& info = workload.Parameters()[parameter];
    view.push_back(all.subspan(info.offset, info.numel));
  }
  return view;
}

void BroadcastState(const Rank& rank, workloads::TrainingWorkload& workload) {
  ForState(workload, [&](std::size_t part, std::vector<float>& values) {
    rank.BroadcastFromZero(std::as_writable_bytes(std::span(values)));
    workload.SetState(part, values);
  });
}

bool StateEqualsRankZero(const Rank& rank, workloads::TrainingWorkload& workload) {
  std::int64_t differs = 0;
  ForState(workload, [&](std::size_t, const std::vector<float>& values) {
    if (DiffersFromRankZero(rank, values)) differs = 1;
  });
  return rank.Max({differs})[0] == 0;
}

bool AnchorsEqualRankZero(const Rank& rank, LiveEngine& engine) {
  const sparfuse::Range all{0, engine.layout().numel()};
  std::int64_t differs = 0;
  for (const std::span<const float> own : {engine.Anchor(all), engine.OuterState(all)}) {
    if (DiffersFromRankZero(rank, own)) differs = 1;
  }
  return rank.Max({differs})[0] == 0;
}

void AverageStatistics(const Rank& rank, workloads::TrainingWorkload& workload) {
  std::vector<float> own = workload.Statistics();
  if (own.empty() || rank.size() == 1) return;
  std::vector<double> sums(own.size());
  for (const std::vector<float>& values : GatherValues<float>(rank, own)) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  for (std::size_t i = 0; i < sums.size(); ++i) own[i] = static_cast<float>(sums[i] / rank.size());
  workload.SetStatistics(own);
}

Divergence DivergenceOf(const Rank& rank, LiveEngine& engine, const ParameterView& parameters) {
  double from_average = 0, average_norm = 0, from_anchor = 0, anchor_norm = 0;
  for (std::size_t t = 0; t < parameters.size(); ++t) {
    const std::span<const float> anchor = engine.Anchor(engine.layout().tensor(t).range());
    const std::vector<float> own = OnHost(rank, parameters[t]);
    ForGathered(rank, own, [&](std::size_t begin, const auto& values) {
      for (std::size_t i = 0; i < values.front().size(); ++i) {
        const double average = AverageAt(values, i);
        const double a = anchor[begin + i];
        average_norm += average * average;
        anchor_norm += a * a;
        for (const std::vector<float>& of_rank : values) {
          from_average += (of_rank[i] - average) * (of_rank[i] - average);
          from_anchor += (of_rank[i] - a) * (of_rank[i] - a);
        }
      }
    });
  }
  const double ranks = rank.size();
  return {Relative(from_average, ranks, average_norm), Relative(from_anchor, ranks, anchor_norm)};
}

void AverageParameters(const Rank& rank, const ParameterView& parameters) {
  for (const std::span<float> tensor : parameters) {
    const std::vector<float> own = OnHost(rank, tensor);
    std::vector<float> average(own.size());
    ForGathered(rank, own, [&](std::size_t begin, const auto& values) {
      for (std::size_t i = 0; i < values.front().size(); ++i)
        average[begin + i] = AverageAt(values, i);
    });
    if (rank.device.kind == DeviceKind::kHost) {
      std::ranges::copy(average, tensor.begin());
    } else {
      gpu::CopyAsync(rank.compute, tensor.data(), average.data(), tensor.size_bytes());
      gpu::Synchronize(rank.compute);
    }
  }
}

StepLog GatherSteps(const Rank& rank, const std::vector<LoggedStep>& own) {
  return GatherValues<LoggedStep>(rank, own);
}

std::vector<TracedStep> GatherSpans(const Rank& rank, const std::vector<TracedStep>& own,
                                    std::span<const ClockLine> clocks) {
  nlohmann::json sent = nlohmann::json::array();
  for (const TracedStep& step : own) {
    nlohmann::json spans = nlohmann::json::array();
    for (const Span& span : step.by_rank.front()) {
      spans.push_back({static_cast<int>(span.kind), span.lane, span.label, span.begin_seconds,
                       span.end_seconds, span.bytes});
    }
    sent.push_back({std::move(spans), step.began_seconds.front()});
  }
  const std::vector<std::uint8_t> packed = nlohmann::json::to_cbor(sent);
  std::vector<TracedStep> gathered;
  for (const TracedStep& step : own)
    gathered.push_back({step.step, {}, {}, UncertaintyOfTwo(clocks)});
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(packed)))) {
    const auto received = nlohmann::json::from_cbor(
        reinterpret_cast<const std::uint8_t*>(bytes.data()),
        reinterpret_cast<const std::uint8_t*>(bytes.data()) + bytes.size());
    for (std::size_t s = 0; s < gathered.size(); ++s) {
      auto& spans = gathered[s].by_rank.emplace_back();
      for (const auto& span : received.at(s).at(0)) {
        spans.push_back({static_cast<SpanKind>(span[0].get<int>()), span[1], span[2], span[3],
                         span[4], span[5]});
      }
      if (rank.rank() != 0) continue;
      const ClockLine& clock = clocks[gathered[s].by_rank.size() - 1];
      gathered[s].began_seconds.push_back(clock.OnRankZero(received.at(s).at(1)));
    }
  }
  return gathered;
}

}  // namespace sparfuse::harness
