// Times the quantizers, PowerSGD and the coding of sparse payloads, against memcpy of the same
// bytes and the limits of a pass over the tensor. Rows of encode are compared with limit/add with
// error feedback (variant feedback), otherwise with limit/sum_abs.
#include "baselines/powersgd/powersgd.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

void Memcpy(::benchmark::State& state, std::size_t bytes) {
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    ::benchmark::DoNotOptimize(to.data());
    ::benchmark::ClobberMemory();
  }
  SetBytes(state, bytes);
}

std::unique_ptr<Quantizer> Make(const std::string& name, const Options& options) {
  const QuantizerDescriptor& descriptor = FindQuantizer(name);
  return descriptor.make(ResolveOptions(name, descriptor.options, options), 1);
}

void Encode(::benchmark::State& state, const Quantizer& quantizer, std::size_t n, bool feedback) {
  const Floats& x = Data("gaussian", n);
  ThreadPool pool(Threads());
  Workspace workspace;
  Floats residual(feedback ? n : 0, 0.0f);
  std::vector<std::byte> bytes(quantizer.EncodedBytes(n));
  std::uint64_t step = 0;
  for (auto _ : state) {
    quantizer.Encode({&pool, &workspace, 0},
                     {{x.data(), n, {}}, {residual.data(), residual.size(), {}}},
                     {1, "tensor", {}, step++}, bytes);
  }
  SetBytes(state, n * sizeof(float));
}

void Decode(::benchmark::State& state, const Quantizer& quantizer, std::size_t n,
            std::size_t ranks) {
  ThreadPool pool(Threads());
  Workspace workspace;
  std::vector<std::vector<std::byte>> payloads(ranks,
                                               std::vector<std::byte>(quantizer.EncodedBytes(n)));
  for (std::size_t r = 0; r < ranks; ++r) {
    quantizer.Encode({&pool, &workspace, static_cast<int>(r)},
                     {{Data("gaussian", n).data(), n, {}}, {}}, {1, "tensor", {}, 0}, payloads[r]);
  }
  const std::vector<std::span<const std::byte>> views(payloads.begin(), payloads.end());
  std::vector<float> out(n);
  for (auto _ : state) {
    AccumulateQuantized(quantizer, views, 1.0f / static_cast<float>(ranks), out, pool);
    ::benchmark::DoNotOptimize(out.data());
  }
  SetBytes(state, n * sizeof(float));
}

enum class Step { kP, kQ, kReconstruct };

// A matrix of a thousand columns. The residual stays unchanged: only single parts of a step repeat.
void LowRank(::benchmark::State& state, std::size_t n, int rank, Step step) {
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(n / 1000), 1000};
  PowerSgd power(shape, rank, 1);
  ThreadPool pool(Threads());
  Workspace workspace;
  const QuantizeContext context{&pool, &workspace, 0};
  const SelectSource source{{Data("gaussian", n).data(), n, {}}, {}};
  const TensorInfo info{1, "tensor", shape, 0};
  std::vector<float> out(n);
  power.ComputeP(context, source, info);
  power.Orthonormalize();
  power.ComputeQ(context, source);
  for (auto _ : state) {
    if (step == Step::kP) power.ComputeP(context, source, info);
    if (step == Step::kQ) power.ComputeQ(context, source);
    if (step == Step::kReconstruct) power.Reconstruct(context, source, out);
    ::benchmark::DoNotOptimize(out.data());
  }
  SetBytes(state, n * sizeof(float));
}

// Bytes are those of the decoded payload: 8 an element.
void EncodeSparse(::benchmark::State& state, PayloadCoding coding, std::size_t n, double density) {
  const Payload& payload = MakePayload(n, density);
  std::vector<std::byte> bytes(EncodedBytesBound(coding, payload.indices.size(), n));
  std::size_t written = 0;
  for (auto _ : state) {
    written = EncodePayload(coding, {payload.indices, payload.values}, n, bytes);
    ::benchmark::DoNotOptimize(bytes.data());
    ::benchmark::ClobberMemory();
  }
  SetBytes(state, payload.indices.size() * kSparseElementBytes);
  state.counters["bytes/element"] =
      static_cast<double>(written) / static_cast<double>(payload.indices.size());
}

void DecodeSparse(::benchmark::State& state, PayloadCoding coding, std::size_t n, double density) {
  const Payload& payload = MakePayload(n, density);
  std::vector<std::byte> bytes(EncodedBytesBound(coding, payload.indices.size(), n));
  bytes.resize(EncodePayload(coding, {payload.indices, payload.values}, n, bytes));
  Payload out = payload;
  for (auto _ : state) {
    DecodePayload(bytes, n, out.indices, out.values);
    ::benchmark::DoNotOptimize(out.indices.data());
    ::benchmark::DoNotOptimize(out.values.data());
    ::benchmark::ClobberMemory();
  }
  SetBytes(state, payload.indices.size() * kSparseElementBytes);
}

void RegisterQuantizers(std::size_t n) {
  const std::string size = At(n);
  Register("memcpy" + size, [=](auto& s) { Memcpy(s, n * sizeof(float)); });
  for (const auto& descriptor : Quantizers()) {
    const std::string name(descriptor.name);
    for (const bool feedback : {false, true}) {
      Register(name + "_encode" + size + (feedback ? "/feedback" : ""),
               [=](auto& s) { Encode(s, *Make(name, {}), n, feedback); });
    }
    for (const std::size_t ranks : {2u, 4u}) {
      Register(name + "_decode" + size + "/ranks:" + std::to_string(ranks),
               [=](auto& s) { Decode(s, *Make(name, {}), n, ranks); });
    }
  }
  for (const int rank : {1, 4}) {
    const std::string shape = size + "/rank:" + std::to_string(rank);
    Register("powersgd_p" + shape, [=](auto& s) { LowRank(s, n, rank, Step::kP); });
    Register("powersgd_q" + shape, [=](auto& s) { LowRank(s, n, rank, Step::kQ); });
    Register("powersgd_out" + shape, [=](auto& s) { LowRank(s, n, rank, Step::kReconstruct); });
  }
}

void RegisterPayloads(std::size_t n, double density) {
  const std::string shape = At(n, density);
  Register("payload_memcpy" + shape, [=](auto& s) {
    Memcpy(s, MakePayload(n, density).indices.size() * kSparseElementBytes);
  });
  const std::pair<const char*, PayloadCoding> codings[] = {
      {"f32_u32", {ValueCoding::kF32, IndexCoding::kU32}},
      {"f16_u32", {ValueCoding::kF16, IndexCoding::kU32}},
      {"f32_delta", {ValueCoding::kF32, IndexCoding::kDelta}},
      {"f16_delta", {ValueCoding::kF16, IndexCoding::kDelta}}};
  for (const auto& [name, coding] : codings) {
    const std::string row = shape + "/" + name;
    const PayloadCoding c = coding;
    Register("payload_encode" + row, [=](auto& s) { EncodeSparse(s, c, n, density); });
    Register("payload_decode" + row, [=](auto& s) { DecodeSparse(s, c, n, density); });
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterLimits();
  for (const std::size_t n : Sizes()) {
    RegisterQuantizers(n);
    for (const double density : {0.01, 0.1}) RegisterPayloads(n, density);
  }
  return Main(argc, argv);
}
