// Times decompression of P ranks' payloads against one memset of the output, and against the naive
// form that ignores the cache: clear all, add rank by rank, scale all.
#include "core/payload/accumulate.hpp"
#include "tests/bench/kernel_bench.hpp"
#include "tests/bench/random_payloads.hpp"

namespace sparfuse::bench {
namespace {

void Memset(::benchmark::State& state, std::size_t n) {
  std::vector<float> out(n);
  for (auto _ : state) {
    std::memset(out.data(), 0, n * sizeof(float));
    ::benchmark::DoNotOptimize(out.data());
    ::benchmark::ClobberMemory();
  }
  SetBytes(state, n * sizeof(float));
}

void Accumulate(::benchmark::State& state, std::size_t n, std::size_t ranks, double density) {
  const Payloads& payloads = MakePayloads(n, ranks, density);
  ThreadPool pool(Threads());
  std::vector<float> out(n);
  for (auto _ : state) {
    AccumulateSparse(payloads.views, 1.0f / static_cast<float>(ranks), out, pool);
    ::benchmark::DoNotOptimize(out.data());
  }
  SetBytes(state, n * sizeof(float));
}

void PassByPass(::benchmark::State& state, std::size_t n, std::size_t ranks, double density) {
  const Payloads& payloads = MakePayloads(n, ranks, density);
  std::vector<float> out(n);
  for (auto _ : state) {
    std::memset(out.data(), 0, n * sizeof(float));
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < payloads.indices[r].size(); ++i) {
        out[payloads.indices[r][i]] += payloads.values[r][i];
      }
    }
    for (float& o : out) o *= 1.0f / static_cast<float>(ranks);
    ::benchmark::DoNotOptimize(out.data());
    ::benchmark::ClobberMemory();
  }
  SetBytes(state, n * sizeof(float));
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  for (const std::size_t n : Sizes()) {
    Register("limit/memset" + At(n), [=](auto& state) { Memset(state, n); });
    for (const std::size_t ranks : {2u, 4u, 16u}) {
      for (const double density : {0.001, 0.01, 0.05}) {
        const std::string keys = At(n, density) + "/ranks:" + std::to_string(ranks);
        Register("accumulate" + keys, [=](auto& s) { Accumulate(s, n, ranks, density); });
        Register("pass_by_pass" + keys, [=](auto& s) { PassByPass(s, n, ranks, density); });
      }
    }
  }
  return Main(argc, argv);
}
