// Times quantizers on a CUDA card with error feedback, against the three streams of an addition.
#include "core/coding/quantizers/quantizer.hpp"
#include "tests/bench/cards/gpu_bench.hpp"

namespace sparfuse::bench {
namespace {

struct Named {
  const char* label;
  const char* name;
  Options options;
};

std::vector<Named> Forms() {
  return {{"fp32", "fp32", {}},
          {"fp16", "fp16", {}},
          {"sign", "sign", {}},
          {"qsgd", "qsgd", {}},
          {"qsgd_whole", "qsgd", {{"bucket", std::int64_t{0}}}}};
}

// The arguments of quantizers besides their tensor.
struct Surroundings {
  DeviceContext Context() { return {own.view(), &workspace, nullptr, &host}; }

  gpu::GpuStream own{kCard};
  DeviceWorkspace workspace{kCard};
  ThreadPool pool{1};
  Workspace host_workspace;
  SelectCounters counters;
  SelectContext host{&pool, &host_workspace, &counters, {}};
  Buffer<std::uint32_t> not_finite{1, kCard};
  Buffer<std::uint64_t> fault{1, kCard};
};

std::unique_ptr<Quantizer> Make(const Named& form) {
  const QuantizerDescriptor& descriptor = FindQuantizer(form.name);
  return descriptor.make(ResolveOptions(form.name, descriptor.options, form.options), 1);
}

void Encode(::benchmark::State& state, const Named& form, std::size_t n) {
  Surroundings with;
  const Stream& stream = with.own.view();
  const auto quantizer = Make(form);
  const Buffer<float> x = OnCard(stream, Data("gaussian", n));
  const Buffer<float> residual(n, kCard);
  const Buffer<std::byte> out(quantizer->EncodedBytes(n), kCard);
  std::uint64_t step = 0;
  Compare(state, stream, n, GpuLimit::kAdd, [&] {
    quantizer->EncodeOnDevice(with.Context(), 0, {{x.data(), n, stream}, residual.view(stream)},
                              {1, "tensor", {}, step++}, out.view(stream), with.not_finite.data());
  });
}

void Accumulate(::benchmark::State& state, const Named& form, std::size_t n) {
  constexpr std::size_t kRanks = 4;
  Surroundings with;
  const Stream& stream = with.own.view();
  const auto quantizer = Make(form);
  const Buffer<float> x = OnCard(stream, Data("gaussian", n));
  std::vector<Buffer<std::byte>> payloads;
  std::vector<const std::byte*> places;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    payloads.emplace_back(quantizer->EncodedBytes(n), kCard);
    places.push_back(payloads.back().data());
    quantizer->EncodeOnDevice(with.Context(), static_cast<int>(rank), {{x.data(), n, stream}, {}},
                              {1, "tensor", {}, 0}, payloads.back().view(stream),
                              with.not_finite.data());
  }
  const Buffer<float> out(n, kCard);
  Compare(state, stream, n, GpuLimit::kAdd, [&] {
    quantizer->AccumulateOnDevice(with.Context(), places, 1.0f / kRanks, out.view(stream),
                                  with.fault.data());
  });
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  for (const std::size_t n : GpuSizes()) {
    for (const Named& form : Forms()) {
      const std::string row = form.label + At(n);
      RegisterOnCard("encode/" + row, [=](auto& state) { Encode(state, form, n); });
      RegisterOnCard("accumulate/" + row, [=](auto& state) { Accumulate(state, form, n); });
    }
  }
  return GpuMain(argc, argv);
}
