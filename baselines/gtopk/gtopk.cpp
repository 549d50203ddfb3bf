#include "baselines/gtopk/gtopk.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kGtopkName = "gtopk";

// --- wire form ---

// The wire form of k elements: a payload, or the form of the authors' code, which sends indices and
// then values, as doubles.
class Wire {
 public:
  explicit Wire(bool doubles) : doubles_(doubles) {}

  std::size_t Bytes(std::size_t count) const {
    return count * (doubles_ ? 2 * sizeof(double) : kSparseElementBytes);
  }
  // Precondition: to.size() == Bytes(count of `from`).
  void Write(const SparsePayload& from, std::span<std::byte> to) const {
    if (doubles_) {
      Convert<double>(from.indices, to.first(to.size() / 2));
      Convert<double>(from.values, to.subspan(to.size() / 2));
    } else {
      Convert<std::uint32_t>(from.indices, to.first(to.size() / 2));
      Convert<float>(from.values, to.subspan(to.size() / 2));
    }
  }
  // Returns a view of `from`, or of `room` if the elements must be converted.
  SparsePayload Read(std::span<const std::byte> from, SparseSums& room) const {
    if (!doubles_) return ViewSparsePayload(from);
    const std::size_t count = from.size() / Bytes(1);
    const auto* const words = reinterpret_cast<const double*>(from.data());
    room.indices.assign(words, words + count);
    room.values.assign(words + count, words + 2 * count);
    return room.view();
  }

 private:
  template <class To, class From>
  static void Convert(std::span<const From> from, std::span<std::byte> to) {
    std::copy(from.begin(), from.end(), reinterpret_cast<To*>(to.data()));
  }

  bool doubles_;
};

// --- a rank's work ---

// Appends to `out` the elements of `from` whose index is in `indices`, or those whose index is not.
// Both lists are in increasing order.
void AppendWhere(const SparsePayload& from, std::span<const std::uint32_t> indices, bool there,
                 SparseSums& out) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < from.indices.size(); ++i) {
    while (at < indices.size() && indices[at] < from.indices[i]) ++at;
    const bool found = at < indices.size() && indices[at] == from.indices[i];
    if (found == there) out.Add(from.indices[i], from.values[i]);
  }
}

// A rank's state in the tree: the k elements that it keeps, and the dropped ones.
class Kept {
 public:
  Kept(const SparsePayload& own, bool remember_dropped)
      : own_(own), kept_(own), remember_dropped_(remember_dropped) {}

  const SparsePayload& elements() const { return kept_; }

  void Merge(const SparsePayload& received) {
    sparfuse::Merge(kept_, received, merged_);
    SparseSums rest;
    KeepLargest(merged_.view(), own_.indices.size(), largest_, rest);
    kept_ = largest_.view();
    if (remember_dropped_) dropped_.push_back(std::move(rest));
  }

  // Writes the elements that return to this rank's residual from a step with this `result`.
  void WriteReturned(const SparsePayload& result, std::vector<std::byte>& out) const {
    SparseSums returned;
    AppendWhere(own_, result.indices, false, returned);
    SparseSums of_one;
    SparseSums both;
    for (const SparseSums& dropped : dropped_) {
      of_one.Clear();
      AppendWhere(dropped.view(), result.indices, true, of_one);
      sparfuse::Merge(returned.view(), of_one.view(), both);
      std::swap(returned, both);
    }
    returned.WriteTo(out);
  }

 private:
  SparsePayload own_;
  SparsePayload kept_;  // of own_ or of largest_
  bool remember_dropped_;
  SparseSums merged_;
  SparseSums largest_;
  std::vector<SparseSums> dropped_;  // of each round
};

// --- the collective ---

class Gtopk final : public Collective {
 public:
  Gtopk(bool compat, bool doubles) : compat_(compat), wire_(doubles) {}
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override;
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override;

 private:
  bool compat_;
  Wire wire_;
};

void CheckEqualCount(std::size_t bytes, std::size_t expected, int from) {
  if (bytes == expected) return;
  SPARFUSE_THROW(kComm, std::string(kGtopkName) + ": " + std::to_string(bytes) +
                            " bytes from rank " + std::to_string(from) + ": expected " +
                            std::to_string(expected) +
                            " as here; ranks have selected different counts");
}

