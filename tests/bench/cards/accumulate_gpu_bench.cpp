// Times the work of a step on a CUDA card besides selecting, each against its limit kernel.
// Decompression and merging are compared with one memset of the output, momentum with the three
// streams of an addition, and the norm with one read.
#include "core/coding/payload_coding.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "core/payload/accumulate_device.hpp"
#include "tests/bench/cards/gpu_bench.hpp"
#include "tests/bench/random_payloads.hpp"

namespace sparfuse::bench {
namespace {

class PayloadsOnCard {
 public:
  PayloadsOnCard(const Stream& stream, const Payloads& payloads) {
    for (const SparsePayload& payload : payloads.views) {
      indices_.push_back(CopyToCard(stream, payload.indices));
      values_.push_back(CopyToCard(stream, payload.values));
      views.push_back({indices_.back().data(), values_.back().data(), payload.indices.size()});
    }
  }
  std::vector<DevicePayload> views;

 private:
  std::vector<Buffer<std::uint32_t>> indices_;
  std::vector<Buffer<float>> values_;
};

// touched: the output is zero except for the elements that the last step wrote, with other
// payloads.
void Accumulate(::benchmark::State& state, std::size_t n, std::size_t ranks, double density,
                bool touched) {
  const gpu::GpuStream own(kCard);
  const Stream& stream = own.view();
  const PayloadsOnCard even(stream, MakePayloads(n, ranks, density, 3));
  const PayloadsOnCard odd(stream, MakePayloads(n, ranks, density, 4));
  const Buffer<float> out(n, kCard);
  const Buffer<std::uint64_t> fault(1, kCard);
  const Buffer<std::uint32_t> sectors(touched ? TouchedWords(n) : 0, kCard);
  DeviceWorkspace workspace(kCard);
  std::size_t step = 0;
  Compare(state, stream, n, GpuLimit::kMemset, [&] {
    AccumulateSparseOnDevice(stream, workspace, (step++ % 2 == 0 ? even : odd).views, {0, n},
                             1.0f / static_cast<float>(ranks), out.view(stream), fault.data(),
                             touched ? sectors.data() : nullptr);
  });
}

// Merges the slots of 64 tensors of equal size.
void Merge(::benchmark::State& state, std::size_t n, double density) {
  constexpr std::size_t kParts = 64;
  const gpu::GpuStream own(kCard);
  const Stream& stream = own.view();
  const Payloads& payloads = MakePayloads(n / kParts, 1, density);
  const std::size_t count = payloads.indices[0].size();
  const std::size_t room = SlotCapacity(n / kParts, density);
  const Buffer<std::uint32_t> indices(room, kCard);
  const Buffer<float> values(room, kCard);
  gpu::CopyAsync(stream, indices.data(), payloads.indices[0].data(), count * sizeof(std::uint32_t));
  gpu::CopyAsync(stream, values.data(), payloads.values[0].data(), count * sizeof(float));
  SlotReport counted;
  counted.count = static_cast<std::uint32_t>(count);
  const Buffer<SlotReport> report = CopyToCard<SlotReport>(stream, {&counted, 1});
  std::vector<MergePart> parts;
  for (std::size_t p = 0; p < kParts; ++p) {
    parts.push_back({{indices.data(), values.data(), room, report.data()},
                     static_cast<std::uint32_t>(p * (n / kParts))});
  }
  const Buffer<std::uint32_t> wire(2 * kParts * room, kCard);
  const Buffer<std::uint32_t> total(1, kCard);
  DeviceWorkspace workspace(kCard);
  Compare(state, stream, n, GpuLimit::kMemset, [&] {
    MergeSlotsOnDevice(stream, workspace, parts,
                       {wire.data(), nullptr, kParts * room, total.data()});
  });
}

// Encodes and decodes halves and gaps.
void Code(::benchmark::State& state, std::size_t n, double density) {
  const gpu::GpuStream own(kCard);
  const Stream& stream = own.view();
  const PayloadsOnCard payloads(stream, MakePayloads(n, 1, density));
  const PayloadCoding coding{ValueCoding::kF16, IndexCoding::kDelta};
  const std::size_t count = payloads.views[0].count;
  const Buffer<std::byte> bytes(EncodedBytesBound(coding, count, n), kCard);
  const Buffer<std::uint32_t> size(1, kCard);
  DeviceWorkspace workspace(kCard);
  const auto encode = [&] {
    EncodePayloadOnDevice(stream, workspace, coding, payloads.views[0], n, bytes.view(stream),
                          size.data());
  };
  encode();
  std::uint32_t encoded = 0;
  gpu::CopyAsync(stream, &encoded, size.data(), sizeof(encoded));
  gpu::Synchronize(stream);
  const Buffer<std::uint32_t> indices(count, kCard);
  const Buffer<float> values(count, kCard);
  const Buffer<std::uint32_t> decoded(1, kCard);
  const Buffer<std::uint64_t> fault(1, kCard);
  Compare(state, stream, n, GpuLimit::kMemset, [&] {
    encode();
    DecodePayloadOnDevice(stream, workspace, coding, {bytes.data(), encoded, stream}, n,
                          indices.view(stream), values.view(stream), decoded.data(), 0,
                          fault.data());
  });
}

void Advance(::benchmark::State& state, std::size_t n, bool nesterov) {
  const gpu::GpuStream own(kCard);
  const Stream& stream = own.view();
  const Buffer<float> gradient = OnCard(stream, Data("gaussian", n));
  const Buffer<float> velocity(n, kCard);
  const Buffer<float> growth(nesterov ? n : 0, kCard);
  const MomentumOptions options{0.9, nesterov, true};
  Compare(state, stream, n, GpuLimit::kAdd, [&] {
    AdvanceVelocityOnDevice(stream, options, {gradient.data(), n, stream}, nullptr,
                            velocity.view(stream), growth.view(stream));
  });
}

void Clip(::benchmark::State& state, std::size_t n) {
  const gpu::GpuStream own(kCard);
  const Stream& stream = own.view();
  const Buffer<float> gradient = OnCard(stream, Data("gaussian", n));
  const Buffer<float> factor(1, kCard);
  DeviceWorkspace workspace(kCard);
  Compare(state, stream, n, GpuLimit::kSumAbs, [&] {
    ClipFactorOnDevice(stream, workspace, {gradient.data(), n, stream}, 1.0, factor.data());
  });
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  for (const std::size_t n : GpuSizes()) {
    for (const double density : Densities(n)) {
      const std::string share = At(n, density);
      for (const std::size_t ranks : {2u, 8u}) {
        for (const bool touched : {false, true}) {
          RegisterOnCard((touched ? "accumulate_touched" : "accumulate") + share +
                             "/ranks:" + std::to_string(ranks),
                         [=](auto& state) { Accumulate(state, n, ranks, density, touched); });
        }
      }
      RegisterOnCard("merge" + share, [=](auto& state) { Merge(state, n, density); });
      RegisterOnCard("code" + share, [=](auto& state) { Code(state, n, density); });
    }
    RegisterOnCard("momentum" + At(n), [=](auto& state) { Advance(state, n, false); });
    RegisterOnCard("momentum_nesterov" + At(n), [=](auto& state) { Advance(state, n, true); });
    RegisterOnCard("clip" + At(n), [=](auto& state) { Clip(state, n); });
  }
  return GpuMain(argc, argv);
}
