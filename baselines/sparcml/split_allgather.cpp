// Sums payloads region by region at owners and gathers the sums. This is SparCML's split
// all-gather, which Ok-Topk's authors compare with as TopK-DSA.
//
// Source: C. Renggli et al., SparCML: High-Performance Sparse Communication for Machine Learning,
//         SC 2019: SSAR_Split_allgather and DSAR_Split_allgather, which ends dense; S. Li & T.
//         Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP 2022, which
//         compares with them as TopkDSA, and its code.
//
// The range is cut into P regions of n/P elements, rounded down; the last one has the rest. Every
// rank sends each owner its selection of the owner's region, all at once, empty ones too: a
// message's length tells its count. Owners add in rank order, so that sums are the same everywhere,
// and replicas bit-equal. Then counts are gathered. By them all ranks decide alike whether regions
// are gathered dense or as elements with indices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "baselines/sparcml/sparcml.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kSplitAllgather = "sparcml-split-allgather";

enum SplitSeen : std::size_t { kSent, kReceived, kSummed, kSplitWords };

// Regions have n/P elements each, rounded down; the last one has the rest.
struct Regions {
  std::size_t elements;
  std::size_t ranks;

  std::size_t Begin(std::size_t region) const {
    return region == ranks ? elements : region * (elements / ranks);
  }
  std::size_t Size(std::size_t region) const { return Begin(region + 1) - Begin(region); }
  std::size_t Largest() const { return Size(ranks - 1); }
};

class SplitAllgather final : public Collective {
 public:
  explicit SplitAllgather(DenseSwitch rule) : rule_(rule) {}
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override;
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;

 private:
  Task Split(Communicator& communicator, ExchangeBuffers& buffers, int tag,
             std::vector<std::span<const std::byte>>& received) const;
  // Returns the begins of the regions' sums, given the number of elements of each.
  std::vector<std::uint64_t> Begins(std::span<const std::uint64_t> counts, const Regions& regions,
                                    bool dense) const;
  bool Dense(std::span<const std::uint64_t> counts, std::size_t elements) const {
    return IsDense(rule_, std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
                   elements);
  }

  DenseSwitch rule_;
};

// --- live ---

// Sends each owner its slice of the own payload, and receives the slices of this rank's region.
// received[r] is rank r's slice, the own one included.
Task SplitAllgather::Split(Communicator& communicator, ExchangeBuffers& buffers, int tag,
                           std::vector<std::span<const std::byte>>& received) const {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const Regions regions{buffers.shape.elements, ranks};
  buffers.Keep(buffers.own.size());
  std::vector<std::span<const std::byte>> slices(ranks);
  co_await OffThread(buffers, [&] {
    const SparsePayload own = ViewSparsePayload(buffers.own);
    std::byte* to = buffers.kept.data();
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      const SparsePayload part = Slice(own, regions.Begin(owner), regions.Begin(owner + 1));
      const std::size_t half = part.indices.size_bytes();
      if (half > 0) {
        std::memcpy(to, part.indices.data(), half);
        std::memcpy(to + half, part.values.data(), half);
      }
      slices[owner] = {to, 2 * half};
      to += 2 * half;
    }
  });

  std::vector<std::unique_ptr<Request>> requests;
  const auto room_of = [&](std::size_t peer) {
    return buffers.gathered.subspan(peer * buffers.capacity_bytes, buffers.capacity_bytes);
  };
  // Each rank begins with its right neighbour, so that no owner gets all messages at first.
  for (std::size_t i = 1; i < ranks; ++i) {
    const std::size_t peer = (rank + ranks - i) % ranks;
    requests.push_back(communicator.Irecv(static_cast<int>(peer), tag, room_of(peer)));
  }
  for (std::size_t i = 1; i < ranks; ++i) {
    const std::size_t owner = (rank + i) % ranks;
    requests.push_back(communicator.Isend(static_cast<int>(owner), tag, slices[owner]));
  }
  requests = co_await Complete(std::move(requests));
  received.resize(ranks);
  received[rank] = slices[rank];
  for (std::size_t i = 1; i < ranks; ++i) {
    const std::size_t peer = (rank + ranks - i) % ranks;
    const std::size_t bytes = requests[i - 1]->bytes();
    CheckPayloadBytes(kSplitAllgather, buffers, peer, bytes);
    received[peer] = room_of(peer).first(bytes);
  }
}

