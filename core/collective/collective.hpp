// Describes collectives, which turn all ranks' payloads of one unit into the sum that every rank
// applies.
//
// A collective has two descriptions, next to one another in one file: `Run` executes it over a
// Communicator, `Rounds` lists the messages and the work of a run. Some sizes depend on values. A
// run notes the few that decide (ExchangeBuffers::seen), a model estimates them (`Expect`), and
// `Rounds` accepts both. The test CollectiveRounds checks, for every collective, that the counted
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

// How exactly the equation "sum over ranks of residuals + P * applied = sum of inputs" holds from
// step to step.
enum class Conservation : std::uint8_t {
  kExact,    // except for the rounding of the sum
  kRounded,  // as kExact; returned values were rounded when added to others
  kLost,     // it does not hold: the published form loses some values
};

// The requirements that a composition must meet.
struct CollectiveTraits {
  // The collective yields sums, not one payload per rank. It accepts neither coded payloads nor
  // whole tensors.
  bool sums = false;
  // The collective may return a part of the payload to the sender. It requires feedback "residual".
  bool drops = false;
  // equal_counts: all ranks send equally many elements, so it requires exact counts. same_indices:
  // all ranks send the same elements, so it requires shared indices.
  bool equal_counts = false;
  bool same_indices = false;
  // The collective itself selects elements from the accumulated gradient. No sparsifier runs
  // before.
  bool selects = false;
  // The options of a collective that selects say how much it sends, and no density. It then needs
  // no sparsifier, which others need for their counts.
  bool sizes_itself = false;
  // The collective treats each tensor of a range by its shape (ExchangeShape::tensors).
  bool by_tensor = false;
  // The sizes differ from step to step: one modelled step does not represent all steps.
  bool periodic = false;
  // The first step sends all elements: later ones represent the steps.
  bool begins_dense = false;
  // If ranks share memory, the collective reads each payload in its owner's memory and needs no
  // room for payloads (ExchangeBuffers::own_owner).
  bool reads_in_place = false;
  Conservation mass = Conservation::kExact;
};

struct CollectiveDescriptor;

// A collective with its options. It has no state: many ranks, ranges and threads use it at once.
class Collective {
 public:
  virtual ~Collective() = default;

  // Makes this rank's state for one range. Null for a collective without state.
  virtual std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& /*shape*/,
                                                     const Topology& /*topology*/) const {
    return nullptr;
  }
  // `tag` is a block of 16 tags that this exchange alone uses on `communicator`. The collective and
  // `buffers` outlive the task.
  virtual Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const = 0;
  // Sets sizes.seen to the sizes that a run with sizes.shape and sizes.payload_bytes is expected to
  // note.
  virtual void Expect(const OverlapModel& /*overlap*/, const Topology& /*topology*/,
                      ExchangeSizes& /*sizes*/) const {}
  virtual RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const = 0;
  // For collectives that depend only on the lengths of payloads: appends to `rounds` the rounds of
  // Rounds for equal payloads, in a time independent of the number of ranks, since planners ask for
  // thousands of sizes. More bytes never decrease a field of a round. The others return false.
  virtual bool AddEvenRounds(std::uint64_t /*payload_bytes*/, const Topology& /*topology*/,
                             std::vector<Round>& /*rounds*/) const {
    return false;
  }

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

  // The backend itself implements the collective; backend `shaped` refuses it. Its traffic is
  // counted by formula. A sparse one yields one payload per rank, and its traffic is counted from
  // these.
  bool native = false;
  // The backends (Communicator::backend) that have a native collective.
  std::span<const std::string_view> backends = {};
  // The collective represents the algorithm that a library chooses. On a declared cluster, the
  // cluster's `all_reduce` or `all_gather` names that algorithm.
  bool of_library = false;
  // The collective reads and writes payloads in host memory. The caller passes communicator.host()
  // and stages buffers that lie on a device.
  bool host_memory = false;
  // The published system sums in host memory. Models of clusters of devices therefore count copies
  // of all its inputs and results. This project's engine stages more (host_memory).
  bool sums_on_host = false;
  std::vector<OptionSpec> options = {};
  // The traits with these options. Null: CollectiveTraits().
  std::function<CollectiveTraits(const Options& resolved)> traits = nullptr;
  // Says why the collective cannot run with these options on these ranks: "needs a power of two
  // ranks", or "". Null: it always can.
  std::function<std::string(const Options& resolved, const Topology& topology)> refuses = nullptr;
  // Says why only a model can run the collective with these options, or "". Null: engines can
  // always run it.
  std::string (*only_modelled)(const Options& resolved) = nullptr;
  std::string_view summary = {};
  std::string_view deviations = {};  // differences from the source, a sentence each, or ""

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

// The collectives that no paper owns: "ring-allreduce", "native-allreduce", "sparse-allgather",
// "nccl-allgather", "shared-indices-allreduce", "parameter-server".
std::span<const CollectiveDescriptor> CoreCollectives();
// Returns one of them with its default options. It is made once and lives as long as the program.
std::shared_ptr<const Collective> CoreCollective(std::string_view name);

// The halves of "ring-allreduce", each a dense collective of its own: rank j reduces, or provides,
// shard j of the buffer (algorithms.hpp). Methods do not name them; strategies request them for
// their patterns.
const Collective& RingReduceScatter();
const Collective& RingAllGather();
// The same ring and its halves. Floats travel as f16 values (f16_ring.cpp).
const Collective& F16AllReduce();
const Collective& F16ReduceScatter();
const Collective& F16AllGather();
// Each rank sends its selection from part j (ExchangeBuffers::part_begins), uncoded, to rank j. A
// rank that owns no part has no payloads. Ranks are counted from shape.owner on, modulo the group's
// size.
const Collective& SparseReduceScatter();
// Rank shape.owner sends its payload to all ranks, down a tree.
const Collective& SparseBroadcast();

// The sizes that a model expects of an exchange in which rank r sends payload_bytes[r].
ExchangeSizes ExpectedSizes(const Collective& collective, const ExchangeShape& shape,
                            std::vector<std::uint64_t> payload_bytes, const OverlapModel& overlap,
                            const Topology& topology);
// Returns collective.Rounds, or the rounds of the cluster's library if the collective represents
// it. If the collective sums on the host, adds the copies between host and device around them.
RoundPlan ModelledRounds(const Collective& collective, const ExchangeSizes& sizes,
                         const Topology& topology, AllGatherBy gathered_by);
// Appends to plan.rounds the rounds of ModelledRounds for equal payloads (AddEvenRounds). Returns
// false, and does nothing, if the collective has no even rounds or sums on the host.
bool AddModelledEvenRounds(const Collective& collective, std::uint64_t payload_bytes,
                           const Topology& topology, AllGatherBy gathered_by, RoundPlan& plan);

// The following small collectives serve control, set-up and checks. They work on host memory, over
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
