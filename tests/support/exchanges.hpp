// Runs collectives on made-up payloads, one thread a rank.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/collective/collective.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {

inline constexpr std::chrono::milliseconds kExchangeDeadline{60'000};

// Element index -> value.
using SparseVector = std::map<std::uint32_t, float>;
using Vectors = std::vector<std::vector<float>>;  // [ranks][elements]

inline SparseVector NonZeros(const std::vector<float>& dense) {
  SparseVector elements;
  for (std::uint32_t i = 0; i < dense.size(); ++i) {
    if (dense[i] != 0.0f) elements[i] = dense[i];
  }
  return elements;
}

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
  Vectors accumulated = {};
  std::vector<ExchangedTensor> tensors = {};  // for collectives that read them

  std::size_t ranks() const { return by_rank.size(); }
  std::size_t most() const {
    std::size_t most = 0;
    for (const SparseVector& each : by_rank) most = std::max(most, each.size());
    return most;
  }
};

// Normally distributed elements: rank r has the seed `seed` + r.
inline Vectors Noises(std::size_t ranks, std::size_t elements, std::size_t seed = 0) {
  Vectors noises(ranks, std::vector<float>(elements));
  for (std::vector<float>& noise : noises) {
    std::mt19937 random(static_cast<unsigned>(seed++));
    std::normal_distribution<float> normal;
    for (float& value : noise) value = normal(random);
  }
  return noises;
}

inline Sent Accumulated(const Vectors& x, std::size_t kept,
                        std::vector<ExchangedTensor> tensors = {}) {
  return {"", x[0].size(), kept, std::vector<SparseVector>(x.size()), x, std::move(tensors)};
}

// `count` elements of each rank, at random: `value_of(random)`.
inline Sent RandomSent(std::size_t ranks, std::size_t elements, std::size_t count,
                       std::mt19937& random, const auto& value_of) {
  Sent sent{"random", elements, count, std::vector<SparseVector>(ranks)};
  for (SparseVector& own : sent.by_rank) {
    while (own.size() < count) {
      const auto index = static_cast<std::uint32_t>(random() % elements);
      own[index] = value_of(random);
    }
  }
  return sent;
}

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

// Runs two steps in which ranks differ: of(rank) gives a rank's collective, which selects from
// x[rank], and its shape.
inline void RunUnlike(
    const Vectors& x,
    const std::function<std::pair<std::unique_ptr<Collective>, ExchangeShape>(int)>& of) {
  const Topology topology{static_cast<int>(x.size()), 1};
  RunRanks(topology.ranks, 1, kExchangeDeadline, [&](ProgressLoop& loop) {
    const auto unlike = of(loop.rank());
    ExchangeBuffers buffers;
    buffers.shape = unlike.second;
    const auto state = unlike.first->MakeState(buffers.shape, topology);
    buffers.state = state.get();
    for (; buffers.shape.step < 2; ++buffers.shape.step) {
      std::vector<float> own = x[static_cast<std::size_t>(loop.rank())];
      buffers.accumulated = own;
      loop.RunBlocking([&](Communicator& world) { return unlike.first->Run(world, buffers, 32); });
    }
  });
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

// Expects that the rounds of the recorded sizes have each rank's traffic, and returns them.
inline RoundPlan ExpectCounted(const Collective& collective, const Sent& sent, std::uint64_t step,
                               const std::vector<Outcome>& outcomes, const Topology& topology) {
  RoundPlan plan = collective.Rounds(RecordedSizes(collective, sent, step, outcomes), topology);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].traffic, plan.per_rank[rank]) << "rank " << rank;
  }
  return plan;
}

// The rounds that a model expects if every rank sends `kept` elements.
inline RoundPlan ExpectedRounds(const Collective& collective, const ExchangeShape& shape,
                                const Topology& topology, const OverlapModel& overlap = {}) {
  const std::vector<std::uint64_t> payloads(
      static_cast<std::size_t>(topology.ranks),
      collective.traits().selects ? 0 : shape.kept * kSparseElementBytes);
  return collective.Rounds(ExpectedSizes(collective, shape, payloads, overlap, topology), topology);
}

// The bytes of the busiest rank.
inline std::uint64_t BytesOf(const RoundPlan& plan) {
  std::uint64_t bytes = 0;
  for (const Round& round : plan.rounds) bytes += round.bytes;
  return bytes;
}

inline std::uint64_t WorkOf(const RoundPlan& plan, Work kind) {
  std::uint64_t elements = 0;
  for (const Round& round : plan.rounds) elements += round[kind];
  return elements;
}

inline std::uint64_t BytesSent(const std::vector<Outcome>& outcomes) {
  std::uint64_t bytes = 0;
  for (const Outcome& outcome : outcomes) bytes += outcome.traffic.bytes_sent;
  return bytes;
}

// Expects that the numbers differ by at most the share `by` of `recorded`.
inline void ExpectClose(std::uint64_t expected, std::uint64_t recorded, double by) {
  const auto number = static_cast<double>(recorded);
  EXPECT_NEAR(static_cast<double>(expected), number, by * number);
}

}  // namespace sparfuse::testing
