// Times the transports: ping-pong latency and ring all-reduce throughput. They run over threads,
// over an emulated link of 1 Gbit/s, and over TCP of this host; two threads with a plain socket are
// the reference. `gbps` is one rank's sending rate, in 10^9 bit/s.
#include <benchmark/benchmark.h>
#include <netinet/in.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/collective/collective.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/shaped/shaped.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse {
namespace {

constexpr int kRanks = 2;
enum Transport : std::int64_t { kThreads, kShaped, kTcp };

// Two ranks of this process.
class Pair {
 public:
  explicit Pair(std::int64_t transport)
      : worlds_(transport == kTcp ? testing::MakeTcpWorlds(kRanks, 1)
                                  : MakeThreadsWorld(kRanks, 1)) {
    std::vector<std::future<std::unique_ptr<ProgressLoop>>> loops;  // ranks meet to be shaped
    for (auto& world : worlds_) {
      loops.push_back(std::async(std::launch::async, [&world, transport] {
        constexpr std::chrono::seconds kDeadline{60};
        return std::make_unique<ProgressLoop>(
            [&]() -> std::unique_ptr<Communicator> {
              if (transport != kShaped) return std::move(world);
              return MakeShaped(std::move(world), {{.gbps = 1.0, .alpha_seconds = 100e-6}},
                                kDeadline);
            },
            kDeadline);
      }));
    }
    for (auto& loop : loops) loops_.push_back(loop.get());
  }
  // Starts the task on rank 1, runs it on rank 0, and waits for both.
  void Run(const ProgressLoop::Make& make) {
    std::promise<void> ended;
    loops_[1]->Start(make, [&](std::exception_ptr error) {
      error ? ended.set_exception(error) : ended.set_value();
    });
    loops_[0]->RunBlocking(make);
    ended.get_future().get();
  }

 private:
  std::vector<std::unique_ptr<Communicator>> worlds_;
  std::vector<std::unique_ptr<ProgressLoop>> loops_;
};

constexpr int kRounds = 20;  // of an iteration

void CountOneWay(benchmark::State& state) {
  state.counters["one_way_seconds"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 2 * kRounds,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// The time of TCP alone: two blocking threads.
void BarePingPong(benchmark::State& state) {
  const Socket listener(::socket(AF_INET, SOCK_STREAM, 0));
  HostAddress address = ParseHost("127.0.0.1", 0);
  auto* const name = reinterpret_cast<sockaddr*>(&address.storage);
  ::bind(listener.get(), name, address.length);
  ::listen(listener.get(), 1);
  ::getsockname(listener.get(), name, &address.length);
  const Socket one(::socket(AF_INET, SOCK_STREAM, 0));
  ::connect(one.get(), name, address.length);
  const Socket two(::accept(listener.get(), nullptr, nullptr));
  SendAtOnce(one);
  SendAtOnce(two);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::thread echo([&] {
    std::vector<std::byte> data(bytes);
    while (::recv(two.get(), data.data(), bytes, MSG_WAITALL) > 0)
      ::send(two.get(), data.data(), bytes, MSG_NOSIGNAL);
  });
  std::vector<std::byte> data(bytes);
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) {
      ::send(one.get(), data.data(), bytes, MSG_NOSIGNAL);
      ::recv(one.get(), data.data(), bytes, MSG_WAITALL);
    }
  }
  ::shutdown(one.get(), SHUT_RDWR);
  echo.join();
  CountOneWay(state);
}

void PingPong(benchmark::State& state) {
  Pair pair(state.range(0));
  const auto bytes = static_cast<std::size_t>(state.range(1));
  std::vector<std::vector<std::byte>> data(kRanks, std::vector<std::byte>(bytes));
  for (auto _ : state) {
    pair.Run([&](Communicator& world) -> Task {
      const std::span<std::byte> own = data[static_cast<std::size_t>(world.rank())];
      for (int i = 0; i < 2 * kRounds; ++i) {
        if (i % 2 == world.rank()) {
          co_await Complete(world.Isend(1 - world.rank(), 0, own));
        } else {
          co_await Complete(world.Irecv(1 - world.rank(), 0, own));
        }
      }
    });
  }
  CountOneWay(state);
}

void RingAllReduce(benchmark::State& state) {
  Pair pair(state.range(0));
  const auto elements = static_cast<std::size_t>(state.range(1)) / sizeof(float);
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(elements));
  std::vector<ExchangeBuffers> buffers(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) buffers[rank].dense = data[rank];
  const auto ring = CoreCollective("ring-allreduce");
  for (auto _ : state) {
    pair.Run([&](Communicator& world) {
      return ring->Run(world, buffers[static_cast<std::size_t>(world.rank())], 0);
    });
  }
  const ExchangeSizes sizes{{}, std::vector<std::uint64_t>(kRanks, elements * sizeof(float)), {}};
  const double sent = static_cast<double>(ring->Rounds(sizes, {kRanks, 1}).per_rank[0].bytes_sent);
  state.counters["gbps"] = benchmark::Counter(sent * 8e-9 * static_cast<double>(state.iterations()),
                                              benchmark::Counter::kIsRate);
}

BENCHMARK(BarePingPong)
    ->ArgName("bytes")
    ->Arg(8)
    ->Arg(65536)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(PingPong)
    ->ArgNames({"transport", "bytes"})
    ->ArgsProduct({{kThreads, kShaped, kTcp}, {8, 65536}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(RingAllReduce)
    ->ArgNames({"transport", "bytes"})
    ->ArgsProduct({{kThreads, kShaped, kTcp}, {4'000'000}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sparfuse

BENCHMARK_MAIN();
