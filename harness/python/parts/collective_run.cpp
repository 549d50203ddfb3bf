#include "harness/python/parts/collective_run.hpp"

#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.hpp"
#include "core/payload/payload.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

std::span<const std::uint8_t> BytesIn(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

constexpr const char* kWorkNames[] = {"add", "merge", "select", "hash", "multiply"};

// The bytes that a class sends: bytes, or an array in contiguous memory.
py::bytes BytesOf(const PartClass& part, const py::object& data) {
  if (py::isinstance<py::bytes>(data)) return data;
  try {
    const auto array =
        CallPython(py::module_::import("numpy").attr("ascontiguousarray"), data).cast<py::array>();
    return py::bytes(static_cast<const char*>(array.data()),
                     static_cast<std::size_t>(array.nbytes()));
  } catch (const py::error_already_set&) {
    part.Refuse("comm.send of a " + TypeText(data) + "; expected bytes or an array");
  }
}

}  // namespace

py::object Messages::ResultOf(std::size_t number) const {
  if (PeerOf(number) == kSend) return py::none();
  return CopyOf(BytesIn(ReceivedBy(number)));
}

std::vector<std::size_t> Messages::NotWaitedFor(bool receives) const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < size(); ++i) {
    if (!known_[i].waited && (PeerOf(i) != kSend) == receives) numbers.push_back(i);
  }
  return numbers;
}

struct CollectiveRun::State {
  const PartClass& part;
  RunPlace place;
  Messages& messages;
  py::object mine;
  py::object object;
  py::object generator;
  py::object result;
  std::vector<std::size_t> waits;  // the numbers that were yielded last
  bool list = false;               // whether they came as a list

  int Peer(int peer, const char* what) const {
    if (peer >= 0 && peer < place.size && peer != place.rank) return peer;
    part.Refuse(std::string("comm.") + what + " with rank " + std::to_string(peer) + " on rank " +
                std::to_string(place.rank) + "; expected another rank below " +
                std::to_string(place.size));
  }
};

namespace {

// A payload as indices and values.
py::tuple Decoded(const PartClass& part, const RunPlace& place, const py::object& payload) {
  const py::bytes bytes = BytesOf(part, payload);
  const std::string_view text = bytes;
  if (place.element_bytes != kSparseElementBytes || text.size() % kSparseElementBytes != 0) {
    part.Refuse("comm.decode of " + std::to_string(text.size()) +
                " bytes; expected an uncoded payload, 8 bytes an element");
  }
  const std::size_t count = text.size() / kSparseElementBytes;
  const auto* const at = text.data();
  py::array_t<std::uint32_t> indices(static_cast<py::ssize_t>(count));
  py::array_t<float> values(static_cast<py::ssize_t>(count));
  std::memcpy(indices.mutable_data(), at, count * sizeof(std::uint32_t));
  std::memcpy(values.mutable_data(), at + count * sizeof(std::uint32_t), count * sizeof(float));
  return py::make_tuple(indices, values);
}

}  // namespace

CollectiveRun::CollectiveRun(const PartClass& part, const py::object& object, const RunPlace& place,
                             std::span<const std::byte> own, Messages& messages)
    : state_(nullptr) {
  PartCall(part, "run(comm, mine)")([&] {
    state_.reset(new State{part, place, messages, {}, object, {}, {}, {}, false});
    const auto* const floats = reinterpret_cast<const float*>(own.data());
    state_->mine = place.payload == PayloadKind::kDense
                       ? CopyOf(std::span(floats, own.size() / sizeof(float)))
                       : CopyOf(BytesIn(own));
  });
}

CollectiveRun::~CollectiveRun() {
  if (!state_) return;
  if (InterpreterEnds()) {
    (void)state_.release();
    return;
  }
  const GilHeld gil;
  state_.reset();
}

std::optional<std::vector<std::size_t>> CollectiveRun::Start() {
  State* const state = state_.get();
  PartCall(state->part, "run(comm, mine)")([&] {
    py::dict members;
    members["rank"] = state->place.rank;
    members["size"] = state->place.size;
    members["elements"] = state->place.elements;
    members["send"] = py::cpp_function(
        [state](int to, const py::object& data) {
          return state->messages.Send(state->Peer(to, "send"), BytesOf(state->part, data));
        },
        py::arg("to"), py::arg("data"));
    members["receive"] = py::cpp_function(
        [state](int from) {
          return state->messages.Receive(state->Peer(from, "receive"), state->place.most_bytes);
        },
        py::arg("source"));
    members["work"] = py::cpp_function(
        [state](const std::string& kind, std::uint64_t elements) {
          for (std::size_t k = 0; k < std::size(kWorkNames); ++k) {
            if (kind == kWorkNames[k])
              return state->messages.Work({static_cast<Work>(k), elements});
          }
          state->part.Refuse("comm.work(\"" + kind +
                             "\"); expected add, merge, select, hash or multiply");
        },
        py::arg("kind"), py::arg("elements"));
    members["decode"] = py::cpp_function(
        [state](const py::object& payload) { return Decoded(state->part, state->place, payload); });
    const py::object comm = NamespaceOf(members);
    state->generator = CallPython(state->object.attr("run"), comm, state->mine);
    if (!py::hasattr(state->generator, "send") || !py::hasattr(state->generator, "throw")) {
      state->part.Refuse("run(comm, mine) returned a " + TypeText(state->generator) +
                         "; expected a generator, which yields the messages that it waits for");
    }
  });
  return Advance(true);
}

std::optional<std::vector<std::size_t>> CollectiveRun::Resume() { return Advance(false); }

