// Runs the ring all-reduce (ring_allreduce.cpp) with floats whose exponents are coded for sending
// (core/coding/exponent_coding.hpp): the results are bit-equal, with fewer bytes sent.
//
// A message begins with a word: 1, coded values follow; 0, plain values follow, since coding saves
// nothing. Partial sums are coded anew at every hop; reduced chunks are passed on unchanged.
//
// Source:      Y. Liu et al., ZipCCL, arXiv 2604.27844 (lossless coding in collectives).
// Deviations:  float32, of which 8 bits in 32 are exponent; the paper's values are bfloat16, with 8
//              in 16.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/exponent_coding.hpp"
#include "core/collective/algorithms.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

constexpr const char* kName = "exponent";
constexpr std::uint32_t kRaw = 0, kCoded = 1;
constexpr std::size_t kWord = sizeof(std::uint32_t);

enum Seen : std::size_t { kReduced, kGathered, kSeenWords };  // bytes that a rank has sent

// Returns the largest size of a message of n values. Without values nothing is sent.
std::size_t MessageBound(std::size_t n) { return n == 0 ? 0 : kWord + ExponentBytesBound(n); }

// message: [MessageBound(values.size())]. Returns the number of bytes written.
std::size_t WriteMessage(std::span<const float> values, std::span<std::byte> message) {
  if (values.empty()) return 0;
  const std::size_t coded = EncodeExponents(values, message.subspan(kWord));
  const bool smaller = coded < values.size_bytes();
  const std::uint32_t form = smaller ? kCoded : kRaw;
  std::memcpy(message.data(), &form, kWord);
  if (smaller) return kWord + coded;
  std::memcpy(message.data() + kWord, values.data(), values.size_bytes());
  return kWord + values.size_bytes();
}

void ReadMessage(std::span<const std::byte> message, std::span<float> values) {
  if (values.empty()) return;
  std::uint32_t form = 2;
  if (message.size() >= kWord) std::memcpy(&form, message.data(), kWord);
  const auto sent = message.subspan(std::min(kWord, message.size()));
  if (form == kCoded) return DecodeExponents(sent, values, kName);
  if (form != kRaw || sent.size() != values.size_bytes()) {
    SPARFUSE_THROW(kComm, kName, ": ", message.size(), " bytes of form ", form, ": expected ",
                   values.size(), " values, coded or uncoded");
  }
  std::memcpy(values.data(), sent.data(), sent.size());
}

class ExponentRing {
 public:
  ExponentRing(Communicator& communicator, ExchangeBuffers& buffers, int tag)
      : communicator_(communicator),
        buffers_(buffers),
        tag_(tag),
        ranks_(static_cast<std::size_t>(communicator.size())),
        shards_{buffers.dense.size(), ranks_},
        out_(MessageBound(shards_.Size(0))),
        in_(MessageBound(shards_.Size(0))),
        values_(shards_.Size(0)) {}

  // Reduces as the float ring's ReduceAround does.
  Task Reduce(std::size_t first) {
    for (std::size_t step = 0; step + 1 < ranks_; ++step) {
      const std::size_t chunk = first + 2 * ranks_ - step;
      co_await OffThread(buffers_, [&] { out_bytes_ = WriteMessage(Part(chunk), out_); });
      co_await Step(shards_.Size(chunk - 1));
      buffers_.seen[kReduced] += out_bytes_;
      co_await OffThread(buffers_, [&] {
        const std::span<float> target = Part(chunk - 1);
        const auto came = std::span(values_).first(target.size());
        ReadMessage(std::span(in_).first(in_bytes_), came);
        AddInto(came, target);
      });
    }
  }

  // Gathers as GatherAround does: arrivals are passed on unchanged.
  Task Gather(std::size_t first) {
    co_await OffThread(buffers_, [&] { out_bytes_ = WriteMessage(Part(first), out_); });
    for (std::size_t step = 0; step + 1 < ranks_; ++step) {
      const std::size_t chunk = first + 2 * ranks_ - step;
      co_await Step(shards_.Size(chunk - 1));
      buffers_.seen[kGathered] += out_bytes_;
      co_await OffThread(buffers_,
                         [&] { ReadMessage(std::span(in_).first(in_bytes_), Part(chunk - 1)); });
      std::swap(out_, in_);
      out_bytes_ = in_bytes_;
    }
  }

 private:
  std::span<float> Part(std::size_t chunk) const {
    return buffers_.dense.subspan(shards_.Begin(chunk), shards_.Size(chunk));
  }

