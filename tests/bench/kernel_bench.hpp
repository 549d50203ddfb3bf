// Holds the common parts of the kernel benchmarks: data, the limit kernels, and counters.
//
// Read a kernel's time as a multiple of its limit, which is one streaming pass over the same tensor
// in the same run (--benchmark_enable_random_interleaving=true --benchmark_repetitions=15). Times
// do not carry over to another machine, but ratios do.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/sparsify/sparsifier.hpp"
#ifdef SPARFUSE_BENCH_TORCH
#include "tests/bench/torch_peer.hpp"
#endif

namespace sparfuse::bench {

// 64-byte aligned, like LibTorch's tensors and the engine's buffers.
template <class T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U>
  Aligned(const Aligned<U>&) {}
  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* pointer, std::size_t) { ::operator delete (pointer, std::align_val_t{64}); }
  bool operator==(const Aligned&) const = default;
};
using Floats = std::vector<float, Aligned<float>>;

// Sizes of the default run. A run with SPARFUSE_BENCH_LARGE=1 adds 25.6 and 110 million, which
// exceed most caches and all caches.
inline constexpr std::size_t kHuge = 110'000'000;
inline std::vector<std::size_t> Sizes() {
  std::vector<std::size_t> sizes = {100'000, 1'000'000};
  const char* large = std::getenv("SPARFUSE_BENCH_LARGE");
  if (large != nullptr && std::strcmp(large, "1") == 0) {
    sizes.insert(sizes.end(), {25'600'000, kHuge});
  }
  return sizes;
}

inline int Threads() {
  const char* threads = std::getenv("SPARFUSE_BENCH_THREADS");
  return threads == nullptr ? 1 : std::max(1, std::atoi(threads));
}

// Box-Muller: Gaussian values from the sum of four uniform ones would have no tail. The generator
// makes 25 million values in seconds.
inline Floats Gaussian(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Floats x(n + 1);
  for (std::size_t i = 0; i < n; i += 2) {
    const std::uint64_t bits = random();
    const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;
    const float v = static_cast<float>((bits >> 8) & 0xffffff) * 0x1p-24f;
    const float radius = std::sqrt(-2.0f * std::log(u));
    x[i] = radius * std::cos(6.2831853f * v);
    x[i + 1] = radius * std::sin(6.2831853f * v);
  }
  x.resize(n);
  return x;
}

// turn: selects another tensor of the same kind, like the next step's gradient.
inline const Floats& Data(const std::string& name, std::size_t n, std::size_t turn = 0) {
  static std::map<std::tuple<std::string, std::size_t, std::size_t>, Floats> cache;
  auto [it, fresh] = cache.try_emplace({name, n, turn});
  if (!fresh) return it->second;
  Floats& x = it->second;
  if (name == "equal") {
    x.assign(n, 0.25f);
    return x;
  }
  if (name == "ulps" || name == "staircase") {  // neighbours in magnitude; few, each repeated often
    for (std::size_t i = 0; i < n; ++i) {
      const auto step =
          static_cast<std::uint32_t>(name == "ulps" ? i * 2654435761u % n : i * 64 / n);
      const std::uint32_t bits = 0x3f000000u + (name == "ulps" ? step : step << 16);
      x.push_back(std::bit_cast<float>(bits | static_cast<std::uint32_t>(i % 2) << 31));
    }
    return x;
  }
  x = Gaussian(n, 1 + turn);
  if (name == "sorted" || name == "reversed") {
    std::sort(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    if (name == "reversed") std::reverse(x.begin(), x.end());
  } else if (name == "two") {
    for (float& each : x) each = each < 0 ? 0.5f : 1.0f;
  } else if (name == "clustered") {  // all large values lie together
    for (std::size_t i = 0; i < n; ++i) x[i] *= i / (n / 50 + 1) == 20 ? 1.0f : 1e-3f;
  } else if (name == "outlier") {
    x[n / 3] = 1e38f;
  } else if (name == "denormal") {  // and zeros of both signs
    for (float& each : x) each *= 1e-39f;
  } else if (name == "layers") {  // 32 neighbouring layers, their scales over four decades
    for (std::size_t i = 0; i < n; ++i) {
      x[i] *= std::pow(10.0f, -4.0f * static_cast<float>((i * 32 / n) * 7 % 32) / 32.0f);
    }
  } else if (name == "sparse") {  // 99 % zeros
    std::mt19937 random(2);
    for (std::size_t i = 0; i < n; ++i) x[i] = random() % 100 == 0 ? x[i] : 0.0f;
  }
  return x;
}

inline void SetBytes(::benchmark::State& state, std::size_t bytes_of_an_iteration) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes_of_an_iteration));
}

inline std::vector<double> Densities(std::size_t n) {
  return n < kHuge ? std::vector<double>{0.001, 0.01, 0.05} : std::vector<double>{0.01};
}

