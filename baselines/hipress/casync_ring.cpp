#include "baselines/hipress/casync_ring.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/thread_pool.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kCasyncName = "casync-ring";

// The partitions of a range, taken modulo their number, and the number of elements sent of each.
class Partitions {
 public:
  Partitions(const ExchangeShape& shape, std::size_t ranks)
      : shards_{shape.elements, ranks}, kept_(shape.kept) {}

  std::size_t count() const { return shards_.members; }
  std::size_t begin(std::size_t p) const { return shards_.Begin(p); }
  std::size_t size(std::size_t p) const { return shards_.Size(p); }
  std::size_t kept(std::size_t p) const {
    const std::size_t m = size(p);
    return m == 0 ? 0 : std::max<std::size_t>(1, m * kept_ / shards_.elements);
  }
  std::uint64_t bytes(std::size_t p) const { return kept(p) * kSparseElementBytes; }
  std::size_t all_kept() const {
    std::size_t sum = 0;
    for (std::size_t p = 0; p < count(); ++p) sum += kept(p);
    return sum;
  }

 private:
  Shards shards_;
  std::size_t kept_;
};

// --- live ---

// A partition's elements in the wire form: indices in the range, then values.
struct Code {
  std::span<std::byte> bytes;

  std::size_t count() const { return bytes.size() / kSparseElementBytes; }
  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(bytes.data()); }
  float* values() const { return reinterpret_cast<float*>(indices() + count()); }
};

// The memory and each partition's state of exact top-k, for the next exchange of the range.
class RingState final : public CollectiveState {
 public:
  RingState() : select_(FindSparsifier("topk").make({}, 0)) {}

  void Begin(const Partitions& partitions, std::span<float> accumulated, std::uint64_t step) {
    accumulated_ = accumulated;
    step_ = step;
    const std::size_t count = partitions.count();
    memory_.resize(partitions.all_kept() * kSparseElementBytes);
    codes_.clear();
    std::span<std::byte> left = memory_;
    for (std::size_t p = 0; p < count; ++p) {
      codes_.push_back({left.first(partitions.bytes(p))});
      left = left.subspan(partitions.bytes(p));
    }
    top_.resize(count);
    spoilt_.assign(count, 0);
  }

  const Code& code(std::size_t p) const { return codes_[p % codes_.size()]; }

  // Adds the arrived code of partition p to the partition.
  void Merge(const Partitions& partitions, std::size_t p) {
    const Code& arrived = code(p);
    const std::size_t begin = partitions.begin(p);
    const std::size_t end = begin + partitions.size(p);
    for (std::size_t i = 0; i < arrived.count(); ++i) {
      const std::uint32_t index = arrived.indices()[i];
      if (index < begin || index >= end) {
        SPARFUSE_THROW(kComm, std::string(kCasyncName) + ": element " + std::to_string(index) +
                                  " in partition " + std::to_string(p) +
                                  ": expected an index in [" + std::to_string(begin) + ", " +
                                  std::to_string(end) + ")");
      }
      accumulated_[index] += arrived.values()[i];
      if (!std::isfinite(accumulated_[index])) spoilt_[p] = accumulated_[index];
    }
  }

  // Moves the largest elements of partition p to its code. If a sum is not finite, the code carries
  // that sum instead: all ranks then fail, and none waits for this one.
  void Encode(const Partitions& partitions, std::size_t p) {
    const Code& made = code(p);
    const std::size_t begin = partitions.begin(p), size = partitions.size(p), kept = made.count();
    if (kept == 0) return;
    if (!std::isfinite(spoilt_[p])) {
      std::fill_n(made.values(), kept, spoilt_[p]);
      for (std::size_t i = 0; i < kept; ++i)
        made.indices()[i] = static_cast<std::uint32_t>(begin + i);
      return;
    }
    if (top_[p] == nullptr) top_[p] = select_->MakeState(size);
    // This rounding makes trunc(density * size) equal `kept`.
    const double density =
        kept == size ? 1.0 : (static_cast<double>(kept) + 0.5) / static_cast<double>(size);
    Slot slot{{made.indices(), kept, {}}, {made.values(), kept, {}}, kept, 0};
    select_->Select(
        {&pool_, &workspace_, &counters_, {}}, {{accumulated_.data() + begin, size, {}}, {}},
        density,
        {static_cast<std::uint32_t>(p), "a partition of the accumulated gradient", {}, step_},
        top_[p].get(), slot);
    for (std::size_t i = 0; i < kept; ++i) {
      std::uint32_t& index = made.indices()[i];
      index += static_cast<std::uint32_t>(begin);
      accumulated_[index] = 0;
    }
  }

  // Writes all codes as one payload. Precondition: `out` has the size of all.
  void Join(std::span<std::byte> out) const {
    const Code all{out};
    std::size_t at = 0;
    for (const Code& each : codes_) {
      std::copy_n(each.indices(), each.count(), all.indices() + at);
      std::copy_n(each.values(), each.count(), all.values() + at);
      at += each.count();
    }
  }

 private:
  std::span<float> accumulated_;
  std::uint64_t step_ = 0;
  std::vector<std::byte> memory_;
  std::vector<Code> codes_;                            // [partitions]
  std::vector<std::unique_ptr<SparsifierState>> top_;  // [partitions]
  std::vector<float> spoilt_;  // [partitions] a sum that is not finite, or 0
  std::unique_ptr<Sparsifier> select_;
  ThreadPool pool_{1};
  Workspace workspace_;
  SelectCounters counters_;
};