  // Sends out_, and receives into in_ a message that tells its own length.
  Task Step(std::size_t incoming) {
    const auto ranks = static_cast<int>(ranks_);
    const std::size_t room = MessageBound(incoming);
    std::vector<std::unique_ptr<Request>> requests;
    if (incoming > 0) {
      requests.push_back(communicator_.Irecv((communicator_.rank() + ranks - 1) % ranks, tag_,
                                             std::span(in_).first(room)));
    }
    if (out_bytes_ > 0) {
      requests.push_back(communicator_.Isend((communicator_.rank() + 1) % ranks, tag_,
                                             std::span(out_).first(out_bytes_)));
    }
    requests = co_await Complete(std::move(requests));
    in_bytes_ = incoming > 0 ? std::min(requests[0]->bytes(), room) : 0;
  }

  Communicator& communicator_;
  ExchangeBuffers& buffers_;
  int tag_;
  std::size_t ranks_;
  Shards shards_;
  std::vector<std::byte> out_, in_;
  std::size_t out_bytes_ = 0, in_bytes_ = 0;
  std::vector<float> values_;
};

class ExponentAllReduce final : public Collective {
 public:
  explicit ExponentAllReduce(double bits) : bits_(bits) {}

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    buffers.seen.assign(kSeenWords, 0);
    if (communicator.size() == 1 || buffers.dense.empty()) co_return;
    ExponentRing ring(communicator, buffers, tag);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    co_await ring.Reduce(rank);
    co_await ring.Gather(rank + 1);
  }

  void Expect(const OverlapModel& /*overlap*/, const Topology& topology,
              ExchangeSizes& sizes) const override {
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    const Shards shards{sizes.payload_bytes.front() / sizeof(float), ranks};
    const auto message = [&](std::size_t chunk) -> std::uint64_t {
      const std::size_t n = shards.Size(chunk);
      if (n == 0) return 0;
      const auto coded = static_cast<std::size_t>(std::ceil(static_cast<double>(n) * bits_ / 8));
      return kWord + std::min(n * sizeof(float), (coded + 3) / 4 * 4);
    };
    std::uint64_t all = 0;
    for (std::size_t j = 0; j < ranks; ++j) all += message(j);
    sizes.seen.assign(ranks, std::vector<std::uint64_t>(kSeenWords));
    for (std::size_t r = 0; ranks > 1 && r < ranks; ++r) {
      sizes.seen[r] = {all - message(r + 1), all - message(r + 2)};
    }
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    // Messages and additions are the same as in the float ring.
    const std::size_t elements = sizes.payload_bytes.front() / sizeof(float);
    RoundPlan plan = RingAllReduceRounds(elements, topology);
    if (plan.rounds.empty()) return plan;
    const std::size_t ranks = sizes.seen.size();
    const Shards shards{elements, ranks};
    for (std::size_t half = 0; half < kSeenWords; ++half) {
      std::uint64_t most = 0;
      for (const auto& seen : sizes.seen) most = std::max(most, seen[half]);
      Round& round = plan.rounds[half];
      if (round.within_bytes > 0) round.within_bytes = most;
      round.bytes = most;
      // In the reducing half values are coded before each send; in both, decoded on arrival.
      round[Work::kSelect] =
          (half == kReduced ? 2 : 1) * (ranks - 1) * static_cast<std::uint64_t>(shards.Size(0));
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto bytes_of = [&](std::size_t rank) {
        const auto& seen = sizes.seen[rank % ranks];
        return seen[kReduced] + seen[kGathered];
      };
      plan.per_rank[r].bytes_sent = bytes_of(r);
      plan.per_rank[r].bytes_received = bytes_of(r + ranks - 1);
    }
    return plan;
  }

 private:
  double bits_;
};

}  // namespace

CollectiveDescriptor ExponentAllReduceDescriptor() {
  return {.name = kName,
          .source = "Liu et al., ZipCCL, arXiv 2604.27844",
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
            return std::make_unique<ExponentAllReduce>(DoubleOption(resolved, "bits"));
          },
          .host_memory = true,
          .options = {NumberOption(
              "bits", 27.25, 1, 33,
              "bits of a value on the way that a model assumes: 27.25 for Gaussian values, 27.66 "
              "for Laplace's; a live run sends as many as the values take")},
          .summary = "sums around a ring; the exponents of the floats are coded without loss",
          .deviations = "Values are float32; the paper's are bfloat16."};
}

}  // namespace sparfuse
