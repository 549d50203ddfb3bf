#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "baselines/oktopk/oktopk.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse::baselines {
namespace {

// One rank's payload, cut into one payload per region.
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

struct Application {
  std::string_view name;
  GlobalThreshold threshold;
};

constexpr std::array kApplications = {Application{"vgg", {32, 2.0 / 3, 4.0 / 3, 1.008, 1.008}},
                                      Application{"lstm", {32, 3.0 / 4, 5.0 / 4, 1.01, 1.008}},
                                      Application{"bert", {128, 4.0 / 5, 5.0 / 4, 1.036, 1.025}}};

}  // namespace

std::vector<std::int64_t> RegionVotes(std::span<const std::uint32_t> indices, std::size_t elements,
                                      std::size_t ranks) {
  const std::size_t each = indices.size() / ranks;
  std::vector<std::int64_t> votes;
  for (std::size_t j = 1; j < ranks; ++j) {
    votes.push_back(
        static_cast<std::int64_t>(each == 0 ? j * elements / ranks : indices[each * j]));
  }
  return votes;
}

Task VoteOnRegions(Communicator& communicator, std::span<const std::uint32_t> indices,
                   std::size_t elements, std::vector<std::size_t>& boundaries, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const std::vector<std::int64_t> votes = RegionVotes(indices, elements, ranks);
  const auto bytes_of = [](const std::int64_t& word) { return std::as_bytes(std::span(&word, 1)); };
  const auto room_of = [](std::int64_t& word) {
    return std::as_writable_bytes(std::span(&word, 1));
  };

  // Boundary 0 is known, so rank 0 adds up none.
  std::vector<std::int64_t> heard(ranks);
  std::vector<std::unique_ptr<Request>> requests;
  for (std::size_t other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    const int peer = static_cast<int>(other);
    if (rank > 0) requests.push_back(communicator.Irecv(peer, tag, room_of(heard[other])));
    if (other > 0) requests.push_back(communicator.Isend(peer, tag, bytes_of(votes[other - 1])));
  }
  co_await Complete(std::move(requests));
  std::int64_t mean = 0;
  if (rank > 0) {
    heard[rank] = votes[rank - 1];
    mean = std::accumulate(heard.begin(), heard.end(), std::int64_t{0}) /
           static_cast<std::int64_t>(ranks);
  }

  std::vector<std::int64_t> means(ranks);
  means[rank] = mean;
  requests.clear();
  for (std::size_t other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    const int peer = static_cast<int>(other);
    if (other > 0) requests.push_back(communicator.Irecv(peer, tag + 1, room_of(means[other])));
    if (rank > 0) requests.push_back(communicator.Isend(peer, tag + 1, bytes_of(mean)));
  }
  co_await Complete(std::move(requests));
  boundaries.assign(means.begin(), means.end());
  boundaries.push_back(elements);
  for (std::size_t j = 0; j < ranks; ++j) {
    if (boundaries[j] <= boundaries[j + 1]) continue;
    SPARFUSE_THROW(kComm, "region " + std::to_string(j) + " of " + std::to_string(ranks) +
                              " begins at " + std::to_string(boundaries[j]) + " and ends at " +
                              std::to_string(boundaries[j + 1]) +
                              ": ranks disagree on the range, or a payload does not increase");
  }
}

void AddVoteRounds(const Topology& topology, RoundPlan& plan) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  if (ranks == 1) return;
  constexpr std::uint64_t kBytes = sizeof(std::int64_t);
  std::vector<Traffic> votes;
  std::vector<Traffic> means;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t others = ranks - (rank == 0 ? 1 : 2);  // other owners of a boundary
    const std::uint64_t all = rank == 0 ? 0 : ranks - 1;
    votes.push_back({others, all, others * kBytes, all * kBytes});
    means.push_back({all, others, all * kBytes, others * kBytes});
  }
  AddDirectRounds(votes, ranks - 1, topology, plan);
  AddDirectRounds(means, ranks - 1, topology, plan);
}

std::vector<std::uint64_t> BlockCounts(std::uint64_t total, std::size_t ranks) {
  std::vector<std::uint64_t> counts(ranks, total / ranks);
  for (std::size_t j = 0; j < total % ranks; ++j) ++counts[j];
  return counts;
}

std::vector<BlockPiece> BlockPieces(std::span<const std::uint64_t> counts) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const std::vector<std::uint64_t> blocks = BlockCounts(total, counts.size());
  std::vector<BlockPiece> pieces;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t from_end = counts[0];
  std::uint64_t to_end = blocks[0];
  for (std::uint64_t at = 0; at < total;) {
    while (from_end <= at) from_end += counts[++from];
    while (to_end <= at) to_end += blocks[++to];
    const std::uint64_t end = std::min(from_end, to_end);
    pieces.push_back({from, to, at, end - at});
    at = end;
  }
  return pieces;
}

