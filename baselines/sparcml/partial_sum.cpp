#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "baselines/sparcml/sparcml.hpp"
#include "core/base/error.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse::baselines {

DenseSwitch DenseSwitchOf(const Options& resolved) {
  const std::string& name = StringOption(resolved, "dense_switch");
  return name == "bytes"       ? DenseSwitch::kBytes
         : name == "published" ? DenseSwitch::kPublished
                               : DenseSwitch::kNever;
}

void PartialSum::Start(std::span<const std::byte> own) {
  sparse_ = ViewSparsePayload(own);
  message_ = own;
  dense_ = IsDense(rule_, sparse_.indices.size(), elements_);
  if (dense_) BecomeDense();
}

void PartialSum::BecomeDense() {
  dense_ = true;
  Reserve(room_, elements_ * sizeof(float));
  std::ranges::fill(Floats(), 0.0f);
  Scatter(sparse_);
  message_ = std::as_bytes(Floats());
}

void PartialSum::Scatter(const SparsePayload& from) {
  const std::span<float> to = Floats();
  for (std::size_t i = 0; i < from.indices.size(); ++i) {
    if (from.indices[i] >= elements_) {
      SPARFUSE_THROW(kComm, "a payload has index " + std::to_string(from.indices[i]) +
                                ": expected one below " + std::to_string(elements_));
    }
    to[from.indices[i]] += from.values[i];
  }
}

void PartialSum::Add(std::span<const std::byte> message) {
  if (IsDenseMessage(message)) {
    const std::span<const float> other(reinterpret_cast<const float*>(message.data()), elements_);
    if (dense_) return AddInto(other, Floats());
    Reserve(room_, message.size());
    std::ranges::copy(other, Floats().begin());
    dense_ = true;
    Scatter(sparse_);
    message_ = std::as_bytes(Floats());
    return;
  }
  if (message.size() % kSparseElementBytes != 0) {
    SPARFUSE_THROW(
        kComm, "a sum has " + std::to_string(message.size()) + " bytes: expected a multiple of " +
                   std::to_string(kSparseElementBytes) + ", or the bytes of a dense sum");
  }
  const SparsePayload other = ViewSparsePayload(message);
  if (dense_) return Scatter(other);
  Merge(sparse_, other, next_);
  std::swap(merged_, next_);
  sparse_ = merged_.view();
  if (IsDense(rule_, merged_.size(), elements_)) return BecomeDense();
  Reserve(room_, merged_.bytes());
  message_ = merged_.WriteTo(room_.host());
}

namespace {

// Blocks first ... last - 1 of the gathered ones.
struct Piece {
  std::size_t first = 0;
  std::size_t last = 0;
};

// Returns `count` blocks from `first` on, modulo `ranks`, as two pieces; the second may be empty.
std::array<Piece, 2> PiecesOf(std::size_t first, std::size_t count, std::size_t ranks) {
  first %= ranks;
  const std::size_t last = first + count;
  return {{{first, std::min(last, ranks)}, {0, last > ranks ? last - ranks : 0}}};
}

}  // namespace

Task GatherBlocks(Communicator& communicator, std::span<std::byte> data,
                  std::span<const std::uint64_t> begins, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto bytes_of = [&](const Piece& piece) {
    return data.subspan(begins[piece.first], begins[piece.last] - begins[piece.first]);
  };
  for (std::size_t held = 1; held < ranks; held *= 2) {
    const std::size_t count = std::min(held, ranks - held);
    const auto to = static_cast<int>((rank + ranks - held) % ranks);
    const auto from = static_cast<int>((rank + held) % ranks);
    std::vector<std::unique_ptr<Request>> requests;
    std::vector<std::size_t> expected;
    for (const Piece& piece : PiecesOf(rank + held, count, ranks)) {
      if (piece.first == piece.last) continue;
      expected.push_back(bytes_of(piece).size());
      requests.push_back(communicator.Irecv(from, tag, bytes_of(piece)));
    }
    for (const Piece& piece : PiecesOf(rank, count, ranks)) {
      if (piece.first == piece.last) continue;
      requests.push_back(communicator.Isend(to, tag, bytes_of(piece)));
    }
    requests = co_await Complete(std::move(requests));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (requests[i]->bytes() == expected[i]) continue;
      SPARFUSE_THROW(kComm, "all-gather of blocks: " + std::to_string(requests[i]->bytes()) +
                                " bytes from rank " + std::to_string(from) + ": expected " +
                                std::to_string(expected[i]));
    }
  }
}

void AddGatherRounds(std::span<const std::uint64_t> begins, const Topology& topology,
                     RoundPlan& plan) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  std::vector<RankMessage> messages;
  for (std::size_t held = 1; held < ranks; held *= 2) {
    messages.clear();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto to = static_cast<int>((rank + ranks - held) % ranks);
      for (const Piece& piece : PiecesOf(rank, std::min(held, ranks - held), ranks)) {
        if (piece.first == piece.last) continue;
        messages.push_back({static_cast<int>(rank), to, begins[piece.last] - begins[piece.first]});
      }
    }
    AddRound(messages, topology, plan);
  }
}

}  // namespace sparfuse::baselines
