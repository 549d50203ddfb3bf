#include "harness/worker/rank/anchors_over_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/device/runtime.hpp"

namespace sparfuse::harness {
namespace {

// Elements that ranks gather at once. This many from each rank are in memory.
constexpr std::size_t kGathered = std::size_t{1} << 20;

// Calls body(begin, values) for every part of the values; values: [ranks][part].
template <class Body>
void ForGathered(const Rank& rank, std::span<const float> own, const Body& body) {
  for (std::size_t begin = 0; begin < own.size(); begin += kGathered) {
    const auto part = own.subspan(begin, std::min(kGathered, own.size() - begin));
    std::vector<std::vector<float>> values;
    for (const auto& bytes : rank.Gather(std::as_bytes(part))) {
      values.emplace_back(part.size());
      std::memcpy(values.back().data(), bytes.data(), bytes.size());
    }
    body(begin, values);
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

}  // namespace

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

bool AnchorsEqualRankZero(const Rank& rank, LiveEngine& engine) {
  const sparfuse::Range all{0, engine.layout().numel()};
  std::int64_t differs = 0;
  for (const std::span<const float> own : {engine.Anchor(all), engine.OuterState(all)}) {
    for (std::size_t begin = 0; begin < own.size(); begin += kGathered) {
      const auto part = own.subspan(begin, std::min(kGathered, own.size() - begin));
      std::vector<float> expected(part.begin(), part.end());
      rank.BroadcastFromZero(std::as_writable_bytes(std::span(expected)));
      if (std::memcmp(expected.data(), part.data(), part.size_bytes()) != 0) differs = 1;
    }
  }
  return rank.Max({differs})[0] == 0;
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

}  // namespace sparfuse::harness
