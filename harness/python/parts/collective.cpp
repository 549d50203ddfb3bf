// Exchanges by a class that is written in Python: a generator that yields the requests it waits
// for.

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <ranges>
#include <utility>

#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/collective_run.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// --- live ---

// Requests of a communicator, by the generator's numbers for them.
class LiveMessages final : public Messages {
 public:
  LiveMessages(Communicator& communicator, int tag) : communicator_(communicator), tag_(tag) {}

  std::size_t Send(int to, py::bytes data) override {
    Message& message = messages_.emplace_back();
    const std::string_view text = data;
    message.bytes = std::vector<std::byte>(text.size());
    std::memcpy(message.bytes.data(), text.data(), text.size());
    message.request = communicator_.Isend(to, tag_, message.bytes);
    return Add(kSend);
  }
  std::size_t Receive(int from, std::size_t most) override {
    Message& message = messages_.emplace_back();
    message.bytes.resize(most);
    message.request = communicator_.Irecv(from, tag_, message.bytes);
    return Add(from);
  }
  void Work(WorkNote) override {}

  // Takes out the requests that the generator waits for. Done puts them back.
  std::vector<std::unique_ptr<Request>> Take(const std::vector<std::size_t>& numbers) {
    std::vector<std::unique_ptr<Request>> requests;
    for (const std::size_t number : numbers)
      requests.push_back(std::move(messages_[number].request));
    WaitedFor(numbers);
    return requests;
  }
  void Done(const std::vector<std::size_t>& numbers,
            std::vector<std::unique_ptr<Request>> requests) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      messages_[numbers[i]].received = requests[i]->bytes();
    }
  }

 private:
  std::span<const std::byte> ReceivedBy(std::size_t number) const override {
    return std::span(messages_[number].bytes).first(messages_[number].received);
  }

  struct Message {
    std::vector<std::byte> bytes;
    std::unique_ptr<Request> request;
    std::size_t received = 0;
  };
  Communicator& communicator_;
  int tag_;
  std::deque<Message> messages_;  // requests point to these messages
};

// --- modelled ---

struct Sent {
  int from = 0;
  std::string bytes;
  std::size_t depth = 0;  // length of the message chain that ends here
};

// Ranks of a dry run, all in one thread.
struct DryWorld {
  std::map<std::pair<int, int>, std::deque<Sent>> waiting;  // by sender and receiver
  struct Counted {
    RankMessage message;
    std::size_t depth;
  };
  std::vector<Counted> all;
  std::vector<std::vector<WorkByKind>> work;  // by depth and rank
};

class DryMessages final : public Messages {
 public:
  DryMessages(DryWorld& world, int rank) : world_(world), rank_(rank) {}

  std::size_t Send(int to, py::bytes data) override {
    Sent sent{rank_, data, depth_ + 1};
    world_.all.push_back({{rank_, to, sent.bytes.size()}, depth_ + 1});
    world_.waiting[{rank_, to}].push_back(std::move(sent));
    asked_.push_back({true, {}});
    return Add(kSend);
  }
  std::size_t Receive(int from, std::size_t /*most*/) override {
    asked_.push_back({false, {}});
    return Add(from);
  }
  void Work(WorkNote note) override {
    if (world_.work.size() <= depth_) world_.work.resize(depth_ + 1);
    auto& ranks = world_.work[depth_];
    if (ranks.size() <= static_cast<std::size_t>(rank_)) ranks.resize(rank_ + 1);
    ranks[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(note.kind)] += note.elements;
  }
  // Whether all of these have arrived. Receives from one rank complete in the order asked for.
  bool Arrived(const std::vector<std::size_t>& numbers) {
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      Asked& asked = asked_[i];
      if (asked.done) continue;
      auto& queue = world_.waiting[{PeerOf(i), rank_}];
      if (queue.empty()) continue;
      const auto before = std::views::iota(std::size_t{0}, i);
      if (std::ranges::any_of(before, [&](std::size_t other) {
            return !asked_[other].done && PeerOf(other) == PeerOf(i);
          }))
        continue;
      asked.bytes = std::move(queue.front().bytes);
      asked.depth = queue.front().depth;
      asked.done = true;
      queue.pop_front();
    }
    const bool all = std::ranges::all_of(numbers, [&](std::size_t i) { return asked_[i].done; });
    if (!all) return false;
    for (const std::size_t i : numbers) depth_ = std::max(depth_, asked_[i].depth);
    WaitedFor(numbers);
    return true;
  }

 private:
  std::span<const std::byte> ReceivedBy(std::size_t number) const override {
    return std::as_bytes(std::span(asked_[number].bytes));
  }

  struct Asked {
    bool done;
    std::string bytes;
    std::size_t depth = 0;
  };
  DryWorld& world_;
  int rank_;
  std::size_t depth_ = 0;
  std::vector<Asked> asked_;
};