// Sends one code on and receives the preceding one.
Task Pass(Communicator& communicator, const Code& out, const Code& in, int tag) {
  const int ranks = communicator.size();
  std::vector<std::unique_ptr<Request>> requests;
  if (in.count() > 0) {
    requests.push_back(
        communicator.Irecv((communicator.rank() + ranks - 1) % ranks, tag, in.bytes));
  }
  if (out.count() > 0) {
    requests.push_back(communicator.Isend((communicator.rank() + 1) % ranks, tag, out.bytes));
  }
  requests = co_await Complete(std::move(requests));
  if (in.count() > 0 && requests[0]->bytes() != in.bytes.size()) {
    SPARFUSE_THROW(kComm, std::string(kCasyncName) + ": a partition of " +
                              std::to_string(requests[0]->bytes()) + " bytes from rank " +
                              std::to_string(requests[0]->peer()) + ": expected " +
                              std::to_string(in.bytes.size()) +
                              "; ranks disagree on the length of the range");
  }
}

class Ring final : public Collective {
 public:
  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape&, const Topology&) const override {
    return std::make_unique<RingState>();
  }
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;
};

Task Ring::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  if (buffers.accumulated.size() != buffers.shape.elements) {
    SPARFUSE_THROW(kInternal, std::string(kCasyncName) + ": " +
                                  std::to_string(buffers.accumulated.size()) +
                                  " accumulated elements of a range of " +
                                  std::to_string(buffers.shape.elements));
  }
  std::unique_ptr<CollectiveState> made;
  if (buffers.state == nullptr) made = MakeState(buffers.shape, communicator.topology());
  auto& state = static_cast<RingState&>(made == nullptr ? *buffers.state : *made);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const Partitions partitions(buffers.shape, ranks);
  state.Begin(partitions, buffers.accumulated, buffers.shape.step);

  for (std::size_t step = 0; step < ranks; ++step) {
    const std::size_t p = (rank + ranks - step) % ranks;
    co_await OffThread(buffers, [&] {
      if (step > 0) state.Merge(partitions, p);
      state.Encode(partitions, p);
    });
    if (step + 1 == ranks) break;
    co_await Pass(communicator, state.code(p), state.code(p + ranks - 1), tag);
  }
  // Partition rank + 1 was encoded here for the last time.
  for (std::size_t step = 0; step + 1 < ranks; ++step) {
    const std::size_t p = rank + 1 + ranks - step;
    co_await Pass(communicator, state.code(p), state.code(p + ranks - 1), tag + 1);
  }
  const std::span<std::byte> result = buffers.Keep(partitions.all_kept() * kSparseElementBytes);
  co_await OffThread(buffers, [&] { state.Join(result); });
  buffers.payloads.assign(1, result);
}

// --- modelled ---

// Adds P - 1 steps, in which rank r sends all partitions but r + skipped. In each step the ranks
// together send all partitions, one each, and the largest sets the pace.
Round& AddHalf(const Partitions& partitions, std::size_t skipped, const Topology& topology,
               RoundPlan& plan) {
  const std::size_t ranks = partitions.count();
  std::size_t filled = 0;
  for (std::size_t p = 0; p < ranks; ++p) filled += partitions.size(p) > 0;
  const std::uint64_t all_bytes = partitions.all_kept() * kSparseElementBytes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t left_out = rank + skipped;
    const std::uint64_t messages = filled - (partitions.size(left_out) > 0 ? 1 : 0);
    const std::uint64_t bytes = all_bytes - partitions.bytes(left_out);
    plan.per_rank[rank] += {messages, 0, bytes, 0};
    plan.per_rank[(rank + 1) % ranks] += {0, messages, 0, bytes};
  }
  return plan.rounds.emplace_back(
      RingRound(ranks - 1, (ranks - 1) * partitions.bytes(0), topology));
}

RoundPlan Ring::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const Partitions partitions(sizes.shape, ranks);
  RoundPlan plan;
  plan.per_rank.resize(ranks);
  plan.sums = partitions.all_kept();
  Round alone{.messages = 0, .link = LinkClass::kIntraNode};
  Round& reducing =
      ranks == 1 ? plan.rounds.emplace_back(alone) : AddHalf(partitions, 1, topology, plan);
  // Every partition is encoded once. That is a pass over it, which takes as long as adding to it.
  reducing[Work::kAdd] = sizes.shape.elements;
  reducing[Work::kMerge] = (ranks - 1) * partitions.kept(0);
  if (ranks > 1) AddHalf(partitions, 2, topology, plan)[Work::kMerge] = *plan.sums;
  return plan;
}

}  // namespace

CollectiveDescriptor CasyncRing() {
  return {.name = kCasyncName,
          .source = "Bai et al., HiPress, SOSP 2021, section 3",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = [](const Options&) -> std::unique_ptr<Collective> {
            return std::make_unique<Ring>();
          },
          .host_memory = true,
          .traits =
              [](const Options&) {
                CollectiveTraits traits;
                traits.sums = traits.selects = true;
                traits.mass = Conservation::kRounded;
                return traits;
              },
          .summary =
              "partitions go around a ring, and every rank cuts their sums to the largest "
              "elements; then the last cuts go around",
          .deviations =
              "Partitions are cut by exact top-k, whatever the paper's compressor. Elements that a "
              "rank cuts off stay in its residual; the paper does not say where they go. A model "
              "charges a cut as a pass over the partition, without the start of a kernel."};
}

}  // namespace sparfuse::baselines