py::object CollectiveRun::Results() const {
  const State& state = *state_;
  if (!state.list) return state.messages.ResultOf(state.waits.front());
  py::list results;
  for (const std::size_t number : state.waits) results.append(state.messages.ResultOf(number));
  return results;
}

// Reads the yielded requests.
void CollectiveRun::WaitFor(const py::object& yielded) {
  State& state = *state_;
  state.list = py::isinstance<py::list>(yielded) || py::isinstance<py::tuple>(yielded);
  state.waits.clear();
  py::list all = state.list ? py::list(yielded) : py::list();
  if (!state.list) all.append(yielded);
  for (const py::handle each : all) {
    const bool known = py::isinstance<py::int_>(each) && !py::isinstance<py::bool_>(each);
    const std::size_t number = known ? each.cast<std::size_t>() : 0;
    if (!known || number >= state.messages.size()) {
      state.part.Refuse("run(comm, mine) yielded a " + TypeText(each) +
                        "; expected a result of comm.send or comm.receive, or a list of results");
    }
    state.waits.push_back(number);
  }
}

std::optional<std::vector<std::size_t>> CollectiveRun::Advance(bool first) {
  State& state = *state_;
  const PartCall call(state.part, "run(comm, mine) on rank " + std::to_string(state.place.rank));
  return call([&]() -> std::optional<std::vector<std::size_t>> {
    py::object given = first ? py::object(py::none()) : Results();
    do {  // an empty list waits for nothing
      py::object yielded;
      try {
        yielded = CallPython(state.generator.attr("send"), given);
      } catch (py::error_already_set& error) {
        if (!error.matches(PyExc_StopIteration)) throw;
        state.result = error.value().attr("value");
        RequireAllReceived(call);
        return std::nullopt;
      }
      WaitFor(yielded);
      given = py::list();
    } while (state.waits.empty());
    return state.waits;
  });
}

void CollectiveRun::RequireAllReceived(const PartCall& call) const {
  const auto rest = state_->messages.NotWaitedFor(true);
  if (rest.empty()) return;
  call.Returned("before it had waited for its receive from rank " +
                std::to_string(state_->messages.PeerOf(rest.front())) +
                "; expected a yield of each receive");
}

// The payloads that it returned, one for each rank.
std::vector<py::bytes> CollectiveRun::PayloadsOf(const PartCall& call) const {
  const State& state = *state_;
  const bool list = py::isinstance<py::list>(state.result);
  const std::size_t count = list ? py::len(state.result) : 0;
  if (!list || count != static_cast<std::size_t>(state.place.size)) {
    call.Returned("a " + TypeText(state.result) + (list ? " of " + std::to_string(count) : "") +
                  "; expected a list of " + std::to_string(state.place.size) +
                  " payloads, one for each rank in rank order");
  }
  std::vector<py::bytes> payloads;
  for (const py::handle each : py::list(state.result)) {
    payloads.push_back(BytesOf(state.part, py::reinterpret_borrow<py::object>(each)));
  }
  return payloads;
}

void CollectiveRun::RequirePayloads(const std::vector<std::vector<std::byte>>& of_ranks) const {
  const State& state = *state_;
  const PartCall call(state.part, "run(comm, mine) on rank " + std::to_string(state.place.rank));
  call([&] {
    const std::vector<py::bytes> payloads = PayloadsOf(call);
    for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
      const std::string_view text = payloads[rank];
      if (std::ranges::equal(std::as_bytes(std::span(text)), of_ranks[rank])) continue;
      call.Returned("a list whose place " + std::to_string(rank) +
                    " is not the payload of that rank; expected the payloads of all ranks in rank "
                    "order");
    }
  });
}

void CollectiveRun::TakeResult(ExchangeBuffers& buffers) {
  State& state = *state_;
  const RunPlace& place = state.place;
  const PartCall call(state.part, "run(comm, mine) on rank " + std::to_string(place.rank));
  call([&] {
    if (place.payload == PayloadKind::kDense) {
      ReadFloatsOf(state.result, buffers.dense, call);
      return;
    }
    if (place.sums) {
      const std::span<std::byte> kept = buffers.Keep(place.elements * sizeof(float));
      const std::span<float> sums{reinterpret_cast<float*>(kept.data()), place.elements};
      ReadFloatsOf(state.result, sums, call);
      buffers.sums = sums;
      return;
    }
    const std::vector<py::bytes> payloads = PayloadsOf(call);
    std::size_t bytes = 0;
    for (const py::bytes& each : payloads) bytes += (std::string_view(each).size() + 7) / 8 * 8;
    const std::string_view own = payloads[static_cast<std::size_t>(place.rank)];
    if (own.size() != buffers.own.size() ||
        std::memcmp(own.data(), buffers.own.data(), own.size()) != 0) {
      call.Returned("a list whose place " + std::to_string(place.rank) +
                    " is not this rank's own payload; expected rank order");
    }
    const std::span<std::byte> kept = buffers.Keep(bytes);
    std::size_t at = 0;
    for (const py::bytes& payload : payloads) {
      const std::string_view text = payload;
      if (buffers.element_bytes > 1 && text.size() % buffers.element_bytes != 0) {
        call.Returned("a payload of " + std::to_string(text.size()) +
                      " bytes; expected a multiple of " + std::to_string(buffers.element_bytes));
      }
      std::memcpy(kept.data() + at, text.data(), text.size());
      buffers.payloads.emplace_back(kept.subspan(at, text.size()));
      at += (text.size() + 7) / 8 * 8;
    }
  });
}

}  // namespace sparfuse::python
