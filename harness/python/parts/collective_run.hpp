// Drives the generator of a collective that is written in Python, over messages of any kind.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/collective/collective.hpp"
#include "harness/python/parts/part_class.hpp"

namespace sparfuse::python {

struct WorkNote {
  Work kind;
  std::uint64_t elements;
};

// The operations of a generator, numbered from 0. Send, Receive, Work and ResultOf are called with
// the GIL.
class Messages {
 public:
  virtual ~Messages() = default;
  virtual std::size_t Send(int to, pybind11::bytes data) = 0;
  virtual std::size_t Receive(int from, std::size_t most) = 0;
  virtual void Work(WorkNote note) = 0;
  // The result of a message after the wait: the received bytes, None for a send.
  pybind11::object ResultOf(std::size_t number) const;
  std::vector<std::size_t> NotWaitedFor(bool receives) const;
  int PeerOf(std::size_t number) const { return known_[number].from; }  // kSend for a send
  std::size_t size() const { return known_.size(); }

 protected:
  static constexpr int kSend = -1;

  std::size_t Add(int from) {  // returns the message's number
    known_.push_back({from});
    return known_.size() - 1;
  }
  void WaitedFor(const std::vector<std::size_t>& numbers) {
    for (const std::size_t number : numbers) known_[number].waited = true;
  }

 private:
  virtual std::span<const std::byte> ReceivedBy(std::size_t number) const = 0;

  struct Known {
    int from;
    bool waited = false;
  };
  std::vector<Known> known_;
};

struct RunPlace {
  int rank;
  int size;
  std::size_t elements;
  PayloadKind payload;
  bool sums;
  std::size_t most_bytes;     // of a message
  std::size_t element_bytes;  // of a payload; 1 if it is coded
};

// One exchange of one rank. Takes the GIL for its calls. Throws Error{kConfig} naming the class if
// it raises an error, or yields or returns a wrong value.
class CollectiveRun {
 public:
  // object, part and messages outlive it; own is copied.
  CollectiveRun(const PartClass& part, const pybind11::object& object, const RunPlace& place,
                std::span<const std::byte> own, Messages& messages);
  CollectiveRun(const CollectiveRun&) = delete;
  CollectiveRun& operator=(const CollectiveRun&) = delete;
  ~CollectiveRun();

  // Return the numbers of the messages for which it waits; nothing if it has ended.
  std::optional<std::vector<std::size_t>> Start();
  std::optional<std::vector<std::size_t>> Resume();

  // Precondition of both: it has ended.
  void TakeResult(ExchangeBuffers& buffers);
  // Throws if its result is not these payloads, of all ranks in rank order.
  void RequirePayloads(const std::vector<std::vector<std::byte>>& of_ranks) const;

 private:
  struct State;
  std::optional<std::vector<std::size_t>> Advance(bool first);
  pybind11::object Results() const;
  void WaitFor(const pybind11::object& yielded);
  void RequireAllReceived(const PartCall& call) const;
  std::vector<pybind11::bytes> PayloadsOf(const PartCall& call) const;

  std::unique_ptr<State> state_;
};

}  // namespace sparfuse::python
