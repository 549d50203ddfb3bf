// Stages exchanges on the host: lanes and communicator use the same memory.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/base/error.hpp"
#include "core/engine/live/staging/exchange_staging.hpp"
#include "core/feedback/returned.hpp"
#include "core/quantize/selection_coding/selection_coding.hpp"

namespace sparfuse {
namespace {

class HostStaging final : public ExchangeStaging {
 public:
  explicit HostStaging(const StagingSetup& setup) : setup_(setup) {}

  Task Gather(Communicator& communicator, Op& exchange, ExchangeState& state) override {
    if (exchange.sparse) {
      GatherPayload(exchange, static_cast<std::size_t>(communicator.size()), state);
    } else {
      GatherDense(exchange, state);
    }
    co_return;
  }

  Task Deliver(Communicator&, const Op& exchange, ExchangeState& state) override {
    if (!state.buffers.returned.empty()) TakeBack(exchange, state);
    co_return;
  }

 private:
  // Merges the selections into the payload that this rank sends: whole tensors, then what has
  // indices.
  void GatherPayload(Op& exchange, std::size_t ranks, ExchangeState& state) {
    MeasurePayload(setup_, exchange, state);
    ExchangeBuffers& buffers = state.buffers;
    const std::size_t room = buffers.capacity_bytes * ranks;
    if (state.own.size() < buffers.capacity_bytes) {
      state.own = Buffer<std::byte>(buffers.capacity_bytes);
    }
    if (state.gathered.size() < room) state.gathered = Buffer<std::byte>(room);

    exchange.payload_bytes =
        setup_.coding.of_selections() ? JoinCoded(state) : MergeSlots(exchange, state);
    buffers.own = state.own.host().first(exchange.payload_bytes);
    buffers.gathered = state.gathered.host().first(room);
    buffers.accumulated = {};
    if (!state.parts.empty() && state.parts.front()->accumulated)
      buffers.accumulated = AccumulatedOf(exchange, state);
  }

  // Merges selections into one payload, with indices of the exchange's range; returns its bytes.
  std::size_t MergeSlots(const Op& exchange, ExchangeState& state) {
    std::byte* whole = state.own.data();
    if (state.coded) merged_.Reserve(state.capacity);
    auto* const indices =
        state.coded ? merged_.indices.data()
                    : reinterpret_cast<std::uint32_t*>(state.own.data() + state.whole_bytes);
    auto* const values = state.coded ? merged_.values.data()
                                     : reinterpret_cast<float*>(indices + state.with_indices);
    std::size_t merged = state.forwarded == nullptr ? 0 : CopyForwarded(state, indices, values);
    for (const Selection* part : state.parts) {
      if (part->whole) {
        std::memcpy(whole, part->encoded.data(), part->encoded.size());
        whole += part->encoded.size();
        continue;
      }
      const auto base = static_cast<std::uint32_t>(part->range.begin - exchange.range.begin);
      const auto from = part->slot.indices.host();
      for (std::size_t i = 0; i < part->slot.count; ++i) indices[merged + i] = from[i] + base;
      std::copy_n(part->slot.values.data, part->slot.count, values + merged);
      merged += part->slot.count;
    }
    return state.whole_bytes +
           (state.coded
                ? EncodePayload(setup_.coding, {{indices, merged}, {values, merged}},
                                exchange.range.size(), state.own.host().subspan(state.whole_bytes))
                : merged * kSparseElementBytes);
  }

  // Joins selections that are coded already; returns the bytes written.
  static std::size_t JoinCoded(ExchangeState& state) {
    std::byte* whole = state.own.data();
    std::byte* coded = whole + state.whole_bytes;
    for (const Selection* part : state.parts) {
      std::byte*& to = part->whole ? whole : coded;
      const Buffer<std::byte>& from = part->whole ? part->encoded : part->coded;
      const std::size_t bytes = part->whole ? from.size() : part->coded_bytes;
      if (bytes > static_cast<std::size_t>(state.own.data() + state.own.size() - to)) {
        SPARFUSE_THROW(kInternal, "the code of " + part->name + " has " + std::to_string(bytes) +
                                      " bytes, for which its payload has no room");
      }
      std::memcpy(to, from.data(), bytes);
      to += bytes;
    }
    return static_cast<std::size_t>(coded - state.own.data());
  }

  // Residuals lie in one array over all tensors: those of neighbours are one span.
  static std::span<float> AccumulatedOf(const Op& exchange, const ExchangeState& state) {
    if (state.indexed.size() != 1 || state.whole_bytes > 0) {
      SPARFUSE_THROW(kUnsupported, exchange.label +
                                       " has gaps: a collective that selects takes units whose "
                                       "tensors are all sparsified");
    }
    return {state.parts.front()->residual.data, exchange.range.size()};
  }

