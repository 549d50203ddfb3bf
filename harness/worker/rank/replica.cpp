#include "harness/worker/rank/replica.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace sparfuse::harness {
namespace {

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

void BroadcastState(const Rank& rank, workloads::TrainingWorkload& workload) {
  const auto state = workload.DeviceState();
  for (std::size_t part = 0; part < state.size(); ++part) {
    if (state[part].size == 0) continue;
    std::vector<float> values(state[part].size);
    workload.CopyState(part, values);
    rank.BroadcastFromZero(std::as_writable_bytes(std::span(values)));
    workload.SetState(part, values);
  }
}

bool StateEqualsRankZero(const Rank& rank, workloads::TrainingWorkload& workload) {
  std::int64_t differs = 0;
  const auto state = workload.DeviceState();
  for (std::size_t part = 0; part < state.size(); ++part) {
    if (state[part].size == 0) continue;
    std::vector<float> own(state[part].size);
    workload.CopyState(part, own);
    std::vector<float> expected = own;
    rank.BroadcastFromZero(std::as_writable_bytes(std::span(expected)));
    if (std::memcmp(expected.data(), own.data(), 4 * own.size()) != 0) differs = 1;
  }
  return rank.Max({differs})[0] == 0;
}

void AverageStatistics(const Rank& rank, workloads::TrainingWorkload& workload) {
  std::vector<float> own = workload.Statistics();
  if (own.empty() || rank.size() == 1) return;
  std::vector<double> sums(own.size());
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(own)))) {
    std::vector<float> values(own.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  for (std::size_t i = 0; i < sums.size(); ++i) own[i] = static_cast<float>(sums[i] / rank.size());
  workload.SetStatistics(own);
}

StepLog GatherSteps(const Rank& rank, const std::vector<LoggedStep>& own) {
  static_assert(std::is_trivially_copyable_v<LoggedStep>);
  StepLog log;
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(own)))) {
    auto& steps = log.emplace_back(bytes.size() / sizeof(LoggedStep));
    std::memcpy(steps.data(), bytes.data(), bytes.size());
  }
  return log;
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