inline std::vector<std::string> DataNames(std::size_t n) {
  if (n >= kHuge) return {"gaussian"};
  return {"gaussian", "layers", "equal", "sparse"};
}

// Kinds of data on which selections have been slow, here or elsewhere.
inline const std::vector<std::string>& HardDataNames() {
  static const std::vector<std::string> names = {"sorted", "reversed",  "two",     "clustered",
                                                 "ulps",   "staircase", "outlier", "denormal"};
  return names;
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define SPARFUSE_BENCH_ALL_ISAS __attribute__((target_clones("avx512f", "avx2", "default")))
#define SPARFUSE_BENCH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define SPARFUSE_BENCH_ALL_ISAS
#define SPARFUSE_BENCH_AVX2
#endif

// 32 partial sums, so that the additions of one vector do not wait for the previous ones. More sums
// or wider vectors take up to twice as long if the tensor exceeds the caches; a limit that a kernel
// beats is no limit.
SPARFUSE_BENCH_AVX2 inline float SumAbsOnce(const float* x, std::size_t n) {
  float sums[32] = {};
  for (std::size_t i = 0; i + 32 <= n; i += 32) {
    for (std::size_t j = 0; j < 32; ++j) sums[j] += std::fabs(x[i + j]);
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

SPARFUSE_BENCH_ALL_ISAS inline void AddOnce(const float* x, std::size_t n, float* residual) {
  for (std::size_t i = 0; i < n; ++i) residual[i] += x[i];
}

// A payload of k elements drawn at random from n.
struct Payload {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

inline const Payload& MakePayload(std::size_t n, double density) {
  static std::map<std::pair<std::size_t, double>, Payload> cache;
  auto [it, fresh] = cache.try_emplace({n, density});
  Payload& payload = it->second;
  if (!fresh) return payload;
  std::mt19937 random(3);
  const auto bound = static_cast<std::uint32_t>(density * 4294967295.0);
  for (std::size_t i = 0; i < n; ++i) {
    if (random() > bound) continue;
    payload.indices.push_back(static_cast<std::uint32_t>(i));
    payload.values.push_back(Data("gaussian", n)[i]);
  }
  return payload;
}

// The limit of a selection: one read of the tensor.
inline void SumAbs(::benchmark::State& state, std::size_t n, std::size_t turns = 1) {
  std::size_t step = 0;
  for (std::size_t turn = 0; turn < turns; ++turn) Data("gaussian", n, turn);
  for (auto _ : state) {
    ::benchmark::DoNotOptimize(SumAbsOnce(Data("gaussian", n, step++ % turns).data(), n));
  }
  SetBytes(state, n * sizeof(float));
}

// The limit of a selection with error feedback: residual += gradient.
inline void AddResidual(::benchmark::State& state, std::size_t n, std::size_t turns = 1) {
  std::size_t step = 0;
  for (std::size_t turn = 0; turn < turns; ++turn) Data("gaussian", n, turn);
  Floats residual(n, 0.0f);
  for (auto _ : state) {
    AddOnce(Data("gaussian", n, step++ % turns).data(), n, residual.data());
    ::benchmark::DoNotOptimize(residual.data());
    ::benchmark::ClobberMemory();
  }
  SetBytes(state, n * 3 * sizeof(float));
}

// A cold start has no state of the step before.
enum class Start { kCold, kWarm, kFeedback };

struct SelectionCase {
  std::size_t n;
  double density;
  std::string data;
  Start start;
};

// Selects repeatedly from `turns` tensors in turn. With one tensor, the selection is the same in
// every step. With several, each gradient is new, as in a training step.
inline void Select(::benchmark::State& state, const std::string& sparsifier, const Options& options,
                   const SelectionCase& of, const std::vector<std::int64_t>& shape = {},
                   std::size_t turns = 1) {
  const auto& [n, density, data, start] = of;
  std::vector<const float*> gradients;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    gradients.push_back(Data(data, n, turn).data());
  }
  const SparsifierDescriptor& descriptor = FindSparsifier(sparsifier);
  const auto method = descriptor.make(ResolveOptions(sparsifier, descriptor.options, options), 1);
  const auto memory = start == Start::kCold ? nullptr : method->MakeState(n);
  ThreadPool pool(Threads());
  Workspace workspace;
  SelectCounters counters;
  const std::size_t capacity = SlotCapacityFor(descriptor, *method, n, shape, density);
  std::vector<std::uint32_t> indices(capacity);
  Floats values(capacity);
  Floats residual(start == Start::kFeedback ? n : 0, 0.0f);
  Slot slot{{indices.data(), capacity, {}}, {values.data(), capacity, {}}, capacity, 0};
  std::uint64_t step = 0;
  const auto run = [&] {
    method->Select({&pool, &workspace, &counters, {}},
                   {{gradients[step % turns], n, {}}, {residual.data(), residual.size(), {}}},
                   density, {1, "tensor", shape, step++}, memory.get(), slot);
  };
  // A residual takes a while to settle: at first the k-th magnitude grows from step to step.
  for (int warm_up = 0; warm_up < (start == Start::kFeedback ? 50 : 3); ++warm_up) run();
  const SelectCounters before = counters;
  for (auto _ : state) run();
  const auto steps = static_cast<double>(counters.selections - before.selections);
  state.counters["fallbacks"] = static_cast<double>(counters.fallbacks - before.fallbacks) / steps;
  state.counters["candidates/k"] = static_cast<double>(counters.candidates - before.candidates) /
                                   steps / static_cast<double>(KeptCount(n, density));
  state.counters["selected/k"] =
      static_cast<double>(slot.count) / static_cast<double>(KeptCount(n, density));
  SetBytes(state, n * sizeof(float));
}

inline std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// The keys of a row's name.
inline std::string At(std::size_t n) { return "/n:" + std::to_string(n); }
inline std::string At(std::size_t n, double density) {
  return At(n) + "/density:" + Number(density);
}

void Register(const std::string& name, auto body) {
  ::benchmark::RegisterBenchmark(name.c_str(), body)
      ->Unit(::benchmark::kMicrosecond)
      ->UseRealTime()
      ->MinTime(0.1);
}

inline void RegisterLimits(std::size_t n, std::size_t turns = 1) {
  Register("limit/sum_abs" + At(n), [=](auto& state) { SumAbs(state, n, turns); });
  Register("limit/add" + At(n), [=](auto& state) { AddResidual(state, n, turns); });
}

inline void RegisterLimits() {
  for (const std::size_t n : Sizes()) RegisterLimits(n);
}

// The magnitudes of n elements, as rows of `length`, partitioned at the k-th of each row.
inline void NthElement(::benchmark::State& state, std::size_t n, std::size_t length, double density,
                       const std::string& data) {
  const Floats& x = Data(data, n);
  const auto k = static_cast<std::ptrdiff_t>(KeptCount(length, density));
  std::vector<float> magnitudes(length);
  for (auto _ : state) {
    for (std::size_t row = 0; row < n; row += length) {
      std::transform(x.data() + row, x.data() + row + length, magnitudes.begin(),
                     [](float v) { return std::fabs(v); });
      std::nth_element(magnitudes.begin(), magnitudes.begin() + k - 1, magnitudes.end(),
                       std::greater<>());
      ::benchmark::DoNotOptimize(magnitudes.data());
    }
  }
  SetBytes(state, n * sizeof(float));
}

// torch.topk as a peer, if LibTorch is built in: n elements as rows of `length`.
inline void RegisterTorch([[maybe_unused]] const std::string& name, [[maybe_unused]] std::size_t n,
                          [[maybe_unused]] std::size_t length, [[maybe_unused]] double density) {
#ifdef SPARFUSE_BENCH_TORCH
  Register("torch.topk" + name + "/data:gaussian", [=](auto& state) {
    const auto select = TorchTopK(Data("gaussian", n).data(), n / length, length,
                                  KeptCount(length, density), Threads());
    for (auto _ : state) select();
    SetBytes(state, n * sizeof(float));
  });
#endif
}

// The sizes of a program's rows, and the densities at each size.
struct Grid {
  std::vector<std::size_t> sizes = Sizes();
  std::vector<double> (*densities)(std::size_t n) = Densities;
};

void ForDensities(const Grid& grid, const auto& add) {
  for (const std::size_t n : grid.sizes) {
    for (const double density : grid.densities(n)) add(n, density);
  }
}

// Calls add(the keys of the row, the case) at every size, density and kind of data.
void ForSelections(const Grid& grid, std::initializer_list<Start> starts, const auto& add) {
  static constexpr const char* kStarts[] = {"/cold", "/warm", "/feedback"};
  ForDensities(grid, [&](std::size_t n, double density) {
    for (const std::string& data : DataNames(n)) {
      for (const Start start : starts) {
        add(At(n, density) + "/data:" + data + kStarts[static_cast<int>(start)],
            SelectionCase{n, density, data, start});
      }
    }
  });
}

inline void RegisterSelections(const std::string& label, const std::string& sparsifier,
                               const Options& options, std::initializer_list<Start> starts) {
  ForSelections({}, starts, [&](const std::string& keys, const SelectionCase& of) {
    Register(label + keys, [=](auto& state) { Select(state, sparsifier, options, of); });
  });
}

// The limits, and LibTorch's time for a selection of as many elements.
inline void RegisterLimitsAndTorch() {
  RegisterLimits();
  ForDensities({},
               [](std::size_t n, double density) { RegisterTorch(At(n, density), n, n, density); });
}

inline int Main(int argc, char** argv) {
  ::benchmark::Initialize(&argc, argv);
  if (::benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  ::benchmark::RunSpecifiedBenchmarks();
  ::benchmark::Shutdown();
  return 0;
}

}  // namespace sparfuse::bench