// A rank's payload of this many bytes. If it is not coded, its elements are 0, 1, 2, ..., and each
// value tells the rank.
std::vector<std::byte> MadeUp(PayloadKind kind, std::size_t bytes, std::size_t rank) {
  std::vector<std::byte> payload(bytes);
  if (kind == PayloadKind::kDense || bytes % kSparseElementBytes != 0) return payload;
  const std::size_t elements = bytes / kSparseElementBytes;
  const float value = static_cast<float>(rank + 1);
  for (std::uint32_t i = 0; i < elements; ++i) {
    std::memcpy(payload.data() + i * sizeof i, &i, sizeof i);
    std::memcpy(payload.data() + (elements + i) * sizeof value, &value, sizeof value);
  }
  return payload;
}

// Joins the last round to the one before it if both are alike, as collectives in C++ give steps
// around a ring: a sum of equal times would differ from their product in its last digit.
void FoldLastRound(std::vector<Round>& rounds) {
  if (rounds.size() < 2) return;
  Round& before = rounds[rounds.size() - 2];
  const Round& last = rounds.back();
  const auto repeated = [&](std::uint64_t all, std::uint64_t one) {
    return all == before.repeat * one;
  };
  const bool same_work =
      std::ranges::equal(before.work, last.work, [](auto a, auto b) { return (a > 0) == (b > 0); });
  if (last.repeat != 1 || before.messages != last.messages || before.link != last.link ||
      !repeated(before.bytes, last.bytes) || !repeated(before.node_bytes, last.node_bytes) ||
      !repeated(before.within_bytes, last.within_bytes) ||
      !repeated(before.within_starts, last.within_starts) || !same_work) {
    return;
  }
  ++before.repeat;
  before.bytes += last.bytes;
  before.node_bytes += last.node_bytes;
  before.within_bytes += last.within_bytes;
  before.within_starts += last.within_starts;
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) before.work[kind] += last.work[kind];
  rounds.pop_back();
}

class PythonCollective final : public Collective, public HasMemory {
 public:
  PythonCollective(const PartClass& part, KeptObject object, PayloadKind payload, bool sums)
      : part_(part), object_(std::move(object)), payload_(payload), sums_(sums) {}