  // Dense ranges are reduced where they lie, or side by side in a buffer where there are several.
  void GatherDense(const Op& exchange, ExchangeState& state) {
    state.elements = exchange.elements();
    if (exchange.parts.size() == 1) {
      state.buffers.dense = setup_.flat.host().subspan(exchange.range.begin, exchange.range.size());
      return;
    }
    if (state.dense.size() < state.elements) state.dense = Buffer<float>(state.elements);
    state.buffers.dense = state.dense.host().first(state.elements);
    std::size_t to = 0;
    for (const Range& part : exchange.parts) {
      std::memcpy(state.dense.data() + to, setup_.flat.data + part.begin,
                  part.size() * sizeof(float));
      to += part.size();
    }
  }

  // What did not survive a collective that drops goes back to where it was selected from.
  void TakeBack(const Op& exchange, const ExchangeState& state) {
    const SparsePayload returned = ViewSparsePayload(state.buffers.returned);
    std::size_t taken = 0;
    for (const Selection* part : state.parts) {
      if (part->whole) continue;
      const Range range{part->range.begin - exchange.range.begin,
                        part->range.end - exchange.range.begin};
      taken += AddReturned(returned, range, part->residual.host());
    }
    RequireAllTaken(exchange, state, taken);
  }

  StagingSetup setup_;
  Elements merged_;
};

}  // namespace

void MeasurePayload(const StagingSetup& setup, const Op& exchange, ExchangeState& state) {
  state.capacity = state.with_indices = state.elements = state.whole_bytes = 0;
  std::size_t coded_bound = 0;  // of selections that are coded one by one
  state.indexed.clear();
  for (const Selection* part : state.parts) {
    if (part->whole) {
      state.elements += part->range.size();
      state.whole_bytes += part->encoded.size();
      continue;
    }
    state.elements += part->accumulated ? part->kept : part->slot.count;  // as it is to select
    state.with_indices += part->slot.count;
    state.capacity += part->slot.capacity;
    if (setup.coding.of_selections()) {
      coded_bound += SelectionBytesBound(setup.coding, part->slot.capacity, part->range.size());
    }
    // What lies between ranges is another exchange's, or whole.
    if (state.indexed.empty() || state.indexed.back().end != part->range.begin) {
      state.indexed.push_back(part->range);
    } else {
      state.indexed.back().end = part->range.end;
    }
  }
  if (state.forwarded != nullptr) {
    if (setup.coding != PayloadCoding{} || state.forwarded->coded) {
      SPARFUSE_THROW(kInternal, exchange.label + ": what is sent on as it came is coded");
    }
    for (const auto payload : state.forwarded->buffers.payloads) {
      state.with_indices += payload.size() / kSparseElementBytes;
    }
  }
  if (state.shared_capacity) {  // every rank makes room for the largest
    state.capacity = *state.shared_capacity;
    state.indexed = {exchange.range};
  }
  if (state.with_indices > state.capacity) {
    SPARFUSE_THROW(kInternal, exchange.label + ": " + std::to_string(state.with_indices) +
                                  " elements to send, and room for " +
                                  std::to_string(state.capacity));
  }
  if (exchange.pattern == Pattern::kReduceScatter) {
    state.indexed.clear();
    if (state.owned) state.indexed = {*state.owned};
  }
  state.coded = setup.coding != PayloadCoding{} && state.capacity > 0;
  const std::size_t indexed_bytes =
      setup.coding.of_selections() ? coded_bound
      : state.coded ? EncodedBytesBound(setup.coding, state.capacity, exchange.range.size())
                    : state.capacity * kSparseElementBytes;
  ExchangeBuffers& buffers = state.buffers;
  buffers.element_bytes = state.coded             ? 1
                          : state.whole_bytes > 0 ? sizeof(float)
                                                  : kSparseElementBytes;
  buffers.capacity_bytes = state.whole_bytes + indexed_bytes;
}

std::size_t CopyForwarded(const ExchangeState& state, std::uint32_t* indices, float* values) {
  std::size_t copied = 0;
  for (const auto bytes : state.forwarded->buffers.payloads) {
    const SparsePayload payload = ViewSparsePayload(bytes);
    for (const std::uint32_t index : payload.indices) {
      indices[copied++] = index + state.forwarded_base;
    }
    values = std::ranges::copy(payload.values, values).out;
  }
  return copied;
}

void RequireWhole(const ExchangeState& state) {
  const auto& payloads = state.buffers.payloads;
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    if (payloads[rank].size() >= state.whole_bytes) continue;
    SPARFUSE_THROW(kComm, "payload of rank " + std::to_string(rank) + " has " +
                              std::to_string(payloads[rank].size()) + " bytes: expected at least " +
                              std::to_string(state.whole_bytes) + " for whole tensors");
  }
}

void RequireAllTaken(const Op& exchange, const ExchangeState& state, std::size_t taken) {
  const std::size_t returned = state.buffers.returned.size() / kSparseElementBytes;
  if (taken == returned) return;
  SPARFUSE_THROW(kInternal, exchange.label + ": " + std::to_string(returned) +
                                " elements came back, of which " + std::to_string(taken) +
                                " lie where something was selected");
}

std::unique_ptr<ExchangeStaging> MakeHostStaging(const StagingSetup& setup) {
  return std::make_unique<HostStaging>(setup);
}

}  // namespace sparfuse
