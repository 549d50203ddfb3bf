// Runs exchanges on LiveEngine's communication thread, and makes their channels.
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

constexpr int kTagsPerExchange = 16;
constexpr int kTagBlocks = 1024;

// Computes the traffic by formula, as a backend's own traffic cannot be observed.
Traffic NativeTraffic(const Collective& collective, const Communicator& communicator,
                      const ExchangeState& state) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  ExchangeSizes sizes{state.buffers.shape, {}, {}};
  sizes.payload_bytes.assign(ranks, state.op->payload_bytes);
  if (collective.descriptor().payload == PayloadKind::kSparse) {
    const auto& payloads = state.buffers.payloads;
    if (payloads.size() != ranks) {
      SPARFUSE_THROW(kInternal, collective.descriptor().name, ": ", payloads.size(),
                     " payloads on ", ranks,
                     " ranks: a native collective must give one payload for each "
                     "rank, from which its bytes are counted");
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sizes.payload_bytes[rank] = payloads[rank].size();
    }
  }
  return collective.Rounds(sizes, communicator.topology())
      .per_rank[static_cast<std::size_t>(communicator.rank())];
}

// Takes forwarded payloads apart. A member forwards payloads in a row, first all of their indices.
// An index that is not above the previous one begins another payload. (Two payloads that increase
// throughout count as one.)
void SetApart(ExchangeState& state) {
  std::size_t bytes = 0;
  for (const auto payload : state.buffers.payloads) bytes += payload.size();
  Buffer<std::byte>& apart = state.payload.apart;
  if (apart.size() < bytes) apart = Buffer<std::byte>(bytes);
  std::byte* to = apart.data();
  std::vector<std::span<const std::byte>> payloads;
  for (const auto payload : state.buffers.payloads) {
    const SparsePayload all = ViewSparsePayload(payload);
    for (std::size_t first = 0; first < all.indices.size();) {
      std::size_t last = first + 1;
      while (last < all.indices.size() && all.indices[last] > all.indices[last - 1]) ++last;
      const std::size_t half = (last - first) * sizeof(std::uint32_t);
      std::memcpy(to, all.indices.data() + first, half);
      std::memcpy(to + half, all.values.data() + first, half);
      payloads.emplace_back(to, 2 * half);
      to += 2 * half;
      first = last;
    }
  }
  state.buffers.payloads = std::move(payloads);
}

// Throws on a sum that is not finite. Sums overflow on all ranks alike.
void RequireFiniteSums(const ExchangeState& exchange) {
  const auto check = [&](std::span<const float> values) {
    if (FirstNotFinite(values) == values.size()) return;
    SPARFUSE_THROW(kNumeric, exchange.op->label(), ": the sum over ranks has a NaN or an infinity");
  };
  check(exchange.buffers.sums);
  for (const auto payload : exchange.buffers.payloads) check(ViewSparsePayload(payload).values);
}

}  // namespace

Communicator& LiveEngine::ChannelOf(const Op& exchange) {
  const auto& channel = channels_[static_cast<std::size_t>(exchange.channel)];
  if (channel) return *channel;
  SPARFUSE_THROW(
      kUnsupported, "exchange ", exchange.label(), " on channel ", ChannelName(exchange.channel),
      ", which the transport lacks: it has one rank per node, the strategy's topology has ",
      topology().ranks_per_node);
}

// The tags also depend on the elements, which are equal on all ranks. So a rank that asks for the
// exchanges of a channel in another order than others waits until its deadline, and adds no
// tensor to another one.
int LiveEngine::NextTag(const Op& exchange) {
  constexpr int kInTurn = 32;
  int& next = next_tag_[static_cast<std::size_t>(exchange.channel)];
  const auto turn = static_cast<std::size_t>(next++ % kInTurn);
  std::uint64_t elements = 0;
  for (const Range& part : exchange.parts) elements = Mix64(elements ^ part.begin) ^ part.end;
  const std::size_t block = Mix64(elements) % (kTagBlocks / kInTurn) * kInTurn + turn;
  return static_cast<int>(block) * kTagsPerExchange;
}

