#include "baselines/omnireduce/omnireduce.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "baselines/omnireduce/omnireduce_exchange.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

class OmniReduce final : public Collective {
 public:
  explicit OmniReduce(const Options& resolved)
      : options_{static_cast<std::size_t>(IntOption(resolved, "block")),
                 static_cast<std::size_t>(IntOption(resolved, "slots")),
                 static_cast<std::size_t>(IntOption(resolved, "bundle"))} {}

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override;
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;

 private:
  OmniReduceOptions options_;
};

Task OmniReduce::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  if (ranks == 1) {
    buffers.payloads.assign(1, buffers.own);
    buffers.seen.assign(kSeenWords, 0);
    buffers.seen[kSums] = buffers.own.size() / kSparseElementBytes;
    co_return;
  }
  CheckGatherBuffers("omnireduce", buffers, ranks);
  StreamExchange exchange(options_, buffers, static_cast<std::size_t>(communicator.rank()), ranks);
  while (!exchange.done()) {
    std::vector<std::unique_ptr<Request>> requests = exchange.Post(communicator, tag);
    if (exchange.works()) {
      if (buffers.jobs == nullptr) {
        exchange.Work();
      } else {
        std::function<void()> work = [&exchange] { exchange.Work(); };
        requests.push_back(buffers.jobs->Start(std::move(work)));
      }
    }
    requests = co_await Complete(std::move(requests));
    exchange.Finish(requests);
  }
  exchange.Conclude(buffers);
}

// The bytes that the ranks of the busiest node send, or get, over its network, where a rank does
// as much with each other one; 0 where that is no more than a rank does.
std::uint64_t NodeBytes(const Topology& topology, std::span<const std::uint64_t> bytes) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const auto per_node = static_cast<std::size_t>(topology.ranks_per_node);
  if (per_node <= 1 || topology.nodes() <= 1) return 0;
  std::uint64_t most = 0;
  for (std::size_t first = 0; first < ranks; first += per_node) {
    const std::size_t here = std::min(per_node, ranks - first);
    std::uint64_t sum = 0;
    for (std::size_t rank = first; rank < first + here; ++rank) sum += bytes[rank];
    most = std::max(most, (sum * (ranks - here) + ranks - 2) / (ranks - 1));
  }
  return most;
}

RoundPlan OmniReduce::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const std::size_t ranks = sizes.seen.size();
  const std::uint64_t others = ranks - 1;
  RoundPlan plan;
  plan.per_rank.resize(ranks);
  std::uint64_t sums = 0;
  std::uint64_t results = 0;
  std::uint64_t result_words = 0;
  for (const auto& seen : sizes.seen) {
    sums += seen[kSums];
    results += seen[kResults];
    result_words += seen[kResultWords];
  }
  plan.sums = sums;
  const std::uint64_t waits = sizes.seen.front()[kWaits];
  if (waits == 0) return plan;

  // Blocks to the aggregators, then sums to the workers; every rank is both.
  Round bundles;
  Round sending;
  bundles.repeat = sending.repeat = static_cast<std::uint32_t>(waits / 2);
  bundles.link = sending.link = SlowestLink(topology);
  std::vector<std::uint64_t> bundle_bytes(ranks);
  std::vector<std::uint64_t> result_bytes(ranks);
  std::uint64_t bundles_of_one = 0;
  std::uint64_t results_of_one = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto& seen = sizes.seen[rank];
    plan.per_rank[rank] = {seen[kBundles] + others * seen[kResults],
                           seen[kBundlesIn] + results - seen[kResults],
                           kWord * (seen[kBundleWords] + others * seen[kResultWords]),
                           kWord * (seen[kBundleWordsIn] + result_words - seen[kResultWords])};
    bundle_bytes[rank] = kWord * std::max(seen[kBundleWords], seen[kBundleWordsIn]);
    result_bytes[rank] =
        kWord * std::max(others * seen[kResultWords], result_words - seen[kResultWords]);
    bundles_of_one = std::max(bundles_of_one, seen[kBundles]);
    results_of_one = std::max(results_of_one, others * seen[kResults]);
    bundles[Work::kMerge] =
        std::max(bundles[Work::kMerge], sizes.payload_bytes[rank] / kSparseElementBytes);
    bundles[Work::kAdd] = std::max(bundles[Work::kAdd], seen[kAdded]);
  }
  bundles.bytes = *std::ranges::max_element(bundle_bytes);
  sending.bytes = *std::ranges::max_element(result_bytes);
  bundles.node_bytes = NodeBytes(topology, bundle_bytes);
  sending.node_bytes = NodeBytes(topology, result_bytes);
  const auto in_one = [&](std::uint64_t messages) {
    return static_cast<std::uint32_t>((messages + bundles.repeat - 1) / bundles.repeat);
  };
  bundles.messages = in_one(bundles_of_one);
  sending.messages = in_one(results_of_one);
  sending[Work::kMerge] = result_words;  // every float of the sums is looked at
  plan.rounds = {bundles, sending};
  return plan;
}

