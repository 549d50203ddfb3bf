#include "baselines/oktopk/regions.hpp"

#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/collective/direct_rounds.hpp"

namespace sparfuse::baselines {

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

  // Boundary 0 is known, so that rank 0 adds up none.
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
    const std::uint64_t others = ranks - (rank == 0 ? 1 : 2);  // that have a boundary
    const std::uint64_t all = rank == 0 ? 0 : ranks - 1;
    votes.push_back({others, all, others * kBytes, all * kBytes});
    means.push_back({all, others, all * kBytes, others * kBytes});
  }
  AddDirectRounds(votes, ranks - 1, topology, plan);
  AddDirectRounds(means, ranks - 1, topology, plan);
}

}  // namespace sparfuse::baselines
