// Runs the ring all-reduce and its halves (ring_allreduce.cpp) with floats that are sent as fp16.
// Sums are made as floats, and rounded when they are sent on.
//
// Source:      Z. Wang et al., Hi-Speed DNN Training with Espresso, EuroSys 2023 (FP16 as one of
//              the ways to send a gradient).
// Deviations:  a rank keeps the rounding errors of its own values and of the sums that it passes
//              on. It sends them in the next step, if there is room to keep them. If not, a sum
//              beyond the largest half is an error, where Espresso's would be infinite.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"
#include "core/collective/algorithms.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

using Half = std::uint16_t;

class F16Ring {
 public:
  F16Ring(Communicator& communicator, ExchangeBuffers& buffers, int tag)
      : communicator_(communicator),
        data_(buffers.dense),
        rounded_(buffers.rounded),
        tag_(tag),
        ranks_(static_cast<std::size_t>(communicator.size())),
        shards_{data_.size(), ranks_},
        codes_(data_.size()),
        scratch_(shards_.Size(0)) {}

  bool alone() const { return ranks_ == 1 || data_.empty(); }

  // Adds a chunk's earlier rounding errors to its present values.
  void TakeUp(std::size_t chunk) {
    if (rounded_.empty()) return;
    const std::span<float> kept = Part(rounded_, chunk);
    AddInto(kept, Part(data_, chunk));
    std::ranges::fill(kept, 0.0f);
  }
  void TakeUpAll() {
    for (std::size_t chunk = 0; chunk < ranks_; ++chunk) TakeUp(chunk);
  }

  // Reduces as the float ring's ReduceAround does.
  Task Reduce(std::size_t first) {
    for (std::size_t step = 0; step + 1 < ranks_; ++step) {
      const std::size_t chunk = first + 2 * ranks_ - step;
      Round(chunk);
      const std::span<float> target = Part(data_, chunk - 1);
      const std::span<Half> incoming = std::span(scratch_).first(target.size());
      co_await Step(Part(std::span(codes_), chunk), incoming);
      kernels_.half_add(incoming.data(), incoming.size(), target.data());
    }
  }

  // Gathers as GatherAround does: all ranks take the decoded halves, a chunk's own rank too.
  Task Gather(std::size_t first) {
    Round(first);
    for (std::size_t step = 0; step + 1 < ranks_; ++step) {
      const std::size_t chunk = first + 2 * ranks_ - step;
      co_await Step(Part(std::span(codes_), chunk), Part(std::span(codes_), chunk - 1));
    }
    kernels_.half_decode(codes_.data(), codes_.size(), data_.data());
  }

 private:
  template <class Value>
  std::span<Value> Part(std::span<Value> all, std::size_t chunk) const {
    return all.subspan(shards_.Begin(chunk), shards_.Size(chunk));
  }

  void Round(std::size_t chunk) {
    const std::span<float> values = Part(data_, chunk);
    kernels_.half_encode(values.data(), values.data(), values.size(),
                         Part(std::span(codes_), chunk).data());
    if (rounded_.empty()) {
      RefuseSaturated(values, Part(std::span<const Half>(codes_), chunk));
    } else {
      AddInto(values, Part(rounded_, chunk));
    }
  }

  // A value that saturates loses all above 65504: a mean would be wrong without a word if nothing
  // keeps the rest. errors: value - half. Throws Error{kNumeric}.
  static void RefuseSaturated(std::span<const float> errors, std::span<const Half> codes) {
    std::int16_t largest = 0;  // signed and without early exit: the compiler has a vector's maximum
    for (const Half code : codes)
      largest = std::max(largest, static_cast<std::int16_t>(code & 0x7fff));
    if (largest < kHalfMax) return;
    constexpr float kHalfStep = 16;  // half the distance between the largest halves
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if ((codes[i] & 0x7fff) != kHalfMax || std::abs(errors[i]) < kHalfStep) continue;
      std::ostringstream text;
      text << "f16-ring: a gradient or a sum of ranks is " << 65504 + std::abs(errors[i])
           << ", beyond 65504, the largest fp16 value, and no feedback keeps the rest; expected "
              "smaller gradients";
      SPARFUSE_THROW(kNumeric, text.str());
    }
  }

  Task Step(std::span<const Half> outgoing, std::span<Half> incoming) {
    return StepAroundRing(communicator_, "f16-ring", std::as_bytes(outgoing),
                          std::as_writable_bytes(incoming), tag_);
  }

  Communicator& communicator_;
  std::span<float> data_;
  std::span<float> rounded_;
  int tag_;
  std::size_t ranks_;
  Shards shards_;
  std::vector<Half> codes_;
  std::vector<Half> scratch_;
  const QuantizeKernels& kernels_ = QuantizeKernelsFor(ActiveIsa());
};

enum class RingPart : std::uint8_t { kWhole, kReduceScatter, kAllGather };

template <RingPart kPart>
class F16RingCollective final : public Collective {
 public:
  // Chunks rotate as in the float ring. In a reduce-scatter, chunk r ends on rank r; in the
  // all-reduce, on the rank before.
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    F16Ring ring(communicator, buffers, tag);
    if (ring.alone()) co_return;
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const auto rank = static_cast<std::size_t>(communicator.rank());
    if (kPart == RingPart::kAllGather) {
      ring.TakeUp(rank);
      co_await ring.Gather(rank);
      co_return;
    }
    ring.TakeUpAll();
    if (kPart == RingPart::kReduceScatter) {
      co_await ring.Reduce(rank + ranks - 1);
      co_return;
    }
    co_await ring.Reduce(rank);
    co_await ring.Gather(rank + 1);
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    static constexpr RingHalf kHalves[] = {
        {kPart == RingPart::kReduceScatter ? 0u : 1u, kPart != RingPart::kAllGather}, {2, false}};
    const auto halves = std::span(kHalves).first(kPart == RingPart::kWhole ? 2 : 1);
    const Shards shards{sizes.payload_bytes.front() / sizeof(Half),
                        static_cast<std::size_t>(topology.ranks)};
    return RingRounds(shards, topology, halves, sizeof(Half));
  }
};

template <RingPart kPart>
const Collective& Made(std::string_view name) {
  return OnlyOne<F16RingCollective<kPart>>(name, "Wang et al., Espresso, EuroSys 2023",
                                           PayloadKind::kDense);
}

}  // namespace

const Collective& F16AllReduce() { return Made<RingPart::kWhole>("f16-allreduce"); }
const Collective& F16ReduceScatter() {
  return Made<RingPart::kReduceScatter>("f16-reduce-scatter");
}
const Collective& F16AllGather() { return Made<RingPart::kAllGather>("f16-allgather"); }

}  // namespace sparfuse