// Splits a whole number by weights of which the sum is known, into whole numbers that add up to it.
class Split {
 public:
  Split(double whole, std::size_t weights)
      : whole_(std::round(whole)), weights_(static_cast<double>(weights)) {}

  std::uint64_t Next(std::size_t weight) {
    used_ += weight;
    const auto up_to = static_cast<std::uint64_t>(
        std::floor(whole_ * (static_cast<double>(used_) / weights_) + 1e-6));
    return up_to - std::exchange(given_, up_to);
  }

 private:
  double whole_;
  double weights_;
  std::size_t used_ = 0;
  std::uint64_t given_ = 0;
};

void OmniReduce::Expect(const OverlapModel& overlap, const Topology& topology,
                        ExchangeSizes& sizes) const {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const BlockCut cut{sizes.shape.elements, options_.block};
  const BlockRange all = cut.all();
  sizes.seen.assign(ranks, std::vector<std::uint64_t>(kSeenWords, 0));
  const auto elements_of = [&](std::size_t rank) {
    return static_cast<double>(sizes.payload_bytes[rank] / kSparseElementBytes);
  };
  if (ranks == 1) sizes.seen[0][kSums] = static_cast<std::uint64_t>(elements_of(0));
  if (ranks == 1 || all.size() == 0) return;

  // Blocks of a rank, and of any.
  const auto n = static_cast<double>(cut.elements);
  const auto blocks_of = [&](double elements, std::size_t together) {
    if (elements <= 0) return 0.0;
    const auto blocks = static_cast<double>(all.size());
    const double part = overlap.BlockUnion(std::min(elements / n, 1.0), options_.block, together);
    return std::clamp(blocks * part, std::min(1.0, elements), blocks);
  };
  double mean = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    mean += elements_of(rank) / static_cast<double>(ranks);
  }
  const double united = blocks_of(mean, ranks);
  const double record = 1 + n / static_cast<double>(all.size());  // words, on average

  // Streams go through as many blocks each.
  const std::size_t slots =
      OmniReduceStreams(sizes.shape.kept, options_.block, options_.bundle, options_.slots, ranks);
  std::vector<std::size_t> shards(ranks);   // their blocks
  std::vector<std::size_t> streams(ranks);  // of the shards: those that have blocks
  std::size_t all_streams = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    shards[rank] = all.Part(ranks, rank).size();
    streams[rank] = std::min(slots, shards[rank]);
    all_streams += streams[rank];
  }
  const auto bundle = static_cast<double>(options_.bundle);
  const double in_stream = united / static_cast<double>(all_streams);
  const auto rounds_of = [&](double blocks) {
    return static_cast<std::uint64_t>(std::max(1.0, std::ceil(blocks / bundle)));
  };
  const std::uint64_t rounds = rounds_of(in_stream);
  // The fullest stream, for which all wait: about sqrt(2 ln streams) deviations above the mean of
  // a binomial number.
  const double free = 1 - united / static_cast<double>(all.size());
  const double fullest =
      in_stream + std::sqrt(2 * std::log(static_cast<double>(all_streams)) * in_stream * free);

  double bundles = 0;
  double bundle_words = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto& seen = sizes.seen[rank];
    const double own = blocks_of(elements_of(rank), 1);
    const double own_in_stream = own / static_cast<double>(all_streams);
    // `bundle` blocks at first, then in every round its part of the `bundle` that are given out.
    std::uint64_t messages = 1;
    if (own_in_stream > bundle) {
      const double in_round = bundle * own_in_stream / std::max(in_stream, own_in_stream);
      messages += static_cast<std::uint64_t>(std::ceil((own_in_stream - bundle) / in_round));
    }
    const double here = own * static_cast<double>(shards[rank]) / static_cast<double>(all.size());
    seen[kBundles] = messages * (all_streams - streams[rank]);
    seen[kBundleWords] =
        seen[kBundles] + static_cast<std::uint64_t>(std::llround((own - here) * record));
    seen[kAdded] = static_cast<std::uint64_t>(here * (record - 1));
    bundles += static_cast<double>(seen[kBundles]);
    bundle_words += static_cast<double>(seen[kBundleWords]);
  }
  Split bundles_in(bundles, all_streams);
  Split bundle_words_in(bundle_words, all.size());
  Split result_words(united * record, all.size());
  Split sums(n * overlap.Union(std::min(mean / n, 1.0), ranks), all.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto& seen = sizes.seen[rank];
    seen[kBundlesIn] = bundles_in.Next(streams[rank]);
    seen[kBundleWordsIn] = bundle_words_in.Next(shards[rank]);
    seen[kResults] = rounds * streams[rank];
    seen[kResultWords] = seen[kResults] + result_words.Next(shards[rank]);
    seen[kAdded] += seen[kBundleWordsIn];
    seen[kSums] = sums.Next(shards[rank]);
    seen[kWaits] = 2 * rounds_of(fullest) * (slots > 1 ? 2 : 1);
  }
}