Task LiveEngine::RunExchange(ExchangeState& state) {
  const Op& op = *state.op;
  const ExchangeRequest& request = op.exchange();
  const Collective& collective =
      CollectiveOf(request, config_.dense_collective, config_.sparse_collective);
  Communicator& channel = ChannelOf(op);
  Communicator& communicator = collective.descriptor().host_memory ? channel.host() : channel;
  const auto began = LiveStep::Clock::now();
  if (request.background) {
    std::lock_guard lock(mutex_);
    state.began_in_steps = TimeInSteps(began);
  }
  const Traffic before = Total(communicator.traffic());
  const int tag = NextTag(op);
  state.payload.in_place =
      collective.traits().reads_in_place && communicator.shares_memory() && op.sparse();
  co_await staging_->Gather(communicator, state);
  const bool sums = collective.traits().sums;
  if (sums && op.sparse() && (state.payload.coded || state.payload.whole_bytes > 0)) {
    SPARFUSE_THROW(kInternal, request.label,
                   ": its collective sums payloads on the way: expected no coding, "
                   "and no tensors that travel whole");
  }
  state.buffers.jobs = &jobs_;
  state.buffers.ClearResults();
  co_await collective.Run(communicator, state.buffers, tag);
  if (sums) RequireFiniteSums(state);
  if (request.shared() != nullptr && request.shared()->parts > 1) SetApart(state);
  co_await staging_->Deliver(communicator, state);
  state.traffic = collective.descriptor().native ? NativeTraffic(collective, communicator, state)
                                                 : Total(communicator.traffic()) - before;
  if (request.background) {  // another step may have begun, or be about to
    state.began = began;
    state.ended = LiveStep::Clock::now();
    co_return;
  }
  step_.timeline.Add({SpanKind::kExchange, std::string(ChannelName(request.channel)), request.label,
                      step_.At(began), step_.Now(), op.payload_bytes});
}

Task LiveEngine::RunNegotiate(Op& op) {
  auto& negotiate = *op.If<NegotiateRequest>();
  const double begin = step_.Now();
  co_await AllReduceMax(ChannelOf(op).host(), negotiate.values, NextTag(op));
  step_.timeline.Add({SpanKind::kNegotiate, std::string(ChannelName(negotiate.channel)), "", begin,
                      step_.Now(), negotiate.values.size() * sizeof(std::int64_t)});
}

Task LiveEngine::CompareDates(Communicator& world) {
  constexpr int kTag = 0;
  const LocalSteps& steps = *config_.local_steps;
  const std::pair<const char*, std::uint64_t> facts[] = {
      {"every", steps.every}, {"delay", steps.delay}, {"the plan's hash", plan().Hash() >> 1}};
  std::vector<std::int64_t> most;  // of each fact, and of its negative
  for (const auto& [name, value] : facts) {
    most.push_back(static_cast<std::int64_t>(value));
    most.push_back(-most.back());
  }
  co_await AllReduceMax(world.host(), most, kTag);
  for (std::size_t i = 0; i < std::size(facts); ++i) {
    const std::int64_t least = -most[2 * i + 1];
    if (most[2 * i] == least) continue;
    SPARFUSE_THROW(kConfig, "local steps: ", facts[i].first, " is ", facts[i].second, " on rank ",
                   rank(), ", and ", least, " to ", most[2 * i],
                   " over all ranks: expected the same dates on all of them");
  }
}

Task LiveEngine::SplitChannels(Communicator& world) {
  if (config_.local_steps) co_await CompareDates(world);
  const Topology& where = world.topology();
  const int node = where.NodeOf(world.rank());
  const int local = where.LocalRankOf(world.rank());
  // Only exchanges on kData may use device memory, where a communicator takes memory and seconds of
  // set-up. Chains on the other channels have their payloads in host memory, like negotiations.
  const auto split = [&](Channel channel, int color) {
    Communicator& from = channel == Channel::kData ? world : world.host();
    return SplitOff(from, color, world.rank(), config_.deadline,
                    channels_[static_cast<std::size_t>(channel)]);
  };
  co_await split(Channel::kControl, 0);
  co_await split(Channel::kData, 0);
  co_await split(Channel::kDataBack, 0);
  if (config_.delays || (config_.local_steps && config_.local_steps->delay > 0)) {
    co_await split(Channel::kBackground, 0);
  }
  if (where.ranks_per_node > 1) {
    co_await split(Channel::kIntraNode, node);
    co_await split(Channel::kInterNode, local);
    co_await split(Channel::kIntraNodeBack, node);
    co_await split(Channel::kInterNodeBack, local);
  }
}

}  // namespace sparfuse
