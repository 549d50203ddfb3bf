// Sums payloads by recursive doubling: SparCML's sparse all-reduce for few elements or fast
// networks.
//
// Source: C. Renggli et al., SparCML: High-Performance Sparse Communication for Machine Learning,
//         SC 2019: SSAR_Recursive_double, on streams that switch to a dense form.
//
// In round j = 0, 1, ... ranks r and r xor 2^j exchange their sums and add them, so that after log2
// P rounds all ranks have the whole sum. The payload is the union of 2^j ranks' selections. It
// grows from round to round, and becomes dense if elements with indices would take as many bytes. A
// sum's own size decides its form, and a message's length tells the form: no counts are exchanged
// first. Partners add the same two sums, and a + b = b + a: replicas are bit-equal. If P is not a
// power of two, let P' be the largest one below. Ranks from P' on first send their payload to rank
// r - P', and at last receive the sum from it.
#include <algorithm>
#include <bit>
#include <cmath>

#include "baselines/sparcml/sparcml.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kDoublingName = "sparcml-recursive-doubling";

// P' ranks double; each rank r >= P' is folded into r - P'.
struct Doubling {
  explicit Doubling(int all)
      : ranks(all), doubling(static_cast<int>(std::bit_floor(static_cast<unsigned>(all)))) {}

  std::size_t rounds() const {
    return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(doubling)) - 1);
  }
  bool Folded(int rank) const { return rank >= doubling; }
  bool HasFolded(int rank) const { return rank + doubling < ranks; }
  // Returns the number of payloads that a rank has added up before round `round`.
  std::size_t Members(int rank, std::size_t round) const {
    const int size = 1 << round;
    const int begin = rank / size * size;
    return static_cast<std::size_t>(size + std::clamp(ranks - doubling - begin, 0, size));
  }

  int ranks;
  int doubling;
};

class RecursiveDoubling final : public Collective {
 public:
  explicit RecursiveDoubling(DenseSwitch rule) : rule_(rule) {}
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override;
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;

 private:
  bool IsDenseSum(std::uint64_t bytes, std::size_t elements) const {
    return rule_ != DenseSwitch::kNever && elements > 0 && bytes == elements * sizeof(float);
  }
  void CountWork(std::uint64_t bytes, std::uint64_t other, std::size_t elements,
                 Round& round) const;

  DenseSwitch rule_;
};

Task Receive(Communicator& communicator, ExchangeBuffers& buffers, int from, int tag,
             std::span<const std::byte>& received) {
  const auto requests = co_await Complete(communicator.Irecv(from, tag, buffers.gathered));
  received = buffers.gathered.first(requests[0]->bytes());
}

Task RecursiveDoubling::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  const int rank = communicator.rank();
  CheckGatherBuffers(kDoublingName, buffers, static_cast<std::size_t>(communicator.size()));
  buffers.payloads.assign(1, buffers.own);
  if (communicator.size() == 1) co_return;

  const Doubling among(communicator.size());
  PartialSum sum(buffers.shape.elements, rule_, buffers.kept);
  std::span<const std::byte> received;
  const std::function<void()> add = [&] { sum.Add(received); };
  co_await OffThread(buffers, [&] { sum.Start(buffers.own); });
  std::span<const std::byte> result;
  if (among.Folded(rank)) {
    const int partner = rank - among.doubling;
    co_await Complete(communicator.Isend(partner, tag, sum.message()));
    co_await Receive(communicator, buffers, partner, tag, received);
    buffers.seen.assign(among.rounds(), 0);
    result = received;
  } else {
    if (among.HasFolded(rank)) {
      co_await Receive(communicator, buffers, rank + among.doubling, tag, received);
      co_await OffThread(buffers, add);
    }
    for (int distance = 1; distance < among.doubling; distance *= 2) {
      const int partner = rank ^ distance;
      buffers.seen.push_back(sum.message().size());
      const auto requests = co_await Complete(communicator.Irecv(partner, tag, buffers.gathered),
                                              communicator.Isend(partner, tag, sum.message()));
      received = buffers.gathered.first(requests[0]->bytes());
      co_await OffThread(buffers, add);
    }
    if (among.HasFolded(rank)) {
      co_await Complete(communicator.Isend(rank + among.doubling, tag, sum.message()));
    }
    result = sum.message();
  }
  buffers.seen.push_back(result.size());
  if (IsDenseSum(result.size(), buffers.shape.elements)) {
    GiveDense(result, buffers);
  } else {
    CheckPayloadBytes(kDoublingName, buffers, static_cast<std::size_t>(rank), result.size());
    buffers.payloads.assign(1, result);
  }
}