OptionSpec Whole(const char* name, std::int64_t fallback, double most, const char* meaning) {
  return {
      .name = name, .fallback = fallback, .min = 1, .max = most, .choices = {}, .meaning = meaning};
}

}  // namespace

std::size_t OmniReduceStreams(std::size_t kept, std::size_t block, std::size_t bundle,
                              std::size_t slots, std::size_t ranks) {
  const std::size_t blocks = (kept + block - 1) / block;
  return std::clamp<std::size_t>((blocks + ranks * bundle - 1) / (ranks * bundle), 1, slots);
}

CollectiveDescriptor OmniReduceCollective() {
  return {
      .name = "omnireduce",
      .source = "Fei, Ho, Sahu, Canini & Sapio, OmniReduce, SIGCOMM 2021",
      .revision = 1,
      .payload = PayloadKind::kSparse,
      .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
        return std::make_unique<OmniReduce>(resolved);
      },
      .host_memory = true,
      .options = {Whole("block", 256, 65536, "elements of a block"),
                  Whole("slots", 4, static_cast<double>(kMostSlots),
                        "streams of a shard at most; as many as are filled by what is selected"),
                  Whole("bundle", 256, 4096, "blocks of a message at most")},
      .traits = [](const Options&) { return CollectiveTraits{.sums = true}; },
      .summary =
          "sums of blocks by streaming aggregators on the ranks; only blocks that some rank "
          "needs travel",
      .deviations =
          "Aggregators are the ranks themselves; there are none on machines of their own. A "
          "message has up to `bundle` blocks instead of one packet's, and a worker may send again "
          "before all that it sent is summed. A stream's first block travels only where it is "
          "needed. Contributions are kept and added in the order of the ranks instead of in that "
          "of their arrival. All messages of a step are waited for; lost ones are the "
          "transport's."};
}

}  // namespace sparfuse::baselines
