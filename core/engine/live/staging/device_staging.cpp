// Stages exchanges of device memory. With a host communicator, messages lie in pinned memory.
// Copies to and from it have their own streams, and a coroutine that waits for a copy is polled.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/chunk_coding.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/device/completion_thread.hpp"
#include "core/engine/live/staging/exchange_staging.hpp"
#include "core/feedback/returned.hpp"

namespace sparfuse {
namespace {

// Lets a coroutine of the communication thread wait for a device. It is complete once a stream has
// reached a point. Test throws the exception of the wait for the event.
class EventRequest final : public Request {
 public:
  // wake: called on the thread of `completions` when Test has a new result.
  EventRequest(gpu::CompletionThread& completions, const gpu::GpuEvent& event,
               std::function<void()> wake)
      : told_(std::make_shared<Told>()) {
    completions.Add(event, [told = told_, wake = std::move(wake)](std::exception_ptr error) {
      told->error = std::move(error);
      told->reached.store(true, std::memory_order_release);
      wake();
    });
  }
  bool Test() override {
    if (!told_->reached.load(std::memory_order_acquire)) return false;
    if (told_->error) std::rethrow_exception(told_->error);
    return true;
  }

 private:
  struct Told {
    std::atomic<bool> reached{false};
    std::exception_ptr error;
  };
  std::shared_ptr<Told> told_;  // also the completion thread's: a request may be given up
};

// Grows a Buffer or a PinnedBuffer, by at least half. An allocation waits for the device. If an
// exchange differs from step to step, every new maximum would cause such a wait during backward.
template <class AnyBuffer>
void Grow(AnyBuffer& buffer, std::size_t size, Device device, std::string_view what) {
  if (buffer.size() >= size) return;
  const std::size_t room = std::max(size, buffer.size() + buffer.size() / 2);
  buffer = {};
  buffer = AnyBuffer(room, device, what);
}

bool OnHost(const Selection& selection) { return selection.device.kind == DeviceKind::kHost; }

bool AnyOnHost(const Payload& payload) {
  return std::ranges::any_of(payload.parts, [](const Selection* part) { return OnHost(*part); });
}

class DeviceStaging final : public ExchangeStaging {
 public:
  DeviceStaging(const StagingSetup& setup, ProgressLoop& loop, gpu::EventPool& events)
      : setup_(setup),
        device_(setup.flat.stream.device),
        loop_(loop),
        events_(events),
        out_workspace_(device_),
        in_workspace_(device_),
        out_(device_, gpu::Priority::kHigh),
        in_(device_, gpu::Priority::kHigh) {}

  Task Gather(Communicator& communicator, ExchangeState& state) override {
    state.device.ready = state.device.gathered_there = nullptr;
    for (const ExchangeState* before : state.behind) {
      gpu::StreamWait(out_.view(), *before->device.ready);
    }
    if (!state.op->sparse()) return GatherDense(communicator, state);
    return GatherPayload(communicator, state);
  }

  Task Deliver(Communicator& communicator, ExchangeState& state) override {
    // A communicator of one rank has moved and awaited nothing.
    if (state.device.gathered_there != nullptr) {
      gpu::StreamWait(in_.view(), *state.device.gathered_there);
    }
    if (!state.op->sparse()) {
      DeliverDense(state, StaysOnDevice(communicator));
    } else {
      DeliverPayloads(state, StaysOnDevice(communicator));
      if (!state.buffers.returned.empty()) TakeBack(state);
    }
    state.device.ready = &Record(in_, state, state.device.delivered_event);
    co_return;
  }

  void EndStep() override { reached_.Drain(); }

 private:
  // Returns whether the communicator reads and writes the device's memory.
  static bool StaysOnDevice(const Communicator& communicator) {
    return communicator.stream().device.kind != DeviceKind::kHost;
  }

  // Records an event of the step, or `own` for an exchange that may outlive the step.
  const gpu::GpuEvent& Record(const gpu::GpuStream& stream, const ExchangeState& state,
                              gpu::GpuEvent& own) {
    if (!state.op->exchange().background) return events_.Record(stream.view());
    own = gpu::GpuEvent(device_);
    own.Record(stream.view());
    return own;
  }

  void WaitForGathered(Communicator& communicator, ExchangeState& state) {
    DeviceExchange& at = state.device;
    at.gathered_there = &Record(out_, state, at.gathered_event);
    gpu::StreamWait(communicator.stream(), *at.gathered_there);
  }

