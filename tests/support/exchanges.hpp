// Runs collectives on made-up payloads, one thread a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/collective/collective.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {

inline constexpr std::chrono::milliseconds kExchangeDeadline{60'000};

// Element index -> value.
using SparseVector = std::map<std::uint32_t, float>;

inline std::vector<std::byte> PayloadOf(const SparseVector& elements) {
  std::vector<std::byte> payload(elements.size() * kSparseElementBytes);
  std::byte* indices = payload.data();
  std::byte* values = payload.data() + elements.size() * sizeof(std::uint32_t);
  for (const auto& [index, value] : elements) {
    std::memcpy(indices, &index, sizeof index);
    std::memcpy(values, &value, sizeof value);
    indices += sizeof index;
    values += sizeof value;
  }
  return payload;
}

// The payloads of all ranks, selected from `elements` elements each.
struct Sent {
  std::string name;
  std::size_t elements = 0;
  std::size_t kept = 0;
  std::vector<SparseVector> by_rank;
  // The accumulated gradients, for collectives that select; if empty, the values of by_rank.
  std::vector<std::vector<float>> accumulated = {};
  std::vector<ExchangedTensor> tensors = {};  // for collectives that read them

  std::size_t ranks() const { return by_rank.size(); }
  std::size_t most() const {
    std::size_t most = 0;
    for (const SparseVector& each : by_rank) most = std::max(most, each.size());
    return most;
  }
};

// The results of an exchange on one rank.
struct Outcome {
  std::vector<float> applied;   // [elements] sums that Apply would add, not divided
  std::vector<float> returned;  // [elements] growth of this rank's residual
  std::size_t summed = 0;       // elements of payloads
  bool dense = false;
  bool increasing = true;  // whether the indices of each payload increase
  std::vector<std::uint64_t> seen;
  std::uint64_t served = 0;
  Traffic traffic;
};

// Scatters the payload; returns false if its indices do not increase.
inline bool AddTo(std::vector<float>& dense, std::span<const std::byte> payload) {
  const SparsePayload view = ViewSparsePayload(payload);
  bool increasing = true;
  for (std::size_t i = 0; i < view.indices.size(); ++i) {
    dense.at(view.indices[i]) += view.values[i];
    increasing = increasing && (i == 0 || view.indices[i - 1] < view.indices[i]);
  }
  return increasing;
}

// steps[s] holds the payloads of step s of one range; the collective keeps the state of a range.
// Returns [step][rank].
inline std::vector<std::vector<Outcome>> RunExchanges(const Collective& collective,
                                                      const std::vector<Sent>& steps,
                                                      int ranks_per_node = 1) {
  const std::size_t ranks = steps.front().ranks();
  std::vector<std::vector<Outcome>> outcomes(steps.size(), std::vector<Outcome>(ranks));
  RunRanks(static_cast<int>(ranks), ranks_per_node, kExchangeDeadline, [&](ProgressLoop& loop) {
    const auto rank = static_cast<std::size_t>(loop.rank());
    std::unique_ptr<CollectiveState> state;
    ExchangeBuffers buffers;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const Sent& sent = steps[s];
      Outcome& outcome = outcomes[s][rank];
      const std::vector<std::byte> bytes = PayloadOf(sent.by_rank[rank]);
      Buffer<float> own(bytes.size() / sizeof(float));  // aligned
      if (!bytes.empty()) std::memcpy(own.data(), bytes.data(), bytes.size());
      const std::size_t capacity = sent.most() + 3;
      Buffer<float> gathered(ranks * capacity * 2);
      std::vector<float> accumulated(sent.elements), before(sent.elements);
      if (collective.traits().selects) {
        if (sent.accumulated.empty()) {
          AddTo(accumulated, std::as_bytes(own.host()));
        } else {
          accumulated = sent.accumulated[rank];
        }
        buffers.accumulated = accumulated;
        before = accumulated;
      } else {
        buffers.own = std::as_bytes(own.host());
      }
      buffers.shape = {sent.elements, sent.kept, s, sent.tensors};
      if (s == 0)
        state = collective.MakeState(buffers.shape, {static_cast<int>(ranks), ranks_per_node});
      buffers.state = state.get();
      buffers.gathered = std::as_writable_bytes(gathered.host());
      buffers.capacity_bytes = capacity * kSparseElementBytes;
      buffers.ClearResults();
      outcome.traffic = RunCounted(loop, collective, buffers);
      outcome.applied.assign(sent.elements, 0.0f);
      outcome.returned.assign(sent.elements, 0.0f);
      if (!buffers.sums.empty()) {
        outcome.dense = true;
        outcome.applied.assign(buffers.sums.begin(), buffers.sums.end());
      } else {
        for (const auto payload : buffers.payloads) {
          outcome.increasing = AddTo(outcome.applied, payload) && outcome.increasing;
          outcome.summed += payload.size() / kSparseElementBytes;
        }
      }
      outcome.increasing = AddTo(outcome.returned, buffers.returned) && outcome.increasing;
      for (std::size_t i = 0; i < sent.elements; ++i) {
        outcome.returned[i] += accumulated[i] - before[i];
      }
      outcome.seen = buffers.seen;
      outcome.served = buffers.served;
    }
  });
  return outcomes;
}

// The sizes that a run with these payloads records.
inline ExchangeSizes RecordedSizes(const Collective& collective, const Sent& sent,
                                   std::uint64_t step, const std::vector<Outcome>& outcomes) {
  ExchangeSizes sizes{{sent.elements, sent.kept, step, sent.tensors}, {}, {}};
  for (std::size_t rank = 0; rank < sent.ranks(); ++rank) {
    sizes.payload_bytes.push_back(
        collective.traits().selects ? 0 : sent.by_rank[rank].size() * kSparseElementBytes);
    sizes.seen.push_back(outcomes[rank].seen);
  }
  return sizes;
}

}  // namespace sparfuse::testing
