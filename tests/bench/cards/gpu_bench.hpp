// Holds the common parts of kernel benchmarks on a CUDA card: the card's time of a kernel, the
// limit kernels, and selections.
//
// Names, sizes, densities and data are those of kernel_bench.hpp, and results are read the same
// way: as multiples of the limit measured in the same run. Times are the card's, between two events
// around a few launches of the same work (kAtOnce). This hides the host's launch time if the card
// is busy for longer; with small n it does not, and a step sees this time, too. `x limit` is a
// selection's time over its limit kernel's, the two measured in turns.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/device/card.hpp"
#include "core/device/launch.hpp"
#include "core/device/runtime.hpp"
#include "core/sparsify/device_selection.hpp"
#include "tests/bench/cards/cub_peer.hpp"
#include "tests/bench/cards/gpu_limit_kernels.hpp"
#include "tests/bench/kernel_bench.hpp"
#include "tests/bench/torch_peer.hpp"

namespace sparfuse::bench {

inline constexpr Device kCard{DeviceKind::kCuda, 0};
inline constexpr int kAtOnce = 4;

// Sizes of the default run: a card processes all of them as fast as a host processes a million.
inline std::vector<std::size_t> GpuSizes() { return {100'000, 1'000'000, 25'600'000, kHuge}; }
inline std::vector<double> GpuDensities(std::size_t /*n*/) { return {0.001, 0.01, 0.05}; }
inline Grid GpuGrid() { return {GpuSizes(), GpuDensities}; }

class GpuTimer {
 public:
  // The time of one of kAtOnce calls.
  double SecondsOf(const Stream& stream, const auto& work) {
    begin_.Record(stream);
    for (int i = 0; i < kAtOnce; ++i) work();
    end_.Record(stream);
    end_.Wait();
    return end_.SecondsSince(begin_) / kAtOnce;
  }

  // The time of every iteration.
  void Time(::benchmark::State& state, const Stream& stream, const auto& work) {
    for (auto _ : state) state.SetIterationTime(SecondsOf(stream, work));
  }

 private:
  gpu::GpuEvent begin_{kCard};
  gpu::GpuEvent end_{kCard};
};

template <class T>
Buffer<T> CopyToCard(const Stream& stream, std::span<const T> from) {
  Buffer<T> buffer(from.size(), kCard, "the input of a benchmark");
  gpu::CopyAsync(stream, buffer.data(), from.data(), from.size_bytes());
  gpu::Synchronize(stream);
  return buffer;
}

inline Buffer<float> OnCard(const Stream& stream, const Floats& x) {
  return CopyToCard<float>(stream, x);
}

enum class GpuLimit { kSumAbs, kAdd, kMemset };

// Launches a limit kernel over n elements. residual: the output of kAdd and kMemset.
class LimitOnCard {
 public:
  LimitOnCard(GpuLimit limit, const Buffer<float>& x, const Buffer<float>& residual)
      : limit_(limit),
        x_(x),
        residual_(residual),
        blocks_(8 * static_cast<std::size_t>(gpu::MultiprocessorCount(kCard))),
        sums_(blocks_, kCard) {}

  void operator()(const Stream& stream) const {
    const std::size_t n = x_.size() / 4 * 4;
    switch (limit_) {
      case GpuLimit::kSumAbs:
        return gpu::Launch(stream, blocks_, SumAbsOnCard{x_.data(), n, sums_.data()});
      case GpuLimit::kAdd:
        return gpu::Launch(stream, blocks_, AddOnCard{x_.data(), n, residual_.data()});
      case GpuLimit::kMemset:
        return gpu::FillAsync(stream, residual_.data(), 0, n * sizeof(float));
    }
  }

 private:
  GpuLimit limit_;
  const Buffer<float>& x_;
  const Buffer<float>& residual_;
  std::size_t blocks_;
  Buffer<float> sums_;
};

void RegisterOnCard(const std::string& name, auto body) {
  ::benchmark::RegisterBenchmark(name.c_str(), body)
      ->Unit(::benchmark::kMicrosecond)
      ->UseManualTime()
      ->MinTime(0.02);
}

inline void LimitBench(::benchmark::State& state, std::size_t n, GpuLimit limit, int streams) {
  const gpu::GpuStream stream(kCard);
  const Buffer<float> x = OnCard(stream.view(), Data("gaussian", n));
  const Buffer<float> residual(limit == GpuLimit::kSumAbs ? 0 : n, kCard);
  const LimitOnCard run(limit, x, residual);
  GpuTimer().Time(state, stream.view(), [&] { run(stream.view()); });
  SetBytes(state, n * sizeof(float) * static_cast<std::size_t>(streams));
}

inline void RegisterGpuLimits() {
  for (const std::size_t n : GpuSizes()) {
    const auto add = [n](const std::string& name, GpuLimit limit, int streams) {
      RegisterOnCard("limit/" + name + At(n),
                     [=](auto& state) { LimitBench(state, n, limit, streams); });
    };
    add("sum_abs", GpuLimit::kSumAbs, 1);
    add("add", GpuLimit::kAdd, 3);
    add("memset", GpuLimit::kMemset, 1);
  }
}

// Times `work` and the limit in turns; `x limit` is the ratio of their times.
void TimeInTurns(::benchmark::State& state, const Stream& stream, std::size_t n,
                 const LimitOnCard& limit, const auto& work) {
  GpuTimer timer;
  double seconds = 0;
  double limit_seconds = 0;
  for (auto _ : state) {
    const double taken = timer.SecondsOf(stream, work);
    limit_seconds += timer.SecondsOf(stream, [&] { limit(stream); });
    seconds += taken;
    state.SetIterationTime(taken);
  }
  state.counters["x limit"] = seconds / limit_seconds;
  SetBytes(state, n * sizeof(float));
}

// Times `work` in turns with the limit of this kind.
void Compare(::benchmark::State& state, const Stream& stream, std::size_t n, GpuLimit kind,
             const auto& work) {
  const Buffer<float> x(n, kCard);
  const Buffer<float> written(kind == GpuLimit::kSumAbs ? 0 : n, kCard);
  const LimitOnCard limit(kind, x, written);
  work();
  TimeInTurns(state, stream, n, limit, work);
}

// Selects from the same tensor repeatedly.
inline void SelectOnCard(::benchmark::State& state, const std::string& sparsifier,
                         const Options& options, const SelectionCase& of,
                         const std::vector<std::int64_t>& shape = {}) {
  const auto& [n, density, data, start] = of;
  const gpu::GpuStream own(kCard);
  const Stream& stream = own.view();
  const Buffer<float> x = OnCard(stream, Data(data, n));
  const Buffer<float> residual(start == Start::kFeedback ? n : 0, kCard, "the residual");
  const SparsifierDescriptor& descriptor = FindSparsifier(sparsifier);
  const auto method = descriptor.make(ResolveOptions(sparsifier, descriptor.options, options), 1);
  const auto memory = start == Start::kCold ? nullptr : method->MakeDeviceState(n, kCard);
  const std::size_t capacity = SlotCapacityFor(descriptor, *method, n, shape, density);
  const Buffer<std::uint32_t> indices(capacity, kCard);
  const Buffer<float> values(capacity, kCard);
  const Buffer<SlotReport> report(1, kCard);
  DeviceWorkspace workspace(kCard);
  ThreadPool pool(1);
  Workspace host_workspace;
  SelectCounters host_counters;
  const SelectContext host{&pool, &host_workspace, &host_counters, {}};
  DeviceSlot slot{indices.data(), values.data(), capacity, report.data()};
  std::uint64_t step = 0;
  const auto run = [&] {
    method->SelectOnDevice({stream, &workspace, nullptr, &host},
                           {{x.data(), n, stream}, {residual.data(), residual.size(), stream}},
                           density, {1, "tensor", shape, step++}, memory.get(), slot);
  };
  // A residual takes a while to settle: at first the k-th magnitude grows from step to step.
  for (int warm_up = 0; warm_up < (start == Start::kFeedback ? 50 : 4); ++warm_up) run();
  gpu::FillAsync(stream, report.data(), 0, sizeof(SlotReport));  // the counters add up from here

  const Buffer<float> added(start == Start::kFeedback ? n : 0, kCard);
  const LimitOnCard limit(start == Start::kFeedback ? GpuLimit::kAdd : GpuLimit::kSumAbs, x, added);
  TimeInTurns(state, stream, n, limit, run);
  SlotReport counted;
  gpu::CopyAsync(stream, &counted, report.data(), sizeof(counted));
  gpu::Synchronize(stream);
  const auto steps = static_cast<double>(state.iterations()) * kAtOnce;
  const auto k = static_cast<double>(KeptCount(n, density));
  state.counters["fallbacks"] = counted.fallbacks / steps;
  state.counters["candidates/k"] = static_cast<double>(counted.candidates) / steps / k;
  state.counters["selected/k"] = counted.count / k;
}

inline void RegisterGpuSelections(const std::string& label, const std::string& sparsifier,
                                  const Options& options, std::initializer_list<Start> starts) {
  ForSelections(GpuGrid(), starts, [&](const std::string& keys, const SelectionCase& of) {
    RegisterOnCard(label + keys,
                   [=](auto& state) { SelectOnCard(state, sparsifier, options, of); });
  });
}

// Whether these are the largest magnitudes of x, as bits, in any order.
inline bool AreLargest(std::vector<std::uint32_t> found, const Floats& x) {
  std::vector<std::uint32_t> all(x.size());
  std::ranges::transform(x, all.begin(), [](float value) {
    return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  });
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(found.size());
  std::ranges::nth_element(all, middle, std::ranges::greater());
  std::sort(all.begin(), middle);
  std::ranges::sort(found);
  return std::equal(found.begin(), found.end(), all.begin());
}

// torch.topk on the card, if LibTorch is built in.
inline void RegisterTorchOnCard() {
#if defined(SPARFUSE_BENCH_TORCH) && defined(SPARFUSE_CUDA)
  ForDensities(GpuGrid(), [](std::size_t n, double density) {
    RegisterOnCard("torch.topk" + At(n, density) + "/data:gaussian", [=](auto& state) {
      const gpu::GpuStream stream(kCard);
      const Buffer<float> x = OnCard(stream.view(), Data("gaussian", n));
      const auto select = TorchTopKOnCard(x.data(), n, KeptCount(n, density), stream.view());
      select();
      GpuTimer().Time(state, stream.view(), select);
      FreeTorchMemoryOnCard();
    });
  });
#endif
}

// CUB's selections on the card. A selection is compared with the k largest magnitudes before it is
// timed.
inline void RegisterCubOnCard() {
  for (const CubRival& rival : CubRivals()) {
    ForDensities(GpuGrid(), [&](std::size_t n, double density) {
      RegisterOnCard(rival.name + At(n, density) + "/data:gaussian", [=](auto& state) {
        const gpu::GpuStream stream(kCard);
        const Floats& host = Data("gaussian", n);
        const Buffer<float> x = OnCard(stream.view(), host);
        const std::size_t k = KeptCount(n, density);
        const auto select = rival.make(x.data(), n, k, stream.view());
        std::vector<std::uint32_t> found(k);
        gpu::CopyAsync(stream.view(), found.data(), select().magnitudes, k * sizeof(std::uint32_t));
        gpu::Synchronize(stream.view());
        if (!AreLargest(found, host)) {
          state.SkipWithError("does not select the k largest magnitudes");
          return;
        }
        GpuTimer().Time(state, stream.view(), select);
      });
    });
  }
}

// Like Main; if no card can be used, it prints the reason and returns 2.
inline int GpuMain(int argc, char** argv) {
  const std::string why = WhyNoCuda();
  if (!why.empty()) {
    std::fprintf(stderr, "no CUDA device: %s\n", why.c_str());
    return 2;
  }
  return Main(argc, argv);
}

}  // namespace sparfuse::bench