  // Waits until the work enqueued on out_ is done. It then wakes the loop, which may sleep.
  Task Reach(ExchangeState& state) {
    const gpu::GpuEvent& there = Record(out_, state, state.device.gathered_event);
    std::vector<std::unique_ptr<Request>> requests;
    requests.push_back(std::make_unique<EventRequest>(reached_, there, [this] { loop_.Wake(); }));
    co_await Complete(std::move(requests));
  }

  // --- output ---

  Task GatherPayload(Communicator& communicator, ExchangeState& state) {
    MeasurePayload(setup_, state);
    const Op& op = *state.op;
    const Payload& payload = state.payload;
    if (!payload.parts.empty() && payload.parts.front()->accumulated) {
      SPARFUSE_THROW(kUnsupported, op.label(),
                     ": its collective selects from accumulated gradients, which "
                     "lie on a device; expected device \"cpu\"");
    }
    DeviceExchange& at = state.device;
    ExchangeBuffers& buffers = state.buffers;
    const std::size_t room = buffers.capacity_bytes * setup_.workers;
    const bool stays = StaysOnDevice(communicator);
    if (payload.forwarded != nullptr && stays) {
      SPARFUSE_THROW(kUnsupported, op.label(),
                     ": its channel sends from a device, but its payload came over another "
                     "channel to the host; expected transport \"mpi\" or \"threads\"");
    }
    const bool joined = payload.coded && setup_.coding.of_selections();
    if (joined && stays) {
      SPARFUSE_THROW(kUnsupported, op.label(),
                     ": selections are coded one by one in host memory, but its channel sends "
                     "from a device; expected transport \"mpi\" or \"threads\"");
    }
    const bool merged_on_host = joined || AnyOnHost(payload) || payload.forwarded != nullptr;
    if (merged_on_host || !stays) {
      Grow(at.own, buffers.capacity_bytes, device_, "the payload of " + op.label());
    }
    if (joined) {
      co_await JoinCoded(state);
    } else if (merged_on_host) {
      co_await MergeOnHost(state);
    } else {
      co_await MergeOnDevice(state);
    }
    if (stays) {
      if (merged_on_host) {
        Grow(at.sent, buffers.capacity_bytes, device_, "the payload of " + op.label());
        gpu::CopyAsync(out_.view(), at.sent.data(), at.own.data(), op.payload_bytes);
      }
      WaitForGathered(communicator, state);
      Grow(at.received, room, device_, "the payloads received for " + op.label());
      buffers.own = {at.sent.data(), op.payload_bytes};
      buffers.gathered = {at.received.data(), room};
      co_return;
    }
    if (!merged_on_host) {
      gpu::CopyAsync(out_.view(), at.own.data(), at.sent.data(), op.payload_bytes);
      co_await Reach(state);
    }
    Grow(at.gathered, room, device_, "the payloads received for " + op.label());
    buffers.own = at.own.span().first(op.payload_bytes);
    buffers.gathered = at.gathered.span().first(room);
  }

  // Merges whole tensors and then indexed selections into at.sent.
  Task MergeOnDevice(ExchangeState& state) {
    Op& op = *state.op;
    const Payload& payload = state.payload;
    DeviceExchange& at = state.device;
    const Stream& stream = out_.view();
    Grow(at.sent, state.buffers.capacity_bytes, device_, "the payload of " + op.label());
    Grow(at.words, setup_.workers + 2, device_, "the counts of " + op.label());
    std::byte* whole = at.sent.data();
    std::vector<MergePart> parts;
    for (const Selection* part : payload.parts) {
      if (part->whole) {
        gpu::CopyAsync(stream, whole, part->encoded.data(), part->encoded.size());
        whole += part->encoded.size();
      } else {
        parts.push_back({DeviceSlotOf(*part), BaseOf(*part, op)});
      }
    }
    op.payload_bytes = payload.whole_bytes + payload.with_indices * kSparseElementBytes;
    if (parts.empty()) co_return;
    MergedPayload merged{reinterpret_cast<std::uint32_t*>(whole), nullptr, payload.capacity,
                         at.words.data() + setup_.workers};
    if (!payload.coded) {
      MergeSlotsOnDevice(stream, out_workspace_, parts, merged);
      co_return;
    }
    Grow(at.merged, payload.capacity * kSparseElementBytes, device_,
         "the elements of " + op.label());
    Grow(at.own_bytes, 1, device_, "the bytes of a payload");
    merged.indices = reinterpret_cast<std::uint32_t*>(at.merged.data());
    merged.values = reinterpret_cast<float*>(merged.indices + payload.capacity);
    MergeSlotsOnDevice(stream, out_workspace_, parts, merged);
    std::uint32_t* const bytes = at.words.data() + setup_.workers + 1;
    EncodePayloadOnDevice(
        stream, out_workspace_, setup_.coding,
        {merged.indices, merged.values, payload.with_indices, nullptr}, op.range().size(),
        {whole, state.buffers.capacity_bytes - payload.whole_bytes, stream}, bytes);
    gpu::CopyAsync(stream, at.own_bytes.data(), bytes, sizeof(std::uint32_t));
    co_await Reach(state);
    op.payload_bytes = payload.whole_bytes + at.own_bytes[0];
  }