Task Gtopk::Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const {
  const int ranks = communicator.size();
  const int rank = communicator.rank();
  CheckGatherBuffers(kGtopkName, buffers, static_cast<std::size_t>(ranks));
  buffers.payloads.assign(1, buffers.own);
  if (ranks == 1) co_return;

  const std::size_t result_bytes = buffers.own.size();
  const std::size_t message_bytes = wire_.Bytes(result_bytes / kSparseElementBytes);
  // Doubles come first: they must be aligned to their size.
  const std::span<std::byte> room = buffers.Keep(message_bytes + result_bytes);
  const std::span<std::byte> message = room.first(message_bytes);
  const std::span<std::byte> result = room.subspan(message_bytes);
  // With two ranks or more, there is room for a message of one element even as doubles.
  const std::span<std::byte> received = buffers.gathered.first(2 * buffers.capacity_bytes);

  Kept kept(ViewSparsePayload(buffers.own), !compat_);
  SparseSums converted;
  for (int distance = 1; distance < ranks; distance *= 2) {
    if ((rank & distance) != 0) {
      co_await OffThread(buffers, [&] { wire_.Write(kept.elements(), message); });
      co_await Complete(communicator.Isend(rank - distance, tag, message));
      break;
    }
    const int partner = rank + distance;
    if (partner >= ranks) continue;
    const auto requests = co_await Complete(communicator.Irecv(partner, tag, received));
    const std::size_t bytes = requests[0]->bytes();
    CheckEqualCount(bytes, message_bytes, partner);
    co_await OffThread(buffers, [&] { kept.Merge(wire_.Read(received.first(bytes), converted)); });
  }
  if (rank == 0) {
    co_await OffThread(buffers, [&] { wire_.Write(kept.elements(), message); });
  }
  co_await Broadcast(communicator, message, 0, tag);
  co_await OffThread(buffers, [&] {
    Wire(false).Write(wire_.Read(message, converted), result);
    kept.WriteReturned(ViewSparsePayload(result), buffers.returned);
  });
  buffers.payloads.assign(1, result);
}

RoundPlan Gtopk::Rounds(const ExchangeSizes& sizes, const Topology& topology) const {
  const int ranks = topology.ranks;
  const std::uint64_t count = sizes.payload_bytes.front() / kSparseElementBytes;
  RoundPlan plan;
  plan.per_rank.resize(static_cast<std::size_t>(ranks));
  plan.sums = count;
  if (ranks == 1) return plan;
  // Adds the messages of one level of the tree, to rank 0 or from it.
  const auto level = [&](int distance, bool down) -> Round& {
    std::vector<RankMessage> messages;
    for (int right = distance; right < ranks; right += 2 * distance) {
      const int left = right - distance;
      messages.push_back({down ? left : right, down ? right : left, wire_.Bytes(count)});
    }
    return AddRound(messages, topology, plan);
  };
  for (int distance = 1; distance < ranks; distance *= 2) {
    Round& round = level(distance, false);
    round[Work::kMerge] = 2 * count;
    round[Work::kSelect] = 2 * count;  // if no index is in both
  }
  const int top = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))) / 2;
  for (int distance = top; distance > 0; distance /= 2) level(distance, true);
  // At last the result is compared with the rank's own payload and on rank 0 with the dropped ones.
  plan.rounds.back()[Work::kMerge] =
      (2 + (compat_ ? 0 : static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(top))))) *
      count;
  return plan;
}

}  // namespace

CollectiveDescriptor GtopkCollective() {
  return {.name = kGtopkName,
          .source = "Shi et al., gTop-k, ICDCS 2019, algorithms 2 and 3",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = [](const Options& options) -> std::unique_ptr<Collective> {
            return std::make_unique<Gtopk>(BoolOption(options, "compat"),
                                           StringOption(options, "wire") == "f64");
          },
          .host_memory = true,
          .sums_on_host = true,
          .options = {FlagOption("compat", false,
                                 "loses values that are dropped on the way at an index of the "
                                 "result, as the published code does"),
                      ChoiceOption("wire", "f32", {"f32", "f64"},
                                   "f32: 8 bytes an element; f64: index and value as doubles, 16 "
                                   "bytes, as the published code sends them")},
          .traits =
              [](const Options& options) {
                return CollectiveTraits{.sums = true,
                                        .drops = true,
                                        .equal_counts = true,
                                        .mass = BoolOption(options, "compat")
                                                    ? Conservation::kLost
                                                    : Conservation::kRounded};
              },
          .summary = "the k largest sums, by a tree that keeps k of every two payloads",
          .deviations =
              "A value that is dropped on the way, at an index that another branch brings into the "
              "result, goes back to the rank that dropped it; the paper loses it. Any number of "
              "ranks: a participant without a partner goes on. Elements have 8 bytes instead of "
              "the code's 16, and ranks do not wait for one another between rounds."};
}

}  // namespace sparfuse::baselines
