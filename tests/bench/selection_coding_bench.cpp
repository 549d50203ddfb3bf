// Times DeepReduce's coding of selections, against the limits of a pass over the tensor, a naive
// filter query, and top-k's selection.
#include "core/base/random_stream.hpp"
#include "core/coding/selection_coding.hpp"
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

constexpr PayloadCoding kBloom{ValueCoding::kF32, IndexCoding::kBloom};
constexpr PayloadCoding kFitted{ValueCoding::kFitted, IndexCoding::kU32};
constexpr PayloadCoding kBoth{ValueCoding::kFitted, IndexCoding::kBloom};

void Build(::benchmark::State& state, std::size_t n, double density) {
  const Payload& drawn = MakePayload(n, density);
  const BloomShape shape = BloomShapeOf(drawn.indices.size(), n, 0);
  BloomFilter filter;
  for (auto _ : state) {
    filter.Build(shape, drawn.indices);
    ::benchmark::DoNotOptimize(filter.words().data());
  }
  SetBytes(state, n * sizeof(float));
  state.counters["ns/bit"] = ::benchmark::Counter(
      1e-9 * static_cast<double>(drawn.indices.size()) * shape.hashes,
      ::benchmark::Counter::kIsIterationInvariantRate | ::benchmark::Counter::kInvert);
}

void Query(::benchmark::State& state, std::size_t n, double density) {
  const Payload& drawn = MakePayload(n, density);
  ThreadPool pool(Threads());
  BloomFilter filter;
  filter.Build(BloomShapeOf(drawn.indices.size(), n, 0), drawn.indices);
  for (auto _ : state) ::benchmark::DoNotOptimize(filter.Positives(n, n, pool).data());
  SetBytes(state, n * sizeof(float));
}

// The formula taken literally: one index after the other, until a bit is not set.
void QueryOneByOne(::benchmark::State& state, std::size_t n, double density) {
  const Payload& drawn = MakePayload(n, density);
  const BloomShape shape = BloomShapeOf(drawn.indices.size(), n, 0);
  BloomFilter filter;
  filter.Build(shape, drawn.indices);
  const auto words = filter.words();
  std::vector<std::uint32_t> positives;
  for (auto _ : state) {
    positives.clear();
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t number = (i + 1) * 0x9e3779b97f4a7c15u;
      const std::uint64_t a = (Mix64(0x243f6a8885a308d3u + number) >> 32) * shape.bits >> 32;
      const std::uint64_t b = (Mix64(0x13198a2e03707344u + number) >> 32) * shape.bits >> 32;
      std::uint64_t j = 0;
      for (; j < shape.hashes; ++j) {
        const std::uint64_t bit = (a + j * b + (j * j * j - j) / 6) % shape.bits;
        if ((words[bit / 32] >> bit % 32 & 1) == 0) break;
      }
      if (j == shape.hashes) positives.push_back(static_cast<std::uint32_t>(i));
    }
    ::benchmark::DoNotOptimize(positives.data());
  }
  SetBytes(state, n * sizeof(float));
}

void Encode(::benchmark::State& state, const PayloadCoding& coding, std::size_t n, double density) {
  const Payload& drawn = MakePayload(n, density);
  const std::size_t count = drawn.indices.size();
  ThreadPool pool(Threads());
  SelectionCoder coder;
  std::vector<std::byte> out(SelectionBytesBound(coding, count, n));
  Payload slot_memory;
  std::size_t written = 0;
  for (auto _ : state) {
    slot_memory = drawn;  // the encoder revises it
    Slot slot{{slot_memory.indices.data(), count, {}},
              {slot_memory.values.data(), count, {}},
              count,
              count};
    written = coder.Encode(coding, Data("gaussian", n), {}, slot, out, pool);
    ::benchmark::DoNotOptimize(out.data());
  }
  SetBytes(state, n * sizeof(float));
  state.counters["bytes/element"] = static_cast<double>(written) / static_cast<double>(count);
}

void Decode(::benchmark::State& state, const PayloadCoding& coding, std::size_t n, double density) {
  Payload drawn = MakePayload(n, density);
  const std::size_t count = drawn.indices.size();
  ThreadPool pool(Threads());
  SelectionCoder coder;
  std::vector<std::byte> out(SelectionBytesBound(coding, count, n));
  Slot slot{{drawn.indices.data(), count, {}}, {drawn.values.data(), count, {}}, count, count};
  out.resize(coder.Encode(coding, Data("gaussian", n), {}, slot, out, pool));
  for (auto _ : state) {
    coder.Decode(out, n, drawn.indices, drawn.values, pool);
    ::benchmark::DoNotOptimize(drawn.values.data());
  }
  SetBytes(state, n * sizeof(float));
}

void RegisterAll(std::size_t n, double density) {
  const std::string shape = At(n, density);
  Register("topk_select" + shape, [=](auto& s) {
    Select(s, "topk", {}, {n, density, "gaussian", Start::kCold});
  });
  Register("bloom_build" + shape, [=](auto& s) { Build(s, n, density); });
  Register("bloom_query" + shape, [=](auto& s) { Query(s, n, density); });
  Register("bloom_query_one_by_one" + shape, [=](auto& s) { QueryOneByOne(s, n, density); });
  for (const auto& [name, coding] :
       {std::pair{"/bloom", kBloom}, {"/fitted", kFitted}, {"/both", kBoth}}) {
    const PayloadCoding c = coding;
    Register(std::string("selection_encode") + shape + name,
             [=](auto& s) { Encode(s, c, n, density); });
    Register(std::string("selection_decode") + shape + name,
             [=](auto& s) { Decode(s, c, n, density); });
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterLimits();
  for (const std::size_t n : Sizes()) {
    for (const double density : {0.001, 0.01}) RegisterAll(n, density);
  }
  return Main(argc, argv);
}