  // Copies what belongs to a selection to memory of the host.
  void Fetch(const Selection& part, void* to, const void* from, std::size_t bytes) {
    if (!OnHost(part)) return gpu::CopyAsync(out_.view(), to, from, bytes);
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  // Joins whole tensors and selections that are coded already in at.own.
  Task JoinCoded(ExchangeState& state) {
    Op& op = *state.op;
    std::byte* whole = state.device.own.data();
    std::byte* coded = whole + state.payload.whole_bytes;
    for (const Selection* part : state.payload.parts) {
      if (part->whole) {
        Fetch(*part, whole, part->encoded.data(), part->encoded.size());
        whole += part->encoded.size();
      } else {
        std::memcpy(coded, part->coded.data(), part->coded_bytes);
        coded += part->coded_bytes;
      }
    }
    op.payload_bytes = static_cast<std::uint64_t>(coded - state.device.own.data());
    co_await Reach(state);
  }

  // Merges the same into at.own, if some parts were selected on the host.
  Task MergeOnHost(ExchangeState& state) {
    Op& op = *state.op;
    const Payload& payload = state.payload;
    DeviceExchange& at = state.device;
    if (payload.coded) {
      Grow(at.merged_indices, payload.capacity, device_, "the elements of " + op.label());
      Grow(at.merged_values, payload.capacity, device_, "the elements of " + op.label());
    }
    std::byte* whole = at.own.data();
    auto* const indices = payload.coded
                              ? at.merged_indices.data()
                              : reinterpret_cast<std::uint32_t*>(whole + payload.whole_bytes);
    auto* const values = payload.coded ? at.merged_values.data()
                                       : reinterpret_cast<float*>(indices + payload.with_indices);
    std::size_t merged = CopyForwarded(op.range(), payload, indices, values);
    const std::size_t forwarded = merged;
    for (const Selection* part : payload.parts) {
      if (part->whole) {
        Fetch(*part, whole, part->encoded.data(), part->encoded.size());
        whole += part->encoded.size();
        continue;
      }
      const std::size_t count = part->slot.count;
      Fetch(*part, indices + merged, part->slot.indices.data, count * sizeof(std::uint32_t));
      Fetch(*part, values + merged, part->slot.values.data, count * sizeof(float));
      merged += count;
    }
    co_await Reach(state);
    merged = forwarded;
    for (const Selection* part : payload.parts) {
      if (part->whole) continue;
      const std::uint32_t base = BaseOf(*part, op);
      for (std::size_t i = 0; i < part->slot.count; ++i) indices[merged + i] += base;
      merged += part->slot.count;
    }
    op.payload_bytes =
        payload.whole_bytes +
        (payload.coded
             ? EncodePayload(setup_.coding, {{indices, merged}, {values, merged}},
                             op.range().size(), at.own.span().subspan(payload.whole_bytes))
             : merged * kSparseElementBytes);
  }

  // Prepares dense ranges. On the host they are reduced in pinned memory. On the device a single
  // range is reduced in place, and several side by side in a buffer.
  Task GatherDense(Communicator& communicator, ExchangeState& state) {
    const Op& op = *state.op;
    const std::size_t array = op.exchange().array();
    state.elements = op.elements();
    DeviceExchange& at = state.device;
    const bool stays = StaysOnDevice(communicator);
    if (stays && op.parts.size() == 1) {
      state.buffers.dense = {setup_.FlatOf(op.range(), array), op.range().size()};
      co_return;
    }
    if (stays) {
      Grow(at.received, state.elements * sizeof(float), device_, "the sums of " + op.label());
    } else {
      Grow(at.dense, state.elements, device_, "the sums of " + op.label());
    }
    float* const dense = stays ? reinterpret_cast<float*>(at.received.data()) : at.dense.data();
    float* to = dense;
    for (const Range& part : op.parts) {
      gpu::CopyAsync(out_.view(), to, setup_.FlatOf(part, array), part.size() * sizeof(float));
      to += part.size();
    }
    if (stays) {
      WaitForGathered(communicator, state);
    } else {
      co_await Reach(state);
    }
    state.buffers.dense = {dense, state.elements};
  }

  // --- input ---

  // Copies the sums to the flat gradient, where Apply reads them, unless they were reduced there.
  // Later steps use the flat gradient of an exchange in the background, whose sums lie apart.
  void DeliverDense(ExchangeState& state, bool stays) {
    const Op& op = *state.op;
    state.device.sums = nullptr;
    if (op.exchange().background) return CopySums(state, state.buffers.dense);
    if (stays && op.parts.size() == 1) return;
    const float* from = state.buffers.dense.data();
    for (const Range& part : op.parts) {
      gpu::CopyAsync(in_.view(), setup_.FlatOf(part, op.exchange().array()), from,
                     part.size() * sizeof(float));
      from += part.size();
    }
  }

  // Payloads may have any length: a collective that sums may return one payload for all ranks.
  void CopyToDevice(ExchangeState& state) {
    DeviceExchange& at = state.device;
    const auto& payloads = state.buffers.payloads;
    constexpr std::size_t kAlignment = 16;
    std::vector<std::size_t> begins;
    std::size_t room = 0;
    for (const auto payload : payloads) {
      begins.push_back(room);
      room += (payload.size() + kAlignment - 1) / kAlignment * kAlignment;
    }
    Grow(at.received, room, device_, "the payloads received for " + state.op->label());
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      std::byte* const to = at.received.data() + begins[i];
      gpu::CopyAsync(in_.view(), to, payloads[i].data(), payloads[i].size());
      at.begins[i] = to;
    }
  }

