// Stages exchanges on the host: lanes and communicator share the memory.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/base/error.hpp"
#include "core/coding/selection_coding.hpp"
#include "core/engine/live/staging/exchange_staging.hpp"
#include "core/feedback/returned.hpp"

namespace sparfuse {
namespace {

class HostStaging final : public ExchangeStaging {
 public:
  explicit HostStaging(const StagingSetup& setup) : setup_(setup) {}

  Task Gather(Communicator& communicator, ExchangeState& state) override {
    if (state.op->sparse()) {
      GatherPayload(static_cast<std::size_t>(communicator.size()), state);
    } else {
      GatherDense(state);
    }
    co_return;
  }

  Task Deliver(Communicator&, ExchangeState& state) override {
    if (!state.buffers.returned.empty()) TakeBack(state);
    co_return;
  }

 private:
  // Merges the selections into this rank's payload: whole tensors, then indexed selections.
  void GatherPayload(std::size_t ranks, ExchangeState& state) {
    MeasurePayload(setup_, state);
    ExchangeBuffers& buffers = state.buffers;
    Payload& payload = state.payload;
    const std::size_t room = payload.in_place ? 0 : buffers.capacity_bytes * ranks;
    buffers.own_owner.reset();
    buffers.held.clear();
    if (payload.in_place) payload.own.swap(payload.before);
    if (payload.own == nullptr || payload.own.use_count() > 1 ||
        payload.own->size() < buffers.capacity_bytes) {
      payload.own = std::make_shared<Buffer<std::byte>>(buffers.capacity_bytes);
    }
    if (payload.gathered.size() < room) payload.gathered = Buffer<std::byte>::Room(room);

    const std::size_t bytes =
        setup_.coding.of_selections() ? JoinCoded(payload) : MergeSlots(*state.op, payload);
    state.op->payload_bytes = bytes;
    buffers.own = payload.own->host().first(bytes);
    if (payload.in_place) buffers.own_owner = payload.own;
    buffers.gathered = payload.gathered.host().first(room);
    buffers.accumulated = {};
    if (!payload.parts.empty() && payload.parts.front()->accumulated) {
      buffers.accumulated = AccumulatedOf(state);
    }
  }

  // Merges selections into one payload, with indices of the exchange's range; returns its bytes.
  std::size_t MergeSlots(const Op& exchange, Payload& payload) {
    const Range range = exchange.range();
    std::byte* whole = payload.own->data();
    std::byte* const coded = whole + payload.whole_bytes;
    if (payload.coded) merged_.Reserve(payload.capacity);
    auto* const indices =
        payload.coded ? merged_.indices.data() : reinterpret_cast<std::uint32_t*>(coded);
    auto* const values = payload.coded ? merged_.values.data()
                                       : reinterpret_cast<float*>(indices + payload.with_indices);
    std::size_t merged = CopyForwarded(range, payload, indices, values);
    for (const Selection* part : payload.parts) {
      if (part->whole) {
        std::memcpy(whole, part->encoded.data(), part->encoded.size());
        whole += part->encoded.size();
        continue;
      }
      const std::uint32_t base = BaseOf(*part, exchange);
      const auto from = part->slot.indices.host();
      for (std::size_t i = 0; i < part->slot.count; ++i) indices[merged + i] = from[i] + base;
      std::copy_n(part->slot.values.data, part->slot.count, values + merged);
      merged += part->slot.count;
    }
    return payload.whole_bytes +
           (payload.coded
                ? EncodePayload(setup_.coding, {{indices, merged}, {values, merged}}, range.size(),
                                payload.own->host().subspan(payload.whole_bytes))
                : merged * kSparseElementBytes);
  }

  // Joins selections that are already coded; returns the bytes written.
  static std::size_t JoinCoded(Payload& payload) {
    std::byte* whole = payload.own->data();
    std::byte* coded = whole + payload.whole_bytes;
    for (const Selection* part : payload.parts) {
      std::byte*& to = part->whole ? whole : coded;
      const Buffer<std::byte>& from = part->whole ? part->encoded : part->coded;
      const std::size_t bytes = part->whole ? from.size() : part->coded_bytes;
      if (bytes > static_cast<std::size_t>(payload.own->data() + payload.own->size() - to)) {
        SPARFUSE_THROW(kInternal, "the code of ", part->name, " has ", bytes,
                       " bytes, more than its payload has room for");
      }
      std::memcpy(to, from.data(), bytes);
      to += bytes;
    }
    return static_cast<std::size_t>(coded - payload.own->data());
  }

  // Returns the residuals, which lie in one array over all tensors: neighbours form one span.
  static std::span<float> AccumulatedOf(const ExchangeState& state) {
    const Payload& payload = state.payload;
    if (payload.indexed.size() != 1 || payload.whole_bytes > 0) {
      SPARFUSE_THROW(
          kUnsupported, state.op->label(),
          " has gaps: a collective that selects needs units whose tensors are all sparsified");
    }
    return {payload.parts.front()->residual.data, state.op->range().size()};
  }

  // Prepares dense ranges. A single range is reduced in place. A buffer is used for several ranges,
  // and if later steps use the range's memory.
  void GatherDense(ExchangeState& state) {
    const std::vector<Range>& parts = state.op->parts;
    const std::size_t array = state.op->exchange().array();
    state.elements = state.op->elements();
    if (parts.size() == 1 && !state.op->exchange().background) {
      state.buffers.dense = {setup_.FlatOf(parts[0], array), parts[0].size()};
      return;
    }
    if (state.dense.size() < state.elements) state.dense = Buffer<float>(state.elements);
    state.buffers.dense = state.dense.host().first(state.elements);
    std::size_t to = 0;
    for (const Range& part : parts) {
      std::memcpy(state.dense.data() + to, setup_.FlatOf(part, array), part.size() * sizeof(float));
      to += part.size();
    }
  }

