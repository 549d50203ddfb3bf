#include "baselines/oktopk/split_and_reduce.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "core/collective/algorithms.hpp"
#include "core/collective/direct_rounds.hpp"
#include "core/collective/off_thread.hpp"

namespace sparfuse::baselines {
namespace {

// One rank's payload as a payload for each region, one after another.
struct SplitPayload {
  std::vector<SparsePayload> parts;            // [P] of the payload, by region
  std::vector<std::byte> bytes;                // in the wire form
  std::vector<std::span<const std::byte>> of;  // [P] of `bytes`

  SplitPayload(const SparsePayload& own, const std::vector<std::size_t>& boundaries) {
    for (std::size_t j = 0; j + 1 < boundaries.size(); ++j) {
      parts.push_back(Slice(own, boundaries[j], boundaries[j + 1]));
    }
  }
  // Writes all but part `own`, which is not sent.
  void Write(std::size_t own) {
    std::size_t size = 0;
    for (std::size_t j = 0; j < parts.size(); ++j) {
      if (j != own) size += parts[j].indices.size() * kSparseElementBytes;
    }
    bytes.resize(size);
    std::byte* to = bytes.data();
    for (std::size_t j = 0; j < parts.size(); ++j) {
      std::byte* const begin = to;
      if (j != own) {
        const auto indices = std::as_bytes(parts[j].indices);
        const auto values = std::as_bytes(parts[j].values);
        to = std::copy(indices.begin(), indices.end(), to);
        to = std::copy(values.begin(), values.end(), to);
      }
      of.emplace_back(begin, to);
    }
  }
};

}  // namespace

Task SplitAndReduce(Communicator& communicator, ExchangeBuffers& buffers,
                    const std::vector<std::size_t>& boundaries, std::size_t bucket, RangeSums& sums,
                    SplitCounts& counts, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  SplitPayload own(ViewSparsePayload(buffers.own), boundaries);
  counts.kept = own.parts[rank].indices.size();
  counts.sent = buffers.own.size() / kSparseElementBytes - counts.kept;
  counts.received = 0;
  const std::function<void()> prepare = [&] {
    own.Write(rank);
    sums.Reset(boundaries[rank], boundaries[rank + 1]);
  };
  co_await OffThread(buffers, prepare);

  std::vector<SparsePayload> there(ranks);
  std::vector<bool> is_there(ranks);
  there[rank] = own.parts[rank];
  is_there[rank] = true;
  std::size_t added = 0;  // ranks below it
  const std::function<void()> add = [&] {
    for (; added < ranks && is_there[added]; ++added) sums.Add(there[added]);
  };

  const auto slot_of = [&](std::size_t from) {
    return buffers.gathered.subspan(from * buffers.capacity_bytes, buffers.capacity_bytes);
  };
  std::vector<std::unique_ptr<Request>> requests;
  const auto post = [&](std::size_t first) {  // the bucket that begins at this distance
    requests.clear();
    const std::size_t end = std::min(first + bucket, ranks);
    for (std::size_t distance = first; distance < end; ++distance) {
      const std::size_t from = (rank + ranks - distance) % ranks;
      requests.push_back(communicator.Irecv(static_cast<int>(from), tag, slot_of(from)));
    }
    for (std::size_t distance = first; distance < end; ++distance) {
      const std::size_t to = (rank + distance) % ranks;
      requests.push_back(communicator.Isend(static_cast<int>(to), tag, own.of[to]));
    }
  };
  for (std::size_t first = 1; first < ranks; first += bucket) {
    post(first);
    if (added < ranks && is_there[added]) co_await OffThread(buffers, add);  // the bucket before
    requests = co_await Complete(std::move(requests));
    for (std::size_t i = 0; i < requests.size() / 2; ++i) {
      const std::size_t from = (rank + ranks - first - i) % ranks;
      const std::size_t bytes = requests[i]->bytes();
      CheckPayloadBytes("oktopk", buffers, from, bytes);
      counts.received += bytes / kSparseElementBytes;
      there[from] = ViewSparsePayload(slot_of(from).first(bytes));
      is_there[from] = true;
    }
  }
  co_await OffThread(buffers, add);
}

void AddSplitRounds(std::span<const SplitCounts> counts, std::size_t bucket,
                    const Topology& topology, RoundPlan& plan) {
  const std::uint64_t others = counts.size() - 1;
  std::vector<Traffic> of_rank;
  for (const SplitCounts& each : counts) {
    of_rank.push_back(
        {others, others, each.sent * kSparseElementBytes, each.received * kSparseElementBytes});
  }
  AddDirectRounds(of_rank, bucket, topology, plan);
}

}  // namespace sparfuse::baselines
