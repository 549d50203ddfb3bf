// Runs exchanges on LiveEngine's communication thread, and makes the channels that they take.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/engine/live/live_engine.hpp"

namespace sparfuse {
namespace {

constexpr int kTagsPerExchange = 16;
constexpr int kTagBlocks = 1024;

// By formula: what a backend sends cannot be seen.
Traffic NativeTraffic(const Collective& collective, const Communicator& communicator,
                      const Op& exchange, const ExchangeState& state) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  ExchangeSizes sizes{state.buffers.shape, {}, {}};
  sizes.payload_bytes.assign(ranks, exchange.payload_bytes);
  if (collective.descriptor().payload == PayloadKind::kSparse) {
    const auto& payloads = state.buffers.payloads;
    if (payloads.size() != ranks) {
      SPARFUSE_THROW(kInternal, std::string(collective.descriptor().name) + ": " +
                                    std::to_string(payloads.size()) + " payloads on " +
                                    std::to_string(ranks) +
                                    " ranks: a native collective, which is counted by the payloads "
                                    "of all ranks, must give one a rank");
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sizes.payload_bytes[rank] = payloads[rank].size();
    }
  }
  return collective.Rounds(sizes, communicator.topology())
      .per_rank[static_cast<std::size_t>(communicator.rank())];
}

// What ranks have summed overflows on all of them alike.
void RequireFiniteSums(const Op& exchange, const ExchangeBuffers& buffers) {
  const auto check = [&](std::span<const float> values) {
    if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
    SPARFUSE_THROW(kNumeric, exchange.label + ": the sum over ranks has a NaN or an infinity");
  };
  check(buffers.sums);
  for (const auto payload : buffers.payloads) check(ViewSparsePayload(payload).values);
}

}  // namespace

Communicator& LiveEngine::ChannelOf(const Op& exchange) {
  const auto& channel = channels_[static_cast<std::size_t>(exchange.channel)];
  if (channel) return *channel;
  SPARFUSE_THROW(kUnsupported, "exchange " + exchange.label + " on channel " +
                                   std::string(ChannelName(exchange.channel)) +
                                   ", which the transport lacks: it has one rank a node, the "
                                   "strategy's topology " +
                                   std::to_string(topology().ranks_per_node));
}

int LiveEngine::NextTag(const Op& exchange) {
  int& next = next_tag_[static_cast<std::size_t>(exchange.channel)];
  return (next++ % kTagBlocks) * kTagsPerExchange;
}

Task LiveEngine::RunExchange(Op& exchange, ExchangeState& state) {
  const Collective& collective =
      exchange.selections.empty() ? *config_.dense_collective : *config_.sparse_collective;
  Communicator& channel = ChannelOf(exchange);
  Communicator& communicator = collective.descriptor().host_memory ? channel.host() : channel;
  const double begin = step_.Now();
  const Traffic before = Total(communicator.traffic());
  const int tag = NextTag(exchange);
  co_await staging_->Gather(communicator, exchange, state);
  const bool sums = collective.traits().sums;
  if (sums && (state.coded || state.whole_bytes > 0)) {
    SPARFUSE_THROW(kInternal, exchange.label +
                                  ": payloads are summed on the way: expected no coding, and no "
                                  "tensors that travel whole");
  }
  state.buffers.jobs = &jobs_;
  state.buffers.sums = {};
  state.buffers.payloads.clear();
  state.buffers.returned.clear();
  state.buffers.seen.clear();
  state.buffers.served = 0;
  co_await collective.Run(communicator, state.buffers, tag);
  if (sums) RequireFiniteSums(exchange, state.buffers);
  co_await staging_->Deliver(communicator, exchange, state);
  state.traffic = collective.descriptor().native
                      ? NativeTraffic(collective, communicator, exchange, state)
                      : Total(communicator.traffic()) - before;
  step_.timeline.Add({SpanKind::kExchange, std::string(ChannelName(exchange.channel)),
                      exchange.label, begin, step_.Now(), exchange.payload_bytes});
}

Task LiveEngine::RunNegotiate(Op& negotiate) {
  const double begin = step_.Now();
  co_await AllReduceMax(ChannelOf(negotiate).host(), negotiate.values, NextTag(negotiate));
  step_.timeline.Add({SpanKind::kNegotiate, std::string(ChannelName(negotiate.channel)), "", begin,
                      step_.Now(), negotiate.values.size() * sizeof(std::int64_t)});
}

Task LiveEngine::SplitChannels(Communicator& world) {
  const Topology& where = world.topology();
  const int node = where.NodeOf(world.rank());
  const int local = where.LocalRankOf(world.rank());
  // Only kData carries exchanges; negotiations lie in host memory. Where messages lie on a device a
  // communicator takes its memory and seconds of set-up: a strategy that exchanges on another
  // channel needs that one split from `world` too.
  const auto split = [&](Channel channel, int color) {
    Communicator& from = channel == Channel::kData ? world : world.host();
    channels_[static_cast<std::size_t>(channel)] =
        from.Split(color, world.rank(), config_.deadline);
  };
  split(Channel::kControl, 0);
  split(Channel::kData, 0);
  if (where.ranks_per_node > 1) {
    split(Channel::kIntraNode, node);
    split(Channel::kInterNode, local);
  }
  co_return;
}

}  // namespace sparfuse
