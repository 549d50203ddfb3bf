// Ok-Topk's all-reduce: payloads are summed by regions with about equally many selected
// elements, and every rank gets about the k largest sums.
//
// Source:      S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning,
//              PPoPP 2022, Algorithms 1 and 2; constants as in the published code.
//
//   1. In steps 0, R, 2 R, ... the ranks agree on P regions.
//   2. Every rank sends to each other rank its selected elements of that rank's region; owners add
//      (oktopk.hpp).
//   3. In steps 0, T, 2 T, ... all sums that are not 0 are gathered on all ranks. The k largest are
//      the result, and the least of their magnitudes is the global threshold. In other steps the
//      sums that reach the threshold are gathered and are the result. Their number adapts the
//      threshold (oktopk.hpp). If they lie too unevenly they are moved to equal blocks first.
//   4. A value that a rank selected at an index outside the result returns to its residual.
//
// A step with an adapted threshold sends 2 k 8 (P - 1) / P bytes a rank if k sums reach it, and at
// most another 8 k to balance them. A step with an exact one gathers the union of the selections.
//
// Deviations:  the threshold is also exact in the first step of a range or of another k, and after
//              a step in which fewer than k sums were not 0. Ties at the k-th largest go to the
//              smaller indices, so that k sums are the result. Messages hold indices and values,
//              and their lengths give the counts; the published code exchanges P - 1 counts first.
#include "baselines/oktopk/oktopk.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "baselines/sparcml/sparcml.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"

namespace sparfuse::baselines {
namespace {

enum class Balancing : std::uint8_t { kOff, kOn, kAuto };

struct OkTopkOptions {
  GlobalThreshold threshold;
  std::uint64_t repartition_period = 64;
  std::size_t bucket = 4;
  Balancing balance = Balancing::kAuto;
  double balance_above = 4;

  // Returns whether these counts per rank are moved to equal blocks.
  bool Balances(std::span<const std::uint64_t> counts) const {
    if (balance != Balancing::kAuto) return balance == Balancing::kOn;
    const auto total = std::accumulate(counts.begin(), counts.end(), 0.0);
    const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
    return most * static_cast<double>(counts.size()) > balance_above * total;
  }
};

OkTopkOptions ReadOkTopkOptions(const Options& resolved) {
  const std::string& balance = StringOption(resolved, "balance");
  return {
      .threshold = ReadGlobalThreshold(resolved),
      .repartition_period = static_cast<std::uint64_t>(IntOption(resolved, "repartition_period")),
      .bucket = static_cast<std::size_t>(IntOption(resolved, "bucket_size")),
      .balance = balance == "off"  ? Balancing::kOff
                 : balance == "on" ? Balancing::kOn
                                   : Balancing::kAuto,
      .balance_above = DoubleOption(resolved, "balance_above")};
}

struct OkTopkState final : CollectiveState {
  std::vector<std::size_t> boundaries;  // empty: not agreed yet
  float threshold = 0;                  // 0: unknown
  std::size_t kept = 0;                 // the threshold's k
  // Reused by the next step.
  RangeSums region;
  SparseSums sums;     // of the own region, then of all regions
  SparseSums segment;  // gathered sums, then the result
  SparseSums rest;

  void Exchange(StateNumbers& numbers) override {
    numbers.All(boundaries);
    numbers(threshold);
    numbers(kept);
  }
};

// A rank's notes of a run: ExchangeSizes::seen.
struct OkTopkSeen {
  bool voted = false;
  bool exact = false;
  SplitCounts split;
  std::uint64_t region = 0;    // elements of the own region
  std::uint64_t distinct = 0;  // of them, the ones that some rank has sent
  std::uint64_t segment = 0;   // of them, the gathered ones