void RecursiveDoubling::Expect(const OverlapModel& overlap, const Topology& topology,
                               ExchangeSizes& sizes) const {
  const Doubling among(topology.ranks);
  sizes.seen.clear();
  if (among.ranks == 1) return;
  const std::size_t n = sizes.shape.elements;
  double selected = 0;
  for (const std::uint64_t bytes : sizes.payload_bytes) {
    selected += static_cast<double>(bytes) / kSparseElementBytes;
  }
  const double density =
      n == 0 ? 0 : std::min(1.0, selected / among.ranks / static_cast<double>(n));
  const auto expected = [&](std::size_t members) {
    const double count = static_cast<double>(n) * overlap.Union(density, members);
    return SumBytes(rule_, static_cast<std::size_t>(std::lround(count)), n);
  };
  const std::uint64_t result = expected(static_cast<std::size_t>(among.ranks));
  for (int rank = 0; rank < among.ranks; ++rank) {
    std::vector<std::uint64_t> words(among.rounds());
    for (std::size_t round = 0; round < words.size() && !among.Folded(rank); ++round) {
      words[round] = expected(among.Members(rank, round));
    }
    words.push_back(result);
    sizes.seen.push_back(std::move(words));
  }
}

// Counts the work of adding a sum of `other` bytes to one of `bytes`, if that exceeds the round's.
void RecursiveDoubling::CountWork(std::uint64_t bytes, std::uint64_t other, std::size_t elements,
                                  Round& round) const {
  const bool dense = IsDenseSum(bytes, elements);
  const bool other_dense = IsDenseSum(other, elements);
  const auto at_least = [&](Work kind, std::uint64_t count) {
    round[kind] = std::max(round[kind], count);
  };
  if (dense && other_dense) return at_least(Work::kAdd, elements);
  at_least(Work::kMerge, ((dense ? 0 : bytes) + (other_dense ? 0 : other)) / kSparseElementBytes);
}

RoundPlan RecursiveDoubling::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const Doubling among(topology.ranks);
  const std::size_t n = sizes.shape.elements;
  RoundPlan plan;
  plan.per_rank.resize(static_cast<std::size_t>(among.ranks));
  plan.sums = sizes.payload_bytes.front() / kSparseElementBytes;
  if (among.ranks == 1) return plan;
  const auto seen = [&](int rank, std::size_t word) {
    return sizes.seen[static_cast<std::size_t>(rank)][word];
  };
  const auto payload = [&](int rank) {
    const std::uint64_t bytes = sizes.payload_bytes[static_cast<std::size_t>(rank)];
    return SumBytes(rule_, bytes / kSparseElementBytes, n);
  };
  const std::uint64_t result = seen(0, among.rounds());
  plan.dense_sums = IsDenseSum(result, n);
  plan.sums = plan.dense_sums ? n : result / kSparseElementBytes;

  std::vector<RankMessage> messages;
  const auto fold = [&](bool back) {
    messages.clear();
    for (int rank = among.doubling; rank < among.ranks; ++rank) {
      const int partner = rank - among.doubling;
      messages.push_back(back ? RankMessage{partner, rank, result}
                              : RankMessage{rank, partner, payload(rank)});
    }
    return messages.empty() ? nullptr : &AddRound(messages, topology, plan);
  };
  if (Round* const round = fold(false)) {
    for (const auto& [from, to, bytes] : messages) CountWork(payload(to), bytes, n, *round);
  }
  for (std::size_t j = 0; j < among.rounds(); ++j) {
    messages.clear();
    for (int rank = 0; rank < among.doubling; ++rank) {
      messages.push_back({rank, rank ^ (1 << j), seen(rank, j)});
    }
    Round& round = AddRound(messages, topology, plan);
    for (const auto& [from, to, bytes] : messages) CountWork(seen(to, j), bytes, n, round);
  }
  fold(true);
  return plan;
}

}  // namespace

CollectiveDescriptor SparcmlRecursiveDoubling() {
  return {.name = kDoublingName,
          .source = "Renggli et al., SparCML, SC 2019, SSAR_Recursive_double",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = [](const Options& options) -> std::unique_ptr<Collective> {
            return std::make_unique<RecursiveDoubling>(DenseSwitchOf(options));
          },
          .host_memory = true,
          .sums_on_host = true,
          .options = {ChoiceOption(
              "dense_switch", "bytes", {"bytes", "never"},
              "when a sum becomes dense: once elements with indices take as many bytes, or never")},
          .traits = [](const Options&) { return CollectiveTraits{.sums = true}; },
          .summary = "in each round unions of twice as many ranks, dense if that is no larger",
          .deviations =
              "Any number of ranks: ranks beyond a power of two first send their payload to "
              "another rank, and get the sum at the end. The switch weighs bytes alone, not the "
              "time of sparse additions, for which the paper lowers it. Values are not quantised."};
}

}  // namespace sparfuse::baselines