  void CopySums(ExchangeState& state, std::span<const float> sums) {
    Grow(state.device.received, sums.size_bytes(), device_, "the sums of " + state.op->label());
    gpu::CopyAsync(in_.view(), state.device.received.data(), sums.data(), sums.size_bytes());
    state.device.sums = reinterpret_cast<const float*>(state.device.received.data());
  }

  void DeliverPayloads(ExchangeState& state, bool stays) {
    const Payload& payload = state.payload;
    RequireWhole(state);
    DeviceExchange& at = state.device;
    const Stream& stream = in_.view();
    const auto& payloads = state.buffers.payloads;
    const std::size_t ranks = payloads.size();
    Grow(at.fault, 1, device_, "the state of " + state.op->label());
    gpu::FillAsync(stream, at.fault.data(), 0, sizeof(std::uint64_t));
    at.sums = nullptr;
    if (!state.buffers.sums.empty()) return CopySums(state, state.buffers.sums);
    at.begins.assign(ranks, nullptr);
    at.payloads.assign(ranks, {});
    for (std::size_t rank = 0; rank < ranks; ++rank) at.begins[rank] = payloads[rank].data();
    if (!stays) CopyToDevice(state);
    if (payload.coded && setup_.coding.of_selections()) return DecodeOnHost(state);
    if (payload.coded) return Decode(state);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t whole = WholeBytesOf(payload, rank);
      const auto* const indices = reinterpret_cast<const std::uint32_t*>(at.begins[rank] + whole);
      const std::size_t count = (payloads[rank].size() - whole) / kSparseElementBytes;
      at.payloads[rank] = {indices, reinterpret_cast<const float*>(indices + count), count,
                           nullptr};
    }
  }