  std::vector<std::uint64_t> words() const {
    return {(voted ? 1u : 0u) + (exact ? 2u : 0u),
            split.kept,
            split.received,
            region,
            distinct,
            segment};
  }
  static OkTopkSeen Of(const std::vector<std::uint64_t>& words, std::uint64_t payload_bytes) {
    const std::uint64_t own = payload_bytes / kSparseElementBytes;
    return {(words.at(0) & 1) != 0,
            (words.at(0) & 2) != 0,
            {words.at(1), own - words.at(1), words.at(2)},
            words.at(3),
            words.at(4),
            words.at(5)};
  }
};

// Returns part j of `total`, cut into as many equal parts as there are ranks.
std::uint64_t PartOf(std::uint64_t total, std::size_t j, std::size_t ranks) {
  return total * (j + 1) / ranks - total * j / ranks;
}

// Returns [P + 1] begins of consecutive blocks, with `bytes` bytes an element.
std::vector<std::uint64_t> BeginsOf(std::span<const std::uint64_t> counts, std::uint64_t bytes) {
  std::vector<std::uint64_t> begins = {0};
  for (const std::uint64_t count : counts) begins.push_back(begins.back() + count * bytes);
  return begins;
}

// Sets `back` to the elements of `own` whose indices no payload has. Indices increase from each
// payload to the next.
void SetReturned(const SparsePayload& own, const std::vector<std::span<const std::byte>>& payloads,
                 SparseSums& back) {
  const std::size_t count = own.indices.size();
  back.indices.resize(count);
  back.values.resize(count);
  std::size_t i = 0;
  std::size_t to = 0;
  for (const auto bytes : payloads) {
    const auto taken = ViewSparsePayload(bytes).indices;
    for (std::size_t j = 0; i < count && j < taken.size();) {
      // Without branches: the smaller index cannot be predicted.
      const std::uint32_t mine = own.indices[i];
      const std::uint32_t other = taken[j];
      back.indices[to] = mine;
      back.values[to] = own.values[i];
      to += mine < other;
      i += mine <= other;
      j += other <= mine;
    }
  }
  for (; i < count; ++i, ++to) {
    back.indices[to] = own.indices[i];
    back.values[to] = own.values[i];
  }
  back.indices.resize(to);
  back.values.resize(to);
}

class OkTopk final : public Collective {
 public:
  explicit OkTopk(const OkTopkOptions& options) : options_(options) {}

  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape&, const Topology&) const override {
    return std::make_unique<OkTopkState>();
  }
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override;
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;

 private:
  bool IsExact(std::uint64_t step) const { return step % options_.threshold.period == 0; }
  bool IsVote(std::uint64_t step) const { return step % options_.repartition_period == 0; }

  OkTopkOptions options_;
};

Task OkTopk::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  CheckGatherBuffers("oktopk", buffers, ranks);
  const SparsePayload own = ViewSparsePayload(buffers.own);
  const ExchangeShape& shape = buffers.shape;
  OkTopkState forgotten;
  OkTopkState& state =
      buffers.state == nullptr ? forgotten : static_cast<OkTopkState&>(*buffers.state);
  // Equal on all ranks, since their inputs are.
  OkTopkSeen seen;
  seen.voted = state.boundaries.empty() || IsVote(shape.step);
  seen.exact = state.threshold == 0 || state.kept != shape.kept || IsExact(shape.step);

  if (seen.voted) {
    co_await VoteOnRegions(communicator, own.indices, shape.elements, state.boundaries, tag);
  }
  co_await SplitAndReduce(communicator, buffers, state.boundaries, options_.bucket, state.region,
                          seen.split, tag + 2);
  seen.region = state.boundaries[rank + 1] - state.boundaries[rank];
  co_await OffThread(buffers, [&] {
    state.sums.Clear();
    state.segment.Clear();
    state.region.AppendTo(state.sums);
    for (std::size_t i = 0; i < state.sums.size(); ++i) {
      const float magnitude = MagnitudeOf(state.sums.values[i]);
      if (seen.exact ? magnitude == 0 : magnitude < state.threshold) continue;
      state.segment.Add(state.sums.indices[i], state.sums.values[i]);
    }
  });
  seen.distinct = state.sums.size();
  seen.segment = state.segment.size();
  buffers.seen = seen.words();
  buffers.served = seen.split.kept + seen.split.received;

