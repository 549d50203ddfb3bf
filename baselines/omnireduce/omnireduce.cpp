// OmniReduce, the collective that sums block by block and sends only blocks that some
// rank needs.
//
// Source: J. Fei, C.-Y. Ho, A. N. Sahu, M. Canini & A. Sapio, "Efficient Sparse Collective
//         Communication and its Application to Accelerate Distributed Deep Learning", SIGCOMM 2021:
//         streaming aggregation over blocks, with aggregators on the workers' own machines.
//
// Every rank is a worker, and the aggregator of a contiguous shard of the blocks. A shard is cut
// into streams (omnireduce.hpp), which run side by side: while messages of every second
// stream travel, the others are summed. A round of a stream has two steps: all workers that may
// send blocks do so; the aggregator sends to all of them the sums of at most `bundle` blocks. If
// rank r has B_r blocks, and U blocks are on any rank,
//
//   messages  sums of a stream: max(1, ceil(its U / bundle)) to each other rank;
//             its workers: 1 at first, then one as long as they have blocks left, at most as many
//   bytes     4 words of a message + (4 + 4 block) each block. Rank r sends B_r blocks once, except
//             those of its own shard; every rank receives U blocks once, except its own shard's
//
// Elements of a block that a rank has not selected travel as zeros. Apply does not get sums that
// are 0.
#include "baselines/omnireduce/omnireduce.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

// Returns the bytes that the ranks of the busiest node send, or get, over its network, if a rank
// exchanges equally with every other one. Returns 0 if that is no more than a rank's own bytes.
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

// Splits a whole number into whole parts by weights with a known sum; the parts add up to it.
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

// Expects a run's notes (SeenWord), from the number k_r of elements that each rank r selects. With
// n elements in B blocks, S_r blocks and s_r streams in the shard of rank r, s streams in all, and
// the mean k of k_r over the ranks:
//
//   b(k, m)  blocks with an element of at least one of m ranks with k elements each: B times the
//            expected fraction
//   w        words of a block in a message, on average: 1 + n / B
//   U, u     blocks of any rank, b(k, ranks); those in one stream, U / s
//   O, o     blocks of rank r, b(k_r, 1); those in one stream, O / s
//
//   bundles of rank r    (s - s_r) streams of other shards, each with 1 message for the first
//                        `bundle` blocks and 1 for each bundle * o / max(u, o) blocks after them:
//                        the rank's part of the `bundle` blocks that a round gives out
//   words of bundles     1 a message, and w for each of O (1 - S_r / B) blocks
//   sums of its shard    s_r streams, each with max(1, ceil(u / bundle)) messages
//   words of sums        1 a message, and the shard's part S_r / B of U w
//   waits                2 max(1, ceil(f / bundle)), twice as many if streams take turns. The
//                        fullest stream has f = u + sqrt(2 ln(s) u (1 - U / B)) blocks: the largest
//                        of s binomial numbers lies as many deviations above the mean
//
// The input of a rank is its share of all ranks' output, by the streams and blocks of the shards.
class Expectation {
 public:
  // Precondition: more than one rank, and at least one block.
  Expectation(const OmniReduceOptions& options, const OverlapModel& overlap, std::size_t ranks,
              ExchangeSizes& sizes)
      : options_(options),
        overlap_(overlap),
        sizes_(sizes),
        cut_{sizes.shape.elements, options.block},
        n_(static_cast<double>(cut_.elements)),
        blocks_(static_cast<double>(cut_.all().size())),
        word_(1 + n_ / blocks_),
        ranks_(ranks),
        slots_(OmniReduceStreams(sizes.shape.kept, options.block, options.bundle, options.slots,
                                 ranks)) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      mean_ += ElementsOf(sizes, rank) / static_cast<double>(ranks);
      shards_.push_back(cut_.all().Part(ranks, rank).size());
      streams_.push_back(std::min(slots_, shards_.back()));
      all_streams_ += streams_.back();
    }
    united_ = Blocks(mean_, ranks);
    in_stream_ = united_ / static_cast<double>(all_streams_);
  }

  // Fills in sizes.seen, which has room for all ranks.
  void Fill() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) ExpectBundles(rank);
    ExpectSums();
  }

  static double ElementsOf(const ExchangeSizes& sizes, std::size_t rank) {
    return static_cast<double>(sizes.payload_bytes[rank] / kSparseElementBytes);
  }

 private:
  // Computes b(elements, together).
  double Blocks(double elements, std::size_t together) const {
    if (elements <= 0) return 0.0;
    const double part = overlap_.BlockUnion(std::min(elements / n_, 1.0), options_.block, together);
    return std::clamp(blocks_ * part, std::min(1.0, elements), blocks_);
  }

  // Returns the messages of a stream's sums, if `blocks` blocks are summed in it.
  std::uint64_t Messages(double blocks) const {
    return static_cast<std::uint64_t>(
        std::max(1.0, std::ceil(blocks / static_cast<double>(options_.bundle))));
  }

  // Returns the messages of a worker with `own` blocks in a stream.
  std::uint64_t WorkersMessages(double own) const {
    const auto bundle = static_cast<double>(options_.bundle);
    if (own <= bundle) return 1;
    const double in_round = bundle * own / std::max(in_stream_, own);
    return 1 + static_cast<std::uint64_t>(std::ceil((own - bundle) / in_round));
  }

  // Computes f.
  double FullestStream() const {
    const double free = 1 - united_ / blocks_;
    return in_stream_ +
           std::sqrt(2 * std::log(static_cast<double>(all_streams_)) * in_stream_ * free);
  }

  // Expects a rank's output as a worker.
  void ExpectBundles(std::size_t rank) {
    auto& seen = sizes_.seen[rank];
    const double own = Blocks(ElementsOf(sizes_, rank), 1);
    const double here = own * static_cast<double>(shards_[rank]) / blocks_;
    seen[kBundles] =
        WorkersMessages(own / static_cast<double>(all_streams_)) * (all_streams_ - streams_[rank]);
    seen[kBundleWords] =
        seen[kBundles] + static_cast<std::uint64_t>(std::llround((own - here) * word_));
    seen[kAdded] = static_cast<std::uint64_t>(here * (word_ - 1));
    bundles_ += static_cast<double>(seen[kBundles]);
    bundle_words_ += static_cast<double>(seen[kBundleWords]);
  }

  // Expects the ranks' input and output as aggregators.
  void ExpectSums() {
    const std::size_t all = cut_.all().size();
    Split bundles_in(bundles_, all_streams_);
    Split bundle_words_in(bundle_words_, all);
    Split result_words(united_ * word_, all);
    Split sums(n_ * overlap_.Union(std::min(mean_ / n_, 1.0), ranks_), all);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      auto& seen = sizes_.seen[rank];
      seen[kBundlesIn] = bundles_in.Next(streams_[rank]);
      seen[kBundleWordsIn] = bundle_words_in.Next(shards_[rank]);
      seen[kResults] = Messages(in_stream_) * streams_[rank];
      seen[kResultWords] = seen[kResults] + result_words.Next(shards_[rank]);
      seen[kAdded] += seen[kBundleWordsIn];
      seen[kSums] = sums.Next(shards_[rank]);
      seen[kWaits] = 2 * Messages(FullestStream()) * (slots_ > 1 ? 2 : 1);
    }
  }

  const OmniReduceOptions& options_;
  const OverlapModel& overlap_;
  ExchangeSizes& sizes_;
  BlockCut cut_;
  double n_;
  double blocks_;            // B
  double word_;              // w
  double mean_ = 0;          // k
  double united_ = 0;        // U
  double in_stream_ = 0;     // u
  double bundles_ = 0;       // of all ranks
  double bundle_words_ = 0;  // of all ranks
  std::size_t ranks_;
  std::size_t slots_;                 // streams of a shard with as many blocks
  std::vector<std::size_t> shards_;   // S_r
  std::vector<std::size_t> streams_;  // s_r
  std::size_t all_streams_ = 0;       // s
};