std::vector<std::uint64_t> SplitAllgather::Begins(std::span<const std::uint64_t> counts,
                                                  const Regions& regions, bool dense) const {
  std::vector<std::uint64_t> begins(regions.ranks + 1);
  for (std::size_t region = 0; region < regions.ranks; ++region) {
    begins[region + 1] = begins[region] + (dense ? regions.Size(region) * sizeof(float)
                                                 : counts[region] * kSparseElementBytes);
  }
  return begins;
}

Task SplitAllgather::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  CheckGatherBuffers(kSplitAllgather, buffers, ranks);
  buffers.payloads.assign(1, buffers.own);
  if (ranks == 1) co_return;

  const Regions regions{buffers.shape.elements, ranks};
  std::vector<std::span<const std::byte>> received;
  co_await Split(communicator, buffers, tag, received);
  RangeSums sums;
  std::vector<std::uint64_t> counts(ranks);
  std::size_t received_bytes = 0;
  co_await OffThread(buffers, [&] {
    sums.Reset(regions.Begin(rank), regions.Begin(rank + 1));
    for (const std::span<const std::byte> slice : received) {
      sums.Add(ViewSparsePayload(slice));
      received_bytes += slice.size();
    }
    counts[rank] = sums.count();
  });
  const std::size_t own_bytes = received[rank].size();
  buffers.seen = {(buffers.own.size() - own_bytes) / kSparseElementBytes,
                  (received_bytes - own_bytes) / kSparseElementBytes, counts[rank]};
  buffers.served = received_bytes / kSparseElementBytes;

  const std::vector<std::uint64_t> words = EqualBlocks(ranks, sizeof(std::uint64_t));
  co_await GatherBlocks(communicator, std::as_writable_bytes(std::span(counts)), words, tag + 1);

  const bool dense = Dense(counts, buffers.shape.elements);
  const std::vector<std::uint64_t> begins = Begins(counts, regions, dense);
  std::span<std::byte> result;
  co_await OffThread(buffers, [&] {
    buffers.Keep(begins.back());
    result = buffers.kept.host().first(begins.back());
    const std::span<std::byte> own = result.subspan(begins[rank], begins[rank + 1] - begins[rank]);
    if (dense) {
      std::ranges::copy(std::as_bytes(sums.dense()), own.begin());
    } else {
      SparseSums elements;
      sums.AppendTo(elements);
      elements.WriteTo(own);
    }
  });
  co_await GatherBlocks(communicator, result, begins, tag + 2);

  if (dense) {
    GiveDense(result, buffers);
  } else {
    buffers.payloads.clear();
    for (std::size_t region = 0; region < ranks; ++region) {
      buffers.payloads.push_back(
          result.subspan(begins[region], begins[region + 1] - begins[region]));
    }
  }
}

// --- modelled ---

// The first region stands for the fullest; the others share the rest evenly.
std::vector<double> ExpectedShares(const OverlapModel& overlap, const Regions& regions) {
  std::vector<double> shares(regions.ranks);
  if (regions.elements == 0) return shares;
  const auto part = [&](std::size_t region) {
    return static_cast<double>(regions.Size(region)) / static_cast<double>(regions.elements);
  };
  const double fullest = std::min(1.0, part(0) * overlap.LargestRegion(regions.ranks));
  shares[0] = fullest;
  for (std::size_t region = 1; region < regions.ranks; ++region) {
    shares[region] = part(region) * (1 - fullest) / (1 - part(0));
  }
  return shares;
}

