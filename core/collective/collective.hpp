// Collectives turn what all ranks send for one unit into the sum that every rank applies.
//
// A collective is described twice, next to one another in one file: `Run` does it over a
// Communicator, `Rounds` says what messages and work that takes. Where sizes depend on values, a
// run notes the few that decide (ExchangeBuffers::seen), a model expects them (`Expect`), and
// `Rounds` takes both. The test CollectiveRounds checks, for every collective, that the counted
// messages and bytes of a real run equal the rounds fed with its sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/overlap.hpp"
#include "core/collective/rounds.hpp"
#include "core/transport/task.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

enum class PayloadKind : std::uint8_t { kDense, kSparse };

// How exactly sum over ranks of residuals + P * applied = sum of inputs holds from step to step.
enum class Conservation : std::uint8_t {
  kExact,    // but for the rounding of what is summed
  kRounded,  // the same; what comes back has been added to other values
  kLost,     // it does not: the published form loses some
};

// What a composition must fit.
struct CollectiveTraits {
  // It gives sums, not a payload a rank: takes neither coded payloads nor whole tensors.
  bool sums = false;
  // What is sent may come back: takes feedback "residual".
  bool drops = false;
  // Every rank sends as many elements; the same ones: takes exact counts; shared indices.
  bool equal_counts = false;
  bool same_indices = false;
  // It chooses by itself what it sends of what has accumulated: nothing is selected before.
  bool selects = false;
  // It treats the tensors of a range each by its shape (ExchangeShape::tensors).
  bool by_tensor = false;
  // Its sizes differ from step to step: one modelled step does not stand for all.
  bool periodic = false;
  // Payloads of ranks that share memory are read where each rank has its own: it needs no room for
  // them (ExchangeBuffers::own_owner).
  bool reads_in_place = false;
  Conservation mass = Conservation::kExact;
};

struct CollectiveDescriptor;

// A collective with its options. Stateless: used by many ranks, ranges and threads at once.
class Collective {
 public:
  virtual ~Collective() = default;

  // What this rank remembers of one range. Null for a collective that remembers nothing.
  virtual std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& /*shape*/,
                                                     const Topology& /*topology*/) const {
    return nullptr;
  }
  // `tag` is a block of 16 tags that this exchange alone uses on `communicator`. The collective and
  // `buffers` outlive the task.
  virtual Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const = 0;
  // Sets sizes.seen to what a run with sizes.shape and sizes.payload_bytes is expected to note.
  virtual void Expect(const OverlapModel& /*overlap*/, const Topology& /*topology*/,
                      ExchangeSizes& /*sizes*/) const {}
  virtual RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const = 0;

  const CollectiveDescriptor& descriptor() const noexcept { return *descriptor_; }
  const CollectiveTraits& traits() const noexcept { return traits_; }

 private:
  friend std::unique_ptr<Collective> MakeCollective(const CollectiveDescriptor& descriptor,
                                                    const Options& given);
  const CollectiveDescriptor* descriptor_ = nullptr;
  CollectiveTraits traits_;
};

struct CollectiveDescriptor {
  std::string_view name;
  std::string_view source;
  int revision;
  PayloadKind payload;
  std::function<std::unique_ptr<Collective>(const Options& resolved)> make;

