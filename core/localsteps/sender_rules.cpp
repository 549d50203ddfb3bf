#include "core/localsteps/sender_rules.hpp"

#include <algorithm>
#include <cmath>

#include "core/device/launch.hpp"
#include "core/device/runtime.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/localsteps/sender_rules_kernels.hpp"

namespace sparfuse {

void SenderRules::ScaleToMedian(std::span<SparsePayload> payloads, std::span<const Range> tensors,
                                ThreadPool& pool) {
  std::size_t count = 0;
  for (const SparsePayload& payload : payloads) count += payload.values.size();
  scaled_.resize(count);
  std::vector<std::span<float>> values;
  count = 0;
  for (SparsePayload& payload : payloads) {
    const std::span<float> own = std::span(scaled_).subspan(count, payload.values.size());
    std::ranges::copy(payload.values, own.begin());
    payload.values = own;
    values.push_back(own);
    count += own.size();
  }
  std::vector<std::span<float>> of_tensor(payloads.size());
  std::vector<double> norms(payloads.size());
  for (const Range& tensor : tensors) {
    for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
      const auto indices = payloads[rank].indices;
      const auto first = std::ranges::lower_bound(indices, tensor.begin);
      const auto last = std::ranges::lower_bound(indices, tensor.end);
      of_tensor[rank] = values[rank].subspan(static_cast<std::size_t>(first - indices.begin()),
                                             static_cast<std::size_t>(last - first));
      norms[rank] = std::sqrt(SumSquares(of_tensor[rank], pool));
    }
    std::vector<double> sorted = norms;
    std::ranges::sort(sorted);
    const double median = sorted[(sorted.size() - 1) / 2];
    for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
      if (norms[rank] <= median) continue;
      const auto factor = static_cast<float>(median / norms[rank]);
      for (float& value : of_tensor[rank]) value *= factor;
    }
  }
}

void SenderRules::DivideBySenders(std::span<const SparsePayload> payloads, std::size_t first,
                                  std::span<float> sums) {
  senders_.assign(sums.size(), 0);
  const auto for_elements = [&](const auto& body) {
    for (const SparsePayload& payload : payloads) {
      auto index = std::ranges::lower_bound(payload.indices, first);
      for (; index != payload.indices.end() && *index - first < sums.size(); ++index) {
        body(*index - first);
      }
    }
  };
  for_elements([&](std::size_t i) { ++senders_[i]; });
  for_elements([&](std::size_t i) {
    if (senders_[i] > 1) sums[i] /= static_cast<float>(senders_[i]);
    senders_[i] = 1;
  });
}

namespace {

// Calls body(first, size) for groups of up to `most` of n.
template <class Body>
void ForLaunches(std::size_t n, std::size_t most, const Body& body) {
  for (std::size_t first = 0; first < n; first += most) body(first, std::min(most, n - first));
}

gpu::TensorTable TensorTableOf(std::span<const Range> tensors, std::size_t number) {
  gpu::TensorTable table{};
  table.size = static_cast<std::uint32_t>(tensors.size());
  table.number = static_cast<std::uint32_t>(number);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    table.begins[t] = static_cast<std::uint32_t>(tensors[t].begin);
    table.ends[t] = static_cast<std::uint32_t>(tensors[t].end);
  }
  return table;
}

}  // namespace

std::vector<DevicePayload> ScaleToMedianOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                                                 std::span<const DevicePayload> payloads,
                                                 std::span<const Range> tensors) {
  const std::size_t ranks = payloads.size();
  std::size_t count = 0;
  for (const DevicePayload& payload : payloads) count += payload.count;
  auto* const norms = workspace.Get<double>(stream, kUseSenderNorms, tensors.size() * ranks);
  auto* const factors = workspace.Get<float>(stream, kUseSenderFactors, tensors.size() * ranks);
  float* to = workspace.Get<float>(stream, kUseScaledValues, count);
  std::vector<float*> scaled;
  for (const DevicePayload& payload : payloads) {
    scaled.push_back(to);
    to += payload.count;
  }
  const auto for_pairs = [&](const auto& launch) {  // of payloads and tensors
    ForLaunches(ranks, gpu::kMaxPayloads, [&](std::size_t first, std::size_t size) {
      const gpu::PayloadTable of = PayloadTableOf(payloads.subspan(first, size), first);
      ForLaunches(tensors.size(), gpu::kMaxTensors, [&](std::size_t begin, std::size_t tables) {
        launch(of, TensorTableOf(tensors.subspan(begin, tables), begin), first);
      });
    });
  };
  const auto all = static_cast<std::uint32_t>(ranks);
  for_pairs([&](const gpu::PayloadTable& of, const gpu::TensorTable& table, std::size_t) {
    gpu::Launch(stream, std::size_t{of.size} * table.size,
                gpu::NormsOfTensors{of, table, all, norms});
  });
  gpu::Launch(stream, tensors.size(), gpu::FactorsOfMedians{all, norms, factors});
  for_pairs([&](const gpu::PayloadTable& of, const gpu::TensorTable& table, std::size_t first) {
    gpu::ScaleTensors scale{of, table, all, factors, {}};
    std::copy_n(scaled.begin() + static_cast<std::ptrdiff_t>(first), of.size, scale.to);
    gpu::Launch(stream, std::size_t{of.size} * table.size, scale);
  });
  std::vector<DevicePayload> result(payloads.begin(), payloads.end());
  for (std::size_t rank = 0; rank < ranks; ++rank) result[rank].values = scaled[rank];
  return result;
}

void DivideBySendersOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                             std::span<const DevicePayload> payloads, std::size_t first,
                             DeviceSpan<float> sums) {
  if (sums.size == 0) return;
  auto* const senders = workspace.Get<std::uint32_t>(stream, kUseSenders, sums.size);
  gpu::FillAsync(stream, senders, 0, sums.size * sizeof(*senders));
  ForLaunches(payloads.size(), gpu::kMaxPayloads, [&](std::size_t begin, std::size_t size) {
    gpu::CountSenders count{
        PayloadTableOf(payloads.subspan(begin, size), begin), {}, first, sums.size, senders};
    for (std::size_t p = 0; p < size; ++p) {
      count.first_block[p + 1] =
          count.first_block[p] + gpu::CountSenders::BlocksFor(payloads[begin + p].count);
    }
    gpu::Launch(stream, count.first_block[size], count);
  });
  using Divide = gpu::DivideSums;
  gpu::Launch(stream, (sums.size + Divide::kPerBlock - 1) / Divide::kPerBlock,
              Divide{sums.size, senders, sums.data});
}

}  // namespace sparfuse