  std::vector<std::uint64_t> counts(ranks);
  counts[rank] = seen.segment;
  const auto words = std::as_writable_bytes(std::span(counts));
  const std::vector<std::uint64_t> word_begins = EqualBlocks(ranks, sizeof(std::uint64_t));
  co_await GatherBlocks(communicator, words, word_begins, tag + 3);
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (total > buffers.gathered.size() / kSparseElementBytes) {
    SPARFUSE_THROW(kComm, "oktopk: " + std::to_string(total) + " sums of " + std::to_string(ranks) +
                              " ranks: expected no more than they sent");
  }
  // The ranks' payloads have been added, so the gathered sums take their memory.
  const bool balances = !seen.exact && options_.Balances(counts);
  const std::vector<std::uint64_t> begins =
      BeginsOf(balances ? BlockCounts(total, ranks) : counts, kSparseElementBytes);
  const std::span<std::byte> gathered = buffers.gathered.first(begins.back());
  const auto block = [&](std::size_t of) {
    return gathered.subspan(begins[of], begins[of + 1] - begins[of]);
  };
  if (balances) {
    co_await MoveToBlocks(communicator, state.segment.view(), counts, block(rank), tag + 4);
  } else {
    state.segment.WriteTo(block(rank));
  }
  co_await GatherBlocks(communicator, gathered, begins, tag + 5);
  for (std::size_t of = 0; of < ranks; ++of) buffers.payloads.push_back(block(of));

  co_await OffThread(buffers, [&] {
    if (seen.exact) {
      state.sums.Clear();
      for (const auto payload : buffers.payloads) {
        const auto [indices, values] = ViewSparsePayload(payload);
        state.sums.indices.insert(state.sums.indices.end(), indices.begin(), indices.end());
        state.sums.values.insert(state.sums.values.end(), values.begin(), values.end());
      }
      KeepLargest(state.sums.view(), shape.kept, state.segment, state.rest);
      state.threshold = KthMagnitude(state.segment.values, shape.kept);
      state.kept = shape.kept;
      buffers.payloads.assign(1, state.segment.WriteTo(buffers.gathered));
    } else {
      state.threshold = options_.threshold.After(state.threshold, total, shape.kept);
    }
    SetReturned(own, buffers.payloads, state.rest);
    state.rest.WriteTo(buffers.returned);
  });
}

// Voted regions hold equal parts of the selections and of their union. Large sums may lie
// unequally.
void OkTopk::Expect(const OverlapModel& overlap, const Topology& /*topology*/,
                    ExchangeSizes& sizes) const {
  const std::size_t ranks = sizes.payload_bytes.size();
  const ExchangeShape& shape = sizes.shape;
  std::uint64_t selected = 0;
  for (const std::uint64_t bytes : sizes.payload_bytes) selected += bytes / kSparseElementBytes;
  const auto elements = static_cast<double>(shape.elements);
  const double density =
      shape.elements == 0 ? 0.0
                          : static_cast<double>(selected) / (elements * static_cast<double>(ranks));
  const auto distinct =
      static_cast<std::uint64_t>(std::llround(overlap.Union(density, ranks) * elements));
  const std::uint64_t applied = std::min<std::uint64_t>(shape.kept, distinct);
  const double share = overlap.LargestRegion(ranks) / static_cast<double>(ranks);
  const auto largest = std::min(
      applied, static_cast<std::uint64_t>(std::llround(share * static_cast<double>(applied))));

  std::vector<OkTopkSeen> seen(ranks);
  std::uint64_t sent = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t own = sizes.payload_bytes[rank] / kSparseElementBytes;
    seen[rank].split.kept = PartOf(own, rank, ranks);
    sent += own - seen[rank].split.kept;
  }
  sizes.seen.clear();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    OkTopkSeen& each = seen[rank];
    each.voted = IsVote(shape.step);
    each.exact = IsExact(shape.step);
    each.split.received = PartOf(sent, rank, ranks);
    each.region = PartOf(shape.elements, rank, ranks);
    each.distinct = PartOf(distinct, rank, ranks);
    each.segment = each.exact  ? each.distinct
                   : rank == 0 ? largest
                               : PartOf(applied - largest, rank - 1, ranks - 1);
    sizes.seen.push_back(each.words());
  }
}