class OmniReduce final : public Collective {
 public:
  explicit OmniReduce(const Options& resolved)
      : options_{static_cast<std::size_t>(IntOption(resolved, "block")),
                 static_cast<std::size_t>(IntOption(resolved, "slots")),
                 static_cast<std::size_t>(IntOption(resolved, "bundle"))} {}

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override {
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    sizes.seen.assign(ranks, std::vector<std::uint64_t>(kSeenWords, 0));
    if (ranks == 1) {
      sizes.seen[0][kSums] = static_cast<std::uint64_t>(Expectation::ElementsOf(sizes, 0));
    } else if (sizes.shape.elements > 0) {
      Expectation(options_, overlap, ranks, sizes).Fill();
    }
  }
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

  // Blocks go to the aggregators, then sums to the workers; every rank is both.
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
  sending[Work::kMerge] = result_words;  // every float of the sums is examined
  plan.rounds = {bundles, sending};
  return plan;
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
      .options =
          {WholeOption("block", 256, 1, 65536, "elements of a block"),
           WholeOption(
               "slots", 4, 1, static_cast<double>(kMostSlots),
               "largest number of streams of a shard; only as many as the selected blocks fill"),
           WholeOption("bundle", 256, 1, 4096, "largest number of blocks of a message")},
      .traits = [](const Options&) { return CollectiveTraits{.sums = true}; },
      .summary =
          "sums of blocks by streaming aggregators on the ranks; only blocks that some rank "
          "needs travel",
      .deviations =
          "Aggregators are the ranks themselves; there are none on machines of their own. A "
          "message has up to `bundle` blocks instead of one packet's, and a worker may send again "
          "before all that it sent is summed. A stream's first block travels only where it is "
          "needed. Contributions are kept and added in the order of the ranks instead of the order "
          "of their arrival. All messages of a step are waited for; lost messages are left to the "
          "transport."};
}

}  // namespace sparfuse::baselines
