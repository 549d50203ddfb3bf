// Holds the explicit table of core's collectives, makes collectives from descriptors, and runs
// small ones for control, set-up and checks. Those send few bytes, so few rounds matter more.
#include "core/collective/collective.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/block_allreduce.hpp"

namespace sparfuse {

std::unique_ptr<Collective> MakeCollective(const CollectiveDescriptor& descriptor,
                                           const Options& given) {
  const Options resolved =
      ResolveOptions("collective " + std::string(descriptor.name), descriptor.options, given);
  std::unique_ptr<Collective> made = descriptor.make(resolved);
  made->descriptor_ = &descriptor;
  made->traits_ = descriptor.TraitsOf(resolved);
  return made;
}

std::span<const CollectiveDescriptor> CoreCollectives() {
  static const std::array kCollectives{RingAllReduce(),          NativeAllReduce(),
                                       SparseAllGather(),        NcclAllGather(),
                                       SharedIndicesAllReduce(), ParameterServer(),
                                       Int8BlocksAllReduce(),    Int4BlocksAllReduce(),
                                       Fp8BlocksAllReduce(),     ExponentAllReduceDescriptor()};
  return kCollectives;
}

std::shared_ptr<const Collective> CoreCollective(std::string_view name) {
  static const auto kMade = [] {
    std::map<std::string_view, std::shared_ptr<const Collective>> made;
    for (const CollectiveDescriptor& each : CoreCollectives()) {
      made[each.name] = MakeCollective(each);
    }
    return made;
  }();
  const auto found = kMade.find(name);
  if (found == kMade.end()) {
    SPARFUSE_THROW(kInternal, "core has no collective named \"", name, "\"");
  }
  return found->second;
}

ExchangeSizes ExpectedSizes(const Collective& collective, const ExchangeShape& shape,
                            std::vector<std::uint64_t> payload_bytes, const OverlapModel& overlap,
                            const Topology& topology) {
  ExchangeSizes sizes{shape, std::move(payload_bytes), {}};
  collective.Expect(overlap, topology, sizes);
  return sizes;
}

namespace {

bool IsGatheredInTwoLevels(const CollectiveDescriptor& which, AllGatherBy gathered_by) {
  return which.of_library && which.payload == PayloadKind::kSparse &&
         gathered_by == AllGatherBy::kTwoLevel;
}

void CheckBytes(const char* what, const Request& request, std::size_t expected) {
  if (request.bytes() == expected) return;
  SPARFUSE_THROW(kComm, what, ": ", request.bytes(), " bytes from rank ", request.peer(),
                 ": expected ", expected);
}

}  // namespace

RoundPlan ModelledRounds(const Collective& collective, const ExchangeSizes& sizes,
                         const Topology& topology, AllGatherBy gathered_by) {
  constexpr std::uint64_t kWord = 4;
  const CollectiveDescriptor& which = collective.descriptor();
  if (IsGatheredInTwoLevels(which, gathered_by)) {
    return TwoLevelAllGatherRounds(sizes.payload_bytes, topology);
  }
  RoundPlan plan = collective.Rounds(sizes, topology);
  if (!which.sums_on_host) return plan;
  Round copies;
  copies.messages = 0;
  copies[Work::kToHost] = std::ranges::max(sizes.payload_bytes) / kWord;
  const std::uint64_t words_each = plan.dense_sums ? 1 : kSparseElementBytes / kWord;
  copies[Work::kToDevice] = words_each * plan.sums.value_or(0);
  plan.rounds.push_back(copies);
  plan.on_host = true;
  return plan;
}

bool AddModelledEvenRounds(const Collective& collective, std::uint64_t payload_bytes,
                           const Topology& topology, AllGatherBy gathered_by, RoundPlan& plan) {
  const CollectiveDescriptor& which = collective.descriptor();
  if (which.sums_on_host) return false;
  if (IsGatheredInTwoLevels(which, gathered_by)) {
    AddEvenTwoLevelAllGatherRounds(payload_bytes, topology, plan.rounds);
    return true;
  }
  return collective.AddEvenRounds(payload_bytes, topology, plan.rounds);
}

Task AllGather(Communicator& group, std::span<const std::byte> own, std::span<std::byte> out,
               int tag) {
  Communicator& communicator = group.host();
  const int ranks = communicator.size();
  if (out.size() != own.size() * static_cast<std::size_t>(ranks)) {
    SPARFUSE_THROW(kInternal, "all-gather: room for ", out.size(), " bytes: expected ", ranks,
                   " blocks of ", own.size());
  }
  const auto block = [&](int rank) {
    return out.subspan(static_cast<std::size_t>(rank) * own.size(), own.size());
  };
  std::copy(own.begin(), own.end(), block(communicator.rank()).begin());
  std::vector<std::unique_ptr<Request>> requests;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != communicator.rank()) requests.push_back(communicator.Irecv(peer, tag, block(peer)));
  }
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != communicator.rank()) requests.push_back(communicator.Isend(peer, tag, own));
  }
  requests = co_await Complete(std::move(requests));
  for (const auto& request : requests) CheckBytes("all-gather", *request, own.size());
}

Task Barrier(Communicator& communicator, int tag) { return AllGather(communicator, {}, {}, tag); }

Task AllReduceMax(Communicator& communicator, std::span<std::int64_t> values, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<std::int64_t> all(ranks * values.size());
  co_await AllGather(communicator, std::as_bytes(values), std::as_writable_bytes(std::span(all)),
                     tag);
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& value = values[i % values.size()];
    value = std::max(value, all[i]);
  }
}

RoundPlan AllReduceMaxRounds(std::size_t values, const Topology& topology) {
  RoundPlan plan;
  const auto peers = static_cast<std::uint64_t>(topology.ranks - 1);
  const std::uint64_t bytes = peers * values * sizeof(std::int64_t);
  plan.per_rank.assign(static_cast<std::size_t>(topology.ranks), {peers, peers, bytes, bytes});
  if (peers > 0) {
    plan.rounds.push_back({.repeat = 1,
                           .messages = static_cast<std::uint32_t>(peers),
                           .bytes = bytes,
                           .link = SlowestLink(topology)});
  }
  return plan;
}

Task Broadcast(Communicator& group, std::span<std::byte> data, int root, int tag) {
  Communicator& communicator = group.host();
  const int ranks = communicator.size();
  // Rank numbers are relative to the root. A rank receives from the rank that lacks its lowest set
  // bit, and sends to the ranks that differ in a bit below it.
  const int relative = (communicator.rank() - root + ranks) % ranks;
  int bit = 1;
  while (bit < ranks && (relative & bit) == 0) bit <<= 1;
  if (relative != 0) {
    const int parent = (relative - bit + root) % ranks;
    const auto received = co_await Complete(communicator.Irecv(parent, tag, data));
    CheckBytes("broadcast", *received[0], data.size());
  }
  std::vector<std::unique_ptr<Request>> sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (relative + bit < ranks) {
      sends.push_back(communicator.Isend((relative + bit + root) % ranks, tag, data));
    }
  }
  co_await Complete(std::move(sends));
}

}  // namespace sparfuse