RoundPlan OkTopk::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const std::size_t ranks = sizes.payload_bytes.size();
  if (sizes.seen.size() != ranks) {
    SPARFUSE_THROW(kInternal, "oktopk: sizes of " + std::to_string(sizes.seen.size()) +
                                  " ranks: expected sizes of " + std::to_string(ranks));
  }
  RoundPlan plan;
  plan.per_rank.resize(ranks);
  std::vector<SplitCounts> split;
  std::vector<std::uint64_t> counts;
  std::uint64_t scattered = 0, region = 0, distinct = 0, own = 0;
  bool voted = false, exact = false;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const OkTopkSeen seen = OkTopkSeen::Of(sizes.seen[rank], sizes.payload_bytes[rank]);
    split.push_back(seen.split);
    counts.push_back(seen.segment);
    plan.served.push_back(seen.split.kept + seen.split.received);
    scattered = std::max(scattered, plan.served.back());
    region = std::max(region, seen.region);
    distinct = std::max(distinct, seen.distinct);
    own = std::max(own, seen.split.kept + seen.split.sent);
    voted = seen.voted;
    exact = seen.exact;
  }
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  plan.sums = exact ? std::min<std::uint64_t>(total, sizes.shape.kept) : total;

  if (voted) AddVoteRounds(topology, plan);
  AddSplitRounds(split, options_.bucket, topology, plan);
  Round work{.messages = 0, .link = SlowestLink(topology)};
  work[Work::kMerge] = scattered;
  work[Work::kAdd] = region;  // its sums are set to 0 first
  work[Work::kSelect] = distinct;
  plan.rounds.push_back(work);
  AddGatherRounds(EqualBlocks(ranks, sizeof(std::uint64_t)), topology, plan);
  if (!exact && options_.Balances(counts)) {
    AddMoveRounds(counts, topology, plan);
    counts = BlockCounts(total, ranks);
  }
  AddGatherRounds(BeginsOf(counts, kSparseElementBytes), topology, plan);
  work.work = {};
  if (exact) work[Work::kSelect] = total;
  work[Work::kMerge] = own + *plan.sums;  // elements that are not in the result return
  plan.rounds.push_back(work);
  return plan;
}

std::vector<OptionSpec> OkTopkOptionSpecs() {
  std::vector<OptionSpec> options = GlobalThresholdOptions();
  options.push_back(
      WholeOption("repartition_period", 64, 1, 1e9, "steps from one vote on regions to the next"));
  options.push_back(ChoiceOption("balance", "auto", {"auto", "on", "off"},
                                 "whether sums that reach the threshold are moved to equal blocks "
                                 "before they are gathered; auto: as balance_above says"));
  options.push_back(NumberOption(
      "balance_above", 4.0, 1, 1e6,
      "balance = \"auto\" moves sums if a region has more than this multiple of the average"));
  options.push_back(WholeOption(
      "bucket_size", 4, 1, 1e6,
      "ranks that a rank sends to at once; one bucket is added up while the next is on its way"));
  return options;
}

std::string Refuses(const Options& resolved, const Topology& /*topology*/) {
  const GlobalThreshold threshold = ReadGlobalThreshold(resolved);
  if (threshold.band_low >= threshold.band_high) {
    return "needs band_low below band_high: they are " + ToString(threshold.band_low) + " and " +
           ToString(threshold.band_high);
  }
  if (threshold.lower_by < 1 || threshold.raise_by < 1) {
    return "needs lower_by and raise_by of at least 1: they are " + ToString(threshold.lower_by) +
           " and " + ToString(threshold.raise_by);
  }
  return "";
}

}  // namespace

CollectiveDescriptor OkTopkCollective() {
  return {.name = "oktopk",
          .source = "Li & Hoefler, PPoPP 2022",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
            return std::make_unique<OkTopk>(ReadOkTopkOptions(resolved));
          },
          .host_memory = true,
          .sums_on_host = true,
          .options = OkTopkOptionSpecs(),
          .traits =
              [](const Options&) {
                return CollectiveTraits{.sums = true, .drops = true, .periodic = true};
              },
          .refuses = &Refuses,
          .summary = "about the k largest sums, added up by voted regions and gathered from them",
          .deviations =
              "The threshold of a rank's own selection is the sparsifier's, not adapted by 1.2 %. "
              "The global threshold is also exact in the first step of a unit, after a change of "
              "k, and if fewer than k sums were not 0. Of equal sums at the k-th place the first "
              "are taken. Owners add in rank order. Indices and values travel in one message, "
              "whose length gives their count; boundaries of regions are 64 bits wide. Sums are "
              "balanced before the gather if a region has over four times the average, as in the "
              "paper but not in its code."};
}

}  // namespace sparfuse::baselines