  // Decodes the selections of all ranks, and copies their elements to the device.
  void DecodeOnHost(ExchangeState& state) {
    const Payload& payload = state.payload;
    DeviceExchange& at = state.device;
    const std::string& label = state.op->label();
    const std::size_t ranks = at.begins.size(), capacity = payload.capacity;
    Grow(at.merged_indices, ranks * capacity, device_, "the elements received for " + label);
    Grow(at.merged_values, ranks * capacity, device_, "the elements received for " + label);
    Grow(at.decoded, ranks * capacity * kSparseElementBytes, device_,
         "the elements received for " + label);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto indices = at.merged_indices.span().subspan(rank * capacity, capacity);
      const auto values = at.merged_values.span().subspan(rank * capacity, capacity);
      const std::size_t count = DecodeSelections(
          state, state.buffers.payloads[rank].subspan(WholeBytesOf(payload, rank)), rank, indices,
          values, [&](const Selection& part, auto bytes, auto to, auto values_to) {
            return DecodeChunks(setup_.coding.Of(part.density), bytes, part.range.size(), to,
                                values_to);
          });
      auto* const on_device = reinterpret_cast<std::uint32_t*>(
          at.decoded.data() + rank * capacity * kSparseElementBytes);
      auto* const values_on_device = reinterpret_cast<float*>(on_device + capacity);
      gpu::CopyAsync(in_.view(), on_device, indices.data(), count * sizeof(std::uint32_t));
      gpu::CopyAsync(in_.view(), values_on_device, values.data(), count * sizeof(float));
      at.payloads[rank] = {on_device, values_on_device, count, nullptr};
    }
  }

  void Decode(ExchangeState& state) {
    const Op& op = *state.op;
    const Payload& payload = state.payload;
    DeviceExchange& at = state.device;
    const Stream& stream = in_.view();
    const std::size_t ranks = at.begins.size();
    Grow(at.decoded, ranks * payload.capacity * kSparseElementBytes, device_,
         "the elements received for " + op.label());
    Grow(at.words, setup_.workers + 2, device_, "the counts of " + op.label());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto* const indices = reinterpret_cast<std::uint32_t*>(
          at.decoded.data() + rank * payload.capacity * kSparseElementBytes);
      auto* const values = reinterpret_cast<float*>(indices + payload.capacity);
      const std::size_t whole = WholeBytesOf(payload, rank);
      at.payloads[rank] = DecodePayloadOnDevice(
          stream, in_workspace_, setup_.coding,
          {at.begins[rank] + whole, state.buffers.payloads[rank].size() - whole, stream},
          op.range().size(), {indices, payload.capacity, stream},
          {values, payload.capacity, stream}, at.words.data() + rank, static_cast<int>(rank),
          at.fault.data());
    }
  }

  // Returns the elements that a collective dropped to the residuals of their selections.
  void TakeBack(ExchangeState& state) {
    const Op& op = *state.op;
    const SparsePayload returned = ViewSparsePayload(state.buffers.returned);
    const std::size_t count = returned.indices.size();
    const Stream& stream = in_.view();
    DeviceExchange& at = state.device;
    Grow(at.merged, count * kSparseElementBytes, device_, "the elements returned by " + op.label());
    auto* const indices = reinterpret_cast<std::uint32_t*>(at.merged.data());
    gpu::CopyAsync(stream, indices, state.buffers.returned.data(), count * kSparseElementBytes);
    const DevicePayload on_device{indices, reinterpret_cast<const float*>(indices + count), count,
                                  nullptr};
    Grow(at.words, setup_.workers + 2, device_, "the counts of " + op.label());
    std::size_t taken = 0;
    for (const Selection* part : state.payload.parts) {
      if (part->whole) continue;
      const Range range{part->range.begin - op.range().begin, part->range.end - op.range().begin};
      const bool on_host = OnHost(*part);
      taken += AddReturned(returned, range, on_host ? part->residual.host() : std::span<float>());
      if (on_host || part->residual.size == 0) continue;
      AddReturnedOnDevice(stream, on_device, range, part->residual,
                          at.words.data() + setup_.workers, at.fault.data());
    }
    RequireAllTaken(state, taken);
  }

  StagingSetup setup_;
  Device device_;
  ProgressLoop& loop_;
  gpu::EventPool& events_;
  DeviceWorkspace out_workspace_;
  DeviceWorkspace in_workspace_;
  // These streams have priority over the next blocks of a backward kernel: their kernels are short
  // and others wait for them.
  gpu::GpuStream out_;  // from the lanes to a communicator
  gpu::GpuStream in_;   // from a communicator to the memory that Apply reads
  gpu::CompletionThread reached_;
};

}  // namespace

std::unique_ptr<ExchangeStaging> MakeDeviceStaging(const StagingSetup& setup, ProgressLoop& loop,
                                                   gpu::EventPool& events) {
  return std::make_unique<DeviceStaging>(setup, loop, events);
}

}  // namespace sparfuse