Task MoveToBlocks(Communicator& communicator, const SparsePayload& own,
                  std::span<const std::uint64_t> counts, std::span<std::byte> block, int tag) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto before = [&](std::span<const std::uint64_t> of) {
    return std::accumulate(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::uint64_t{0});
  };
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const std::vector<std::uint64_t> blocks = BlockCounts(total, counts.size());
  const std::uint64_t own_begin = before(counts);
  const std::uint64_t block_begin = before(blocks);
  std::byte* const block_values = block.data() + blocks[rank] * sizeof(std::uint32_t);
  const auto place = [&](const BlockPiece& piece, const SparsePayload& elements) {
    const std::size_t at = (piece.begin - block_begin) * sizeof(std::uint32_t);
    std::memcpy(block.data() + at, elements.indices.data(), elements.indices.size_bytes());
    std::memcpy(block_values + at, elements.values.data(), elements.values.size_bytes());
  };

  std::vector<std::byte> outgoing(own.indices.size() * kSparseElementBytes);
  std::vector<std::byte> incoming(block.size());
  std::vector<BlockPiece> expected;
  std::vector<std::unique_ptr<Request>> receives, sends;
  for (const BlockPiece& piece : BlockPieces(counts)) {
    const std::size_t bytes = piece.count * kSparseElementBytes;
    if (piece.from == rank) {
      const std::size_t first = piece.begin - own_begin;
      const SparsePayload elements = {own.indices.subspan(first, piece.count),
                                      own.values.subspan(first, piece.count)};
      if (piece.to == rank) {
        place(piece, elements);
        continue;
      }
      const auto part = std::span(outgoing).subspan(first * kSparseElementBytes, bytes);
      std::memcpy(part.data(), elements.indices.data(), bytes / 2);
      std::memcpy(part.data() + bytes / 2, elements.values.data(), bytes / 2);
      sends.push_back(communicator.Isend(static_cast<int>(piece.to), tag, part));
    } else if (piece.to == rank) {
      const auto part =
          std::span(incoming).subspan((piece.begin - block_begin) * kSparseElementBytes, bytes);
      receives.push_back(communicator.Irecv(static_cast<int>(piece.from), tag, part));
      expected.push_back(piece);
    }
  }
  std::move(sends.begin(), sends.end(), std::back_inserter(receives));
  const auto requests = co_await Complete(std::move(receives));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const BlockPiece& piece = expected[i];
    const std::size_t bytes = piece.count * kSparseElementBytes;
    if (requests[i]->bytes() != bytes) {
      SPARFUSE_THROW(kComm, "balanced blocks: " + std::to_string(requests[i]->bytes()) +
                                " bytes from rank " + std::to_string(piece.from) + ": expected " +
                                std::to_string(bytes));
    }
    place(piece, ViewSparsePayload(std::span(incoming).subspan(
                     (piece.begin - block_begin) * kSparseElementBytes, bytes)));
  }
}

void AddMoveRounds(std::span<const std::uint64_t> counts, const Topology& topology,
                   RoundPlan& plan) {
  std::vector<RankMessage> messages;
  for (const BlockPiece& piece : BlockPieces(counts)) {
    if (piece.from == piece.to) continue;
    messages.push_back({static_cast<int>(piece.from), static_cast<int>(piece.to),
                        piece.count * kSparseElementBytes});
  }
  if (!messages.empty()) AddRound(messages, topology, plan);
}

Task SplitAndReduce(Communicator& communicator, ExchangeBuffers& buffers,
                    const std::vector<std::size_t>& boundaries, std::size_t bucket, RangeSums& sums,
                    SplitCounts& counts, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  SplitPayload own(ViewSparsePayload(buffers.own), boundaries);
  counts.kept = own.parts[rank].indices.size();
  counts.sent = buffers.own.size() / kSparseElementBytes - counts.kept;
  counts.received = 0;
  co_await OffThread(buffers, [&] {
    own.Write(rank);
    sums.Reset(boundaries[rank], boundaries[rank + 1]);
  });

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
  const auto post = [&](std::size_t first) {  // posts the bucket that begins at this distance
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

std::vector<OptionSpec> GlobalThresholdOptions() {
  return {
      ChoiceOption("application", "vgg", {"vgg", "lstm", "bert"},
                   "application whose published constants replace options that are 0"),
      WholeOption("global_threshold_period", 0, 0, 1e9,
                  "steps from one exact global threshold to the next; 0: 32, 32, 128"),
      NumberOption("band_low", 0.0, 0, 1,
                   "the global threshold falls if fewer sums than this part of k reach it; 0: 2/3, "
                   "3/4, 4/5"),
      NumberOption(
          "band_high", 0.0, 0, 1e6,
          "the global threshold rises if more sums than this part of k reach it; 0: 4/3, 5/4, "
          "5/4"),
      NumberOption(
          "lower_by", 0.0, 0, 1e6,
          "divisor by which the global threshold falls, at least 1; 0: 1.008, 1.01, 1.036"),
      NumberOption("raise_by", 0.0, 0, 1e6,
                   "factor by which the global threshold rises, at least 1; 0: 1.008, "
                   "1.008, 1.025")};
}

GlobalThreshold ReadGlobalThreshold(const Options& resolved) {
  const std::string& name = StringOption(resolved, "application");
  GlobalThreshold read;
  for (const Application& each : kApplications) {
    if (each.name == name) read = each.threshold;
  }
  const auto given = [&](const char* option, double& value) {
    if (DoubleOption(resolved, option) != 0) value = DoubleOption(resolved, option);
  };
  given("band_low", read.band_low);
  given("band_high", read.band_high);
  given("lower_by", read.lower_by);
  given("raise_by", read.raise_by);
  const std::int64_t period = IntOption(resolved, "global_threshold_period");
  if (period != 0) read.period = static_cast<std::uint64_t>(period);
  return read;
}

}  // namespace sparfuse::baselines