void SplitAllgather::Expect(const OverlapModel& overlap, const Topology& topology,
                            ExchangeSizes& sizes) const {
  sizes.seen.clear();
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  if (ranks == 1) return;
  const Regions regions{sizes.shape.elements, ranks};
  const std::vector<double> shares = ExpectedShares(overlap, regions);
  const auto count_of = [&](std::size_t rank) {
    return static_cast<double>(sizes.payload_bytes[rank]) / kSparseElementBytes;
  };
  sizes.seen.assign(ranks, std::vector<std::uint64_t>(kSplitWords));
  double selected = 0;
  double sent = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double to_others = std::round(count_of(rank) * (1 - shares[rank]));
    sizes.seen[rank][kSent] = static_cast<std::uint64_t>(to_others);
    sent += to_others;
    selected += count_of(rank);
  }
  // All sent elements arrive: the running sum gives owners their parts.
  double weights = 0;
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    weights += shares[owner] * (selected - count_of(owner));
  }
  double running = 0;
  double given = 0;
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    running += shares[owner] * (selected - count_of(owner));
    const double until =
        owner + 1 == ranks || weights <= 0 ? sent : std::round(sent * running / weights);
    sizes.seen[owner][kReceived] = static_cast<std::uint64_t>(until - given);
    given = until;
    const auto size = static_cast<double>(regions.Size(owner));
    const double density =
        size == 0 ? 0 : std::min(1.0, shares[owner] * selected / static_cast<double>(ranks) / size);
    sizes.seen[owner][kSummed] =
        static_cast<std::uint64_t>(std::lround(size * overlap.Union(density, ranks)));
  }
}

// Adds one round for all slices. Only each rank's sums of sent and received slices are known.
void AddSplitRound(const ExchangeSizes& sizes, const Regions& regions, const Topology& topology,
                   RoundPlan& plan) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  std::vector<Traffic> of_rank;
  std::uint64_t merged = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t sent = sizes.seen[rank][kSent];
    const std::uint64_t received = sizes.seen[rank][kReceived];
    const std::uint64_t own = sizes.payload_bytes[rank] / kSparseElementBytes - sent;
    of_rank.push_back(
        {ranks - 1, ranks - 1, sent * kSparseElementBytes, received * kSparseElementBytes});
    plan.served.push_back(received + own);
    merged = std::max(merged, received + own);
  }
  AddDirectRounds(of_rank, ranks - 1, topology, plan);
  plan.rounds.back()[Work::kMerge] = merged;
  // The region is cleared, and scanned for the added elements.
  plan.rounds.back()[Work::kAdd] = regions.Largest();
}

RoundPlan SplitAllgather::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  RoundPlan plan;
  plan.per_rank.resize(ranks);
  plan.sums = sizes.payload_bytes.front() / kSparseElementBytes;
  if (ranks == 1) return plan;
  const Regions regions{sizes.shape.elements, ranks};
  std::vector<std::uint64_t> counts;
  for (const auto& seen : sizes.seen) counts.push_back(seen[kSummed]);
  plan.dense_sums = Dense(counts, regions.elements);
  plan.sums = plan.dense_sums ? regions.elements
                              : std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  AddSplitRound(sizes, regions, topology, plan);
  AddGatherRounds(EqualBlocks(ranks, sizeof(std::uint64_t)), topology, plan);
  AddGatherRounds(Begins(counts, regions, plan.dense_sums), topology, plan);
  return plan;
}

}  // namespace

CollectiveDescriptor SparcmlSplitAllgather() {
  return {.name = kSplitAllgather,
          .source =
              "Renggli et al., SparCML, SC 2019, section 5.3; TopkDSA of Li & Hoefler, PPoPP 2022",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = [](const Options& options) -> std::unique_ptr<Collective> {
            return std::make_unique<SplitAllgather>(DenseSwitchOf(options));
          },
          .host_memory = true,
          .sums_on_host = true,
          .options = {ChoiceOption(
              "dense_switch", "bytes", {"bytes", "published", "never"},
              "when regions are gathered dense: once elements with indices take as many bytes; "
              "published: once a third of the elements have a sum; or never")},
          .traits = [](const Options&) { return CollectiveTraits{.sums = true}; },
          .summary = "each rank adds up its region of the range, then regions are gathered",
          .deviations =
              "Slices go to all owners at once, at their true lengths: the code exchanges counts "
              "first and then four slices at a time. The last region has all of the rest of n/P; "
              "the code takes only a part of it. Indices stay relative to the range; the code "
              "sends them relative to a region and as floats. Values are not quantised."};
}

}  // namespace sparfuse::baselines
