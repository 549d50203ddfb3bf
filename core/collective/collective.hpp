// Collectives turn the payloads of all ranks for one unit into the sum that every rank applies.
//
// A collective is described twice, next to one another in one file: `Run` does it over a
// Communicator, `Rounds` says what messages that takes. The test CollectiveRounds checks, for every
// collective, that the counted messages and bytes of a real run equal the rounds fed with its
// sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/payload/payload.hpp"
#include "core/transport/task.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// A phase in which every rank does the same kind of step `repeat` times, one after another.
struct Round {
  std::uint32_t repeat = 1;
  std::uint32_t messages = 1;  // sent by the busiest rank in one repetition
  std::uint64_t bytes = 0;     // sum over the repetitions of max over ranks of bytes in or out
  LinkClass link = LinkClass::kInterNode;
  // Floats added to memory by the busiest rank, all repetitions.
  std::uint64_t reduced_elements = 0;
};

struct RoundPlan {
  std::vector<Round> rounds;
  std::vector<Traffic> per_rank;  // exact totals, [ranks]
};

// The buffers of an exchange. Which members are used follows from the collective's `payload`.
struct ExchangeBuffers {
  std::span<float> dense;          // [n], in place: own values in, sum over ranks out
  std::span<const std::byte> own;  // this rank's sparse payload
  std::span<std::byte> gathered;   // room for size() * capacity_bytes
  std::size_t capacity_bytes = 0;  // most that one rank may send; equal on all ranks
  // Payloads and the capacity are multiples of this; 1 where they are coded (payload_coding.hpp).
  std::size_t element_bytes = kSparseElementBytes;
  std::vector<std::span<const std::byte>> by_rank;  // out: payloads in rank order, own included
  // out, of a collective that drops: what this rank takes back into its residual, an uncoded sparse
  // payload. Values here and in by_rank, which may then be one payload of sums, may come from
  // several ranks: sum of by_rank + sum over ranks of `returned` = sum over ranks of `own`.
  // Empty on entry; collectives that drop nothing leave it so.
  std::vector<std::byte> returned;
};

enum class PayloadKind : std::uint8_t { kDense, kSparse };

struct Collective {
  std::string_view name;
  std::string_view source;
  int revision;
  PayloadKind payload;
  // The backend's own: counted by formula, a sparse one by the payloads in by_rank, of which it
  // gives one a rank; refused by `shaped`.
  bool native;

  // `tag` is a block of 16 tags that this exchange alone uses on `communicator`.
  Task (*run)(Communicator& communicator, ExchangeBuffers& buffers, int tag);
  // sizes[r]: bytes of rank r's payload (dense: the whole buffer, equal on all ranks).
  RoundPlan (*rounds)(std::span<const std::uint64_t> sizes, const Topology& topology);

  // Of a native one: the backends (Communicator::backend) that have it.
  std::span<const std::string_view> backends = {};
  // It reads and writes payloads in host memory: whoever runs it gives it communicator.host(), and
  // stages what lies on a device.
  bool host_memory = false;
};

// "ring-allreduce", "native-allreduce", "sparse-allgather", "nccl-allgather".
std::span<const Collective> Collectives();
// Throws Error{kConfig} naming the nearest known name.
const Collective& FindCollective(std::string_view name);

// Those that follow work on host memory, over communicator.host().

// Control-plane reduction: element-wise max of a few integers over all ranks, all-to-all in one
// round. values: equal length on all ranks, overwritten with the result.
Task AllReduceMax(Communicator& communicator, std::span<std::int64_t> values, int tag);
RoundPlan AllReduceMaxRounds(std::size_t values, const Topology& topology);

// Binomial-tree broadcast from `root`, and an all-to-one-round barrier; for set-up and checks.
Task Broadcast(Communicator& communicator, std::span<std::byte> data, int root, int tag);
Task Barrier(Communicator& communicator, int tag);
// Gathers equal-sized blocks to every rank. out: size() * own.size() bytes, rank order.
Task AllGather(Communicator& communicator, std::span<const std::byte> own, std::span<std::byte> out,
               int tag);

}  // namespace sparfuse
