// Runs an exchange of Zen on one rank, and describes its messages and work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "baselines/zen/hash_lists.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/sums.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// Holds the sums of all servers on one rank: its own, and the received ones. Heads (hash_lists.hpp)
// lie in buffers.kept. Payloads fill buffers.gathered one after another, in the order in which they
// are placed; over all servers they have no more elements than all ranks have sent.
class ServerSums {
 public:
  // Both arguments must outlive it. Grows buffers.kept.
  ServerSums(const Servers& servers, ExchangeBuffers& buffers);

  // Makes head and payload of the sums over a server's positions, and overwrites buffers.gathered.
  // Returns the head.
  const SumsHead& Write(std::size_t server, const RangeSums& sums, FormChoice choice);

  // Memory for a head to be received. Once `bytes` of it are there, Place makes room for the body.
  std::span<std::byte> HeadRoom(std::size_t server) const;
  void Place(std::size_t server, std::size_t bytes);
  void CheckBody(std::size_t server, std::size_t bytes) const;

  // Head and body of a server whose sums are written or placed.
  std::span<const std::byte> Head(std::size_t server) const { return sums_[server].head; }
  std::span<std::byte> Body(std::size_t server) const {
    const Sums& sums = sums_[server];
    return sums.payload.last(BodyBytes(sums.read.form, sums.read.count));
  }

  // Call when all sums are there: completes the indices, and appends the payloads in the order of
  // servers.
  void DecodeInto(std::vector<std::span<const std::byte>>& payloads) const;

 private:
  struct Sums {
    std::size_t list = 0;        // elements that are the server's
    std::size_t head_begin = 0;  // in `kept`
    bool complete = false;       // the payload has its indices, too
    std::span<const std::byte> head;
    SumsHead read;
    std::span<std::byte> payload;
  };
  std::span<std::byte> RoomFor(std::size_t count);

  const Servers& servers_;
  ExchangeBuffers& buffers_;
  std::vector<Sums> sums_;
  std::size_t placed_ = 0;  // bytes of `gathered` in use
};

struct ZenOptions {
  ZenBalance balance = ZenBalance::kHash;
  FormChoice form = FormChoice::kAuto;
  bool node_first = false;
  bool hierarchical = false;  // parts are found by hierarchical hashing (hash_lists.hpp)
  double slots_per_element = 2;
  double serial_part = 0.1;
  int probes = 3;
};

// The state of one range: the lists, and memory that is reused from step to step.
struct ZenState final : CollectiveState {
  ZenState(const ZenOptions& options, std::size_t ranks)
      : lists(options.balance == ZenBalance::kHash ? SharedHashLists::Of(ranks) : nullptr) {}

  std::shared_ptr<SharedHashLists> lists;  // null: contiguous ranges
  std::vector<std::uint32_t> part_of;
  std::vector<std::uint32_t> slots;
  Parts parts;
  SparseSums node_sum;
  SparseSums merged;
  RangeSums sums;
};

// As Collective::Run, on at least two ranks. All arguments outlive the task.
Task RunZen(const ZenOptions& options, Communicator& communicator, ExchangeBuffers& buffers,
            ZenState& state, int tag);

// As Collective::Rounds, for any number of ranks.
RoundPlan ZenRounds(const ZenOptions& options, const ExchangeSizes& sizes,
                    const Topology& topology);

}  // namespace sparfuse::baselines