  // Returns the elements that a collective dropped to the residuals of their selections.
  void TakeBack(const ExchangeState& state) {
    const SparsePayload returned = ViewSparsePayload(state.buffers.returned);
    const std::size_t begin = state.op->range().begin;
    std::size_t taken = 0;
    for (const Selection* part : state.payload.parts) {
      if (part->whole) continue;
      const Range range{part->range.begin - begin, part->range.end - begin};
      taken += AddReturned(returned, range, part->residual.host());
    }
    RequireAllTaken(state, taken);
  }

  StagingSetup setup_;
  Elements merged_;
};

}  // namespace

void MeasurePayload(const StagingSetup& setup, ExchangeState& state) {
  Payload& payload = state.payload;
  const std::string& label = state.op->label();
  state.elements = payload.capacity = payload.with_indices = payload.whole_bytes = 0;
  std::size_t coded_bound = 0;  // of selections that are coded one by one
  payload.indexed.clear();
  payload.whole.clear();
  for (const Selection* part : payload.parts) {
    if (part->whole) {
      state.elements += part->range.size();
      payload.whole_bytes += part->encoded.size();
      payload.whole.push_back({part->range, part->encoded.size(), {}});
      continue;
    }
    state.elements += part->accumulated ? part->kept : part->slot.count;  // expected or selected
    payload.with_indices += part->slot.count;
    payload.capacity += part->slot.capacity;
    if (setup.coding.of_selections()) {
      coded_bound += SelectionBytesBound(setup.coding, part->slot.capacity, part->range.size());
    }
    // Another exchange sends the elements between ranges, or they are sent whole.
    if (payload.indexed.empty() || payload.indexed.back().end != part->range.begin) {
      payload.indexed.push_back(part->range);
    } else {
      payload.indexed.back().end = part->range.end;
    }
  }
  if (payload.sums_of) payload.indexed = *payload.sums_of;
  if (payload.whole_of) payload.whole = *payload.whole_of;
  if (payload.forwarded != nullptr) {
    if (setup.coding != PayloadCoding{} || payload.forwarded->payload.coded) {
      SPARFUSE_THROW(kInternal, label,
                     ": its payloads are sent on as they came, but they are coded");
    }
    for (const auto each : payload.forwarded->buffers.payloads) {
      payload.with_indices += each.size() / kSparseElementBytes;
    }
  }
  payload.capacity = payload.shared_capacity.value_or(payload.capacity);
  if (payload.with_indices > payload.capacity) {
    SPARFUSE_THROW(kInternal, label, ": ", payload.with_indices, " elements to send, but room for ",
                   payload.capacity);
  }
  payload.coded = setup.coding != PayloadCoding{} && payload.capacity > 0;
  const std::size_t indexed_bytes =
      setup.coding.of_selections() ? coded_bound
      : payload.coded ? EncodedBytesBound(setup.coding, payload.capacity, state.op->range().size())
                      : payload.capacity * kSparseElementBytes;
  // Each member gives the part that it owns.
  std::size_t whole_room = payload.whole_bytes;
  for (const WholePart& part : payload.whole) whole_room = std::max(whole_room, part.bytes);
  ExchangeBuffers& buffers = state.buffers;
  buffers.element_bytes = payload.coded ? 1 : whole_room > 0 ? sizeof(float) : kSparseElementBytes;
  buffers.capacity_bytes = whole_room + indexed_bytes;
}

std::size_t CopyForwarded(Range range, const Payload& payload, std::uint32_t* indices,
                          float* values) {
  if (payload.forwarded == nullptr) return 0;
  const auto base = static_cast<std::uint32_t>(payload.forwarded->op->range().begin - range.begin);
  std::size_t copied = 0;
  for (const auto bytes : payload.forwarded->buffers.payloads) {
    const SparsePayload came = ViewSparsePayload(bytes);
    for (const std::uint32_t index : came.indices) indices[copied++] = index + base;
    values = std::ranges::copy(came.values, values).out;
  }
  return copied;
}

std::size_t WholeBytesOf(const Payload& payload, std::size_t member) {
  std::size_t bytes = 0;
  for (const WholePart& part : payload.whole) {
    if (part.member.value_or(member) == member) bytes += part.bytes;
  }
  return bytes;
}

void RequireWhole(const ExchangeState& state) {
  const auto& payloads = state.buffers.payloads;
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    const std::size_t whole_bytes = WholeBytesOf(state.payload, rank);
    if (payloads[rank].size() >= whole_bytes) continue;
    SPARFUSE_THROW(kComm, "payload of rank ", rank, " has ", payloads[rank].size(),
                   " bytes: expected at least ", whole_bytes, " for whole tensors");
  }
}

void RequireAllTaken(const ExchangeState& state, std::size_t taken) {
  const std::size_t returned = state.buffers.returned.size() / kSparseElementBytes;
  if (taken == returned) return;
  SPARFUSE_THROW(kInternal, state.op->label(), ": ", returned, " elements came back, but only ",
                 taken, " of them have indices of a selection");
}

std::unique_ptr<ExchangeStaging> MakeHostStaging(const StagingSetup& setup) {
  return std::make_unique<HostStaging>(setup);
}

}  // namespace sparfuse
