// The communication thread of LiveEngine: payloads, exchanges and the channels that they take.
#include <cstring>

#include "core/engine/live_engine.hpp"
#include "core/feedback/returned.hpp"

namespace sparfuse {
namespace {

constexpr int kTagsPerExchange = 16;
constexpr int kTagBlocks = 1024;

Traffic Total(const TrafficByLink& by_link) {
  Traffic total;
  for (const Traffic& traffic : by_link) total += traffic;
  return total;
}

}  // namespace

int LiveEngine::NextTag(const Op& exchange) {
  int& next = next_tag_[static_cast<std::size_t>(exchange.channel)];
  return (next++ % kTagBlocks) * kTagsPerExchange;
}

void LiveEngine::Elements::Reserve(std::size_t count) {
  if (indices.size() >= count) return;
  indices = Buffer<std::uint32_t>(count);
  values = Buffer<float>(count);
}

// Merges the selections into the payload that this rank sends: runs, then what has indices.
void LiveEngine::PreparePayload(Op& exchange, ExchangeState& state) {
  const std::size_t n = exchange.range.size();
  state.capacity = state.elements = state.run_bytes = 0;
  std::size_t with_indices = 0;
  for (const Selection* part : state.parts) {
    state.elements += part->is_run ? part->range.size() : part->slot.count;
    with_indices += part->slot.count;
    state.capacity += part->slot.capacity;
    if (part->is_run) state.run_bytes += part->run.size();
  }
  ExchangeBuffers& buffers = state.buffers;
  const bool headed = IsCoded() && state.capacity > 0;
  const std::size_t indexed_bytes = headed ? EncodedBytesBound(config_.coding, state.capacity, n)
                                           : state.capacity * kSparseElementBytes;
  buffers.element_bytes = headed ? 1 : state.run_bytes > 0 ? sizeof(float) : kSparseElementBytes;
  buffers.capacity_bytes = state.run_bytes + indexed_bytes;
  const std::size_t room = buffers.capacity_bytes * static_cast<std::size_t>(workers());
  if (state.own.size() < buffers.capacity_bytes)
    state.own = Buffer<std::byte>(buffers.capacity_bytes);
  if (state.gathered.size() < room) state.gathered = Buffer<std::byte>(room);

  std::byte* run = state.own.data();
  if (headed) merged_.Reserve(state.capacity);
  auto* const indices = headed
                            ? merged_.indices.data()
                            : reinterpret_cast<std::uint32_t*>(state.own.data() + state.run_bytes);
  auto* const values =
      headed ? merged_.values.data() : reinterpret_cast<float*>(indices + with_indices);
  std::size_t merged = 0;
  for (const Selection* part : state.parts) {
    if (part->is_run) {
      std::memcpy(run, part->run.data(), part->run.size());
      run += part->run.size();
      continue;
    }
    const auto base = static_cast<std::uint32_t>(part->range.begin - exchange.range.begin);
    const auto from = part->slot.indices.host();
    for (std::size_t i = 0; i < part->slot.count; ++i) indices[merged + i] = from[i] + base;
    std::memcpy(values + merged, part->slot.values.data, part->slot.count * sizeof(float));
    merged += part->slot.count;
  }
  exchange.payload_bytes =
      state.run_bytes + (headed
                             ? EncodePayload(config_.coding, {{indices, merged}, {values, merged}},
                                             n, state.own.host().subspan(state.run_bytes))
                             : merged * kSparseElementBytes);
  buffers.own = state.own.host().first(exchange.payload_bytes);
  buffers.gathered = state.gathered.host().first(room);
}

// Dense ranges are reduced where they lie, or side by side in a buffer where there are several.
void LiveEngine::PrepareDense(const Op& exchange, ExchangeState& state) {
  state.elements = exchange.elements();
  if (exchange.parts.size() == 1) {
    state.buffers.dense = flat_.host().subspan(exchange.range.begin, exchange.range.size());
    return;
  }
  if (state.dense.size() < state.elements) state.dense = Buffer<float>(state.elements);
  state.buffers.dense = state.dense.host().first(state.elements);
  std::size_t to = 0;
  for (const Range& part : exchange.parts) {
    std::memcpy(state.dense.data() + to, flat_.data() + part.begin, part.size() * sizeof(float));
    to += part.size();
  }
}

// What did not survive a collective that drops goes back to where it was selected from.
void LiveEngine::TakeBack(const Op& exchange, const ExchangeState& state) {
  const SparsePayload returned = ViewSparsePayload(state.buffers.returned);
  std::size_t taken = 0;
  for (const Selection* part : state.parts) {
    if (part->is_run) continue;
    const Range range{part->range.begin - exchange.range.begin,
                      part->range.end - exchange.range.begin};
    taken += AddReturned(returned, range, part->residual.host());
  }
  if (taken != returned.indices.size()) {
    SPARFUSE_THROW(kInternal, exchange.label + ": " + std::to_string(returned.indices.size()) +
                                  " elements came back, of which " + std::to_string(taken) +
                                  " lie where something was selected");
  }
}

Task LiveEngine::RunExchange(Op& exchange, ExchangeState& state) {
  Communicator& communicator = ChannelOf(exchange);
  const double begin = Now();
  const Traffic before = Total(communicator.traffic());
  const bool sparse = !exchange.selections.empty();
  const Collective& collective = sparse ? *config_.sparse_collective : *config_.dense_collective;
  sparse ? PreparePayload(exchange, state) : PrepareDense(exchange, state);
  state.buffers.returned.clear();
  co_await collective.run(communicator, state.buffers, NextTag(exchange));
  if (!state.buffers.returned.empty()) TakeBack(exchange, state);
  if (collective.native) {
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(workers()), exchange.payload_bytes);
    for (std::size_t r = 0; sparse && r < sizes.size(); ++r) {
      sizes[r] = state.buffers.by_rank[r].size();
    }
    state.traffic = collective.rounds(sizes, topology()).per_rank[static_cast<std::size_t>(rank())];
  } else {
    state.traffic = Total(communicator.traffic()) - before;
  }
  timeline_.Add({SpanKind::kExchange, std::string(ChannelName(exchange.channel)), exchange.label,
                 begin, Now(), exchange.payload_bytes});
}

Task LiveEngine::RunNegotiate(Op& negotiate) {
  const double begin = Now();
  co_await AllReduceMax(ChannelOf(negotiate), negotiate.values, NextTag(negotiate));
  timeline_.Add({SpanKind::kNegotiate, std::string(ChannelName(negotiate.channel)), "", begin,
                 Now(), negotiate.values.size() * sizeof(std::int64_t)});
}

Task LiveEngine::SplitChannels(Communicator& world) {
  const Topology& where = world.topology();
  const int node = where.NodeOf(world.rank());
  const int local = where.LocalRankOf(world.rank());
  const auto split = [&](Channel channel, int color) {
    channels_[static_cast<std::size_t>(channel)] =
        world.Split(color, world.rank(), config_.deadline);
  };
  split(Channel::kControl, 0);
  split(Channel::kData, 0);
  if (where.ranks_per_node > 1) {
    split(Channel::kIntraNode, node);
    split(Channel::kInterNode, local);
  }
  co_return;
}

Task LiveEngine::ReleaseChannels(Communicator&) {
  for (auto& channel : channels_) channel.reset();
  co_return;
}

}  // namespace sparfuse