  PartMemory Memory() const override { return part_.MemoryOf(object_); }

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    LiveMessages messages(communicator, tag);
    const auto own = payload_ == PayloadKind::kDense
                         ? std::as_bytes(std::span<const float>(buffers.dense))
                         : buffers.own;
    const RunPlace place{communicator.rank(),
                         communicator.size(),
                         buffers.shape.elements,
                         payload_,
                         sums_,
                         MostBytes(buffers, communicator.size()),
                         buffers.element_bytes};
    CollectiveRun run(part_, *object_, place, own, messages);
    for (auto numbers = run.Start(); numbers; numbers = run.Resume()) {
      messages.Done(*numbers, co_await Complete(messages.Take(*numbers)));
    }
    if (const auto rest = messages.NotWaitedFor(false); !rest.empty()) {
      messages.Done(rest, co_await Complete(messages.Take(rest)));
    }
    run.TakeResult(buffers);
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    RoundPlan plan;
    plan.per_rank.resize(static_cast<std::size_t>(topology.ranks));
    if (sums_) {
      plan.sums = sizes.shape.elements;
      plan.dense_sums = true;
    }
    if (topology.ranks == 1) return plan;
    const DryWorld world = DryRun(sizes, topology);
    std::size_t deepest = world.work.empty() ? 0 : world.work.size() - 1;
    for (const auto& [message, depth] : world.all) deepest = std::max(deepest, depth);
    for (std::size_t depth = 0; depth <= deepest; ++depth) {
      std::vector<RankMessage> messages;
      for (const auto& counted : world.all) {
        if (counted.depth == depth) messages.push_back(counted.message);
      }
      Round work;
      work.messages = 0;
      if (depth < world.work.size()) {
        for (const WorkByKind& of_rank : world.work[depth]) {
          for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
            work.work[kind] = std::max(work.work[kind], of_rank[kind]);
          }
        }
      }
      if (!messages.empty()) {
        AddRound(messages, topology, plan).work = work.work;
        FoldLastRound(plan.rounds);
      } else if (work.work != WorkByKind{}) {
        plan.rounds.push_back(work);
      }
    }
    return plan;
  }

  // Why it cannot run on this many ranks: it waits for a message that never comes, or leaves one
  // unread.
  std::string WhyNotOn(const Topology& topology) const {
    try {
      const std::size_t elements = 64;
      const std::size_t bytes = payload_ == PayloadKind::kDense ? 4 * elements : 8 * 4;
      ExchangeSizes sizes =
          SizesOf(std::vector<std::uint64_t>(static_cast<std::size_t>(topology.ranks), bytes));
      sizes.shape = {elements, 4, 0};
      (void)DryRun(sizes, topology);
    } catch (const Error& error) {
      return std::string("fails in a dry run: ") + error.what();
    }
    return "";
  }

 private:
  // The largest message: the payloads of all ranks, and indices with a sum of all elements.
  static std::size_t MostBytes(const ExchangeBuffers& buffers, int ranks) {
    const std::size_t all = kSparseElementBytes * buffers.shape.elements + 64;
    return std::max(all, buffers.capacity_bytes * static_cast<std::size_t>(ranks)) +
           buffers.dense.size_bytes();
  }

  DryWorld DryRun(const ExchangeSizes& sizes, const Topology& topology) const {
    const RunningCall running(part_.source().shown, "run(comm, mine) of a dry run");
    DryWorld world;
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    std::deque<DryMessages> messages;
    std::deque<CollectiveRun> runs;
    std::vector<std::vector<std::byte>> payloads;
    std::vector<std::optional<std::vector<std::size_t>>> waits(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      messages.emplace_back(world, static_cast<int>(rank));
      const RunPlace place{
          static_cast<int>(rank), topology.ranks,     sizes.shape.elements, payload_, sums_,
          std::size_t{1} << 40,   kSparseElementBytes};
      const auto bytes = static_cast<std::size_t>(sizes.payload_bytes.at(rank));
      payloads.push_back(MadeUp(payload_, bytes, rank));
      runs.emplace_back(part_, *object_, place, payloads.back(), messages.back());
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) waits[rank] = runs[rank].Start();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        while (waits[rank] && messages[rank].Arrived(*waits[rank])) {
          waits[rank] = runs[rank].Resume();
          moved = true;
        }
      }
    }
    RequireEnded(world, messages, waits);
    if (payload_ == PayloadKind::kSparse && !sums_) {
      for (CollectiveRun& run : runs) run.RequirePayloads(payloads);
    }
    return world;
  }

  void RequireEnded(const DryWorld& world, std::deque<DryMessages>& messages,
                    const std::vector<std::optional<std::vector<std::size_t>>>& waits) const {
    std::string stuck;
    for (std::size_t rank = 0; rank < waits.size(); ++rank) {
      if (!waits[rank]) continue;
      for (const std::size_t number : *waits[rank]) {
        const int peer = messages[rank].PeerOf(number);
        if (peer < 0) continue;
        stuck += (stuck.empty() ? "rank " : ", rank ") + std::to_string(rank) + " for rank " +
                 std::to_string(peer);
        break;
      }
    }
    if (!stuck.empty()) {
      part_.Refuse("run(comm, mine) on " + std::to_string(waits.size()) +
                   " ranks waits for ever: " + stuck + "; expected a send for each receive");
    }
    for (const auto& [between, queue] : world.waiting) {
      if (queue.empty()) continue;
      part_.Refuse("run(comm, mine) on " + std::to_string(waits.size()) +
                   " ranks: " + std::to_string(queue.size()) + " messages from rank " +
                   std::to_string(between.first) + " to rank " + std::to_string(between.second) +
                   " were never received; expected a receive for each send");
    }
  }

  const PartClass& part_;
  KeptObject object_;
  PayloadKind payload_;
  bool sums_;
};

CollectiveDescriptor DescribeCollective(PartClass& part) {
  const std::string& says = part.Text("payload");
  if (says != "sparse" && says != "dense") {
    part.Refuse("the class says payload = \"" + says + "\"; expected \"sparse\" or \"dense\"");
  }
  const PayloadKind payload = says == "dense" ? PayloadKind::kDense : PayloadKind::kSparse;
  const bool sums = part.Flag("sums", payload == PayloadKind::kDense);
  if (!sums && payload == PayloadKind::kDense) {
    part.Refuse("sums = False with payload = \"dense\"; expected a run that returns the sum");
  }
  const bool sums_sparse = sums && payload == PayloadKind::kSparse;
  return {.name = part.source().name,
          .source = part.Text("paper"),
          .revision = 1,
          .payload = payload,
          .make = [&part, payload,
                   sums_sparse](const Options& resolved) -> std::unique_ptr<Collective> {
            return std::make_unique<PythonCollective>(part, part.Make(resolved), payload,
                                                      sums_sparse);
          },
          .host_memory = true,
          .options = part.options(),
          .traits =
              [sums_sparse](const Options&) {
                CollectiveTraits traits;
                traits.sums = sums_sparse;
                return traits;
              },
          .refuses =
              [&part, payload, sums_sparse](const Options& resolved, const Topology& topology) {
                return PythonCollective(part, part.Make(resolved), payload, sums_sparse)
                    .WhyNotOn(topology);
              },
          .summary = "written in Python",
          .deviations = part.Text("deviations")};
}

}  // namespace

const CollectiveDescriptor& CollectiveOf(PartSource source) {
  return KeepPart(std::move(source), {"run(comm, mine)"}, &DescribeCollective);
}

}  // namespace sparfuse::python