  // The backend's own: counted by formula, a sparse one by the payloads, of which it gives one a
  // rank; refused by `shaped`.
  bool native = false;
  // Of a native one: the backends (Communicator::backend) that have it.
  std::span<const std::string_view> backends = {};
  // It stands for what a library does as it chooses: on a declared cluster it takes what the
  // cluster's `all_reduce` or `all_gather` says.
  bool of_library = false;
  // It reads and writes payloads in host memory: whoever runs it gives it communicator.host(), and
  // stages what lies on a device.
  bool host_memory = false;
  // Its published system sums in host memory, so that on devices all that it takes and gives is
  // copied, for models of clusters of devices. This project's engine stages more (host_memory).
  bool sums_on_host = false;
  std::vector<OptionSpec> options = {};
  // With these options; null: CollectiveTraits().
  std::function<CollectiveTraits(const Options& resolved)> traits = nullptr;
  // Why it cannot run with these options on these ranks: "needs a power of two ranks", or "".
  // Null: it always can.
  std::function<std::string(const Options& resolved, const Topology& topology)> refuses = nullptr;
  // Why nothing but a model runs it with these options, or "". Null: it always runs.
  std::string (*only_modelled)(const Options& resolved) = nullptr;
  std::string_view summary = {};
  std::string_view deviations = {};  // "" or what differs from the source, one sentence each

  CollectiveTraits TraitsOf(const Options& resolved) const {
    return traits == nullptr ? CollectiveTraits() : traits(resolved);
  }
  std::string WhyNot(const Options& resolved, const Topology& topology) const {
    return refuses == nullptr ? std::string() : refuses(resolved, topology);
  }
  std::string WhyOnlyModelled(const Options& resolved) const {
    return only_modelled == nullptr ? std::string() : only_modelled(resolved);
  }
};

// Throws Error{kConfig} as ResolveOptions does.
std::unique_ptr<Collective> MakeCollective(const CollectiveDescriptor& descriptor,
                                           const Options& given = {});

// Those that no paper owns: "ring-allreduce", "native-allreduce", "sparse-allgather",
// "nccl-allgather", "shared-indices-allreduce", "parameter-server".
std::span<const CollectiveDescriptor> CoreCollectives();
// One of them with its default options, made once: it lives as long as the program.
std::shared_ptr<const Collective> CoreCollective(std::string_view name);

// The halves of "ring-allreduce", each a dense collective for itself: of the buffer rank j reduces,
// or gives, shard j (algorithms.hpp). Methods do not name them; strategies ask for their patterns.
const Collective& RingReduceScatter();
const Collective& RingAllGather();
// The same ring and its halves with floats as halves of a word on the way (f16_ring.cpp).
const Collective& F16AllReduce();
const Collective& F16ReduceScatter();
const Collective& F16AllGather();
// What each rank selects of part j (ExchangeBuffers::part_begins) goes to rank j, uncoded; who owns
// no part has no payloads. Ranks are counted from shape.owner on, around.
const Collective& SparseReduceScatter();
// What rank shape.owner gives goes to all, down a tree.
const Collective& SparseBroadcast();

// The sizes of an exchange of which every rank sends `payload_bytes`, as a model expects them.
ExchangeSizes ExpectedSizes(const Collective& collective, const ExchangeShape& shape,
                            std::vector<std::uint64_t> payload_bytes, const OverlapModel& overlap,
                            const Topology& topology);
// collective.Rounds, or those of the cluster's library where the collective stands for it; and the
// copies between host and device around them where it sums on the host.
RoundPlan ModelledRounds(const Collective& collective, const ExchangeSizes& sizes,
                         const Topology& topology, AllGatherBy gathered_by);

// Small collectives for control, set-up and checks follow. They work on host memory, over
// communicator.host().

// Element-wise max of a few integers over all ranks, all-to-all in one round. values: equal length
// on all ranks, overwritten with the result.
Task AllReduceMax(Communicator& communicator, std::span<std::int64_t> values, int tag);
RoundPlan AllReduceMaxRounds(std::size_t values, const Topology& topology);

// Binomial-tree broadcast from `root`, and an all-to-one-round barrier.
Task Broadcast(Communicator& communicator, std::span<std::byte> data, int root, int tag);
Task Barrier(Communicator& communicator, int tag);
// Gathers equal-sized blocks to every rank. out: size() * own.size() bytes, rank order.
Task AllGather(Communicator& communicator, std::span<const std::byte> own, std::span<std::byte> out,
               int tag);

}  // namespace sparfuse
