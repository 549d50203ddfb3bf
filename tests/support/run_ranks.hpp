// Runs a function on every rank of a world, each rank with its own communication thread, and runs
// collectives there. Also makes worlds of transport `tcp` whose ranks are in this process.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/collective/collective.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/tcp/tcp.hpp"
#include "core/transport/threads.hpp"

namespace sparfuse::testing {

// A rank that waits longer than this hangs.
inline constexpr std::chrono::milliseconds kDeadline{60'000};

// The longest time that ranks wait for one another, whatever deadline a test gives. `sparfuse
// check` shortens it, since a part of somebody's may wait for ever.
inline std::chrono::milliseconds& LongestWait() {
  static std::chrono::milliseconds longest = std::chrono::hours(1);
  return longest;
}

// Calls body(i) for each i below `count`, each on a thread of its own. Rethrows the exception of
// the least i after all have ended.
inline void OnThreads(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> errors(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Calls body(loop) on a thread of each rank. A loop lives until every rank's body has returned, so
// that no rank finds another lost. Rethrows the first rank's exception after all have ended.
// `wrap` may put another transport around a rank's world; it is called on all ranks at once.
using WrapWorld = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
inline void RunRanksOver(
    std::vector<std::unique_ptr<Communicator>> worlds, std::chrono::milliseconds deadline,
    const std::function<void(ProgressLoop&)>& body,
    const WrapWorld& wrap = [](std::unique_ptr<Communicator> world) { return world; }) {
  std::vector<std::unique_ptr<ProgressLoop>> loops(worlds.size());
  OnThreads(worlds.size(), [&](std::size_t rank) {
    loops[rank] =
        std::make_unique<ProgressLoop>([&] { return wrap(std::exchange(worlds[rank], nullptr)); },
                                       std::min(deadline, LongestWait()));
    body(*loops[rank]);
  });
}

// Runs the ranks over transport `threads`.
inline void RunRanks(
    int ranks, int ranks_per_node, std::chrono::milliseconds deadline,
    const std::function<void(ProgressLoop&)>& body,
    const WrapWorld& wrap = [](std::unique_ptr<Communicator> world) { return world; }) {
  RunRanksOver(MakeThreadsWorld(ranks, ranks_per_node), deadline, body, wrap);
}

// Runs a collective on this rank and returns what the rank sent and received.
inline Traffic RunCounted(ProgressLoop& loop, const Collective& collective,
                          ExchangeBuffers& buffers, int tag = 32) {
  Traffic counted;
  loop.RunBlocking([&](Communicator& world) -> Task {
    const Traffic before = Total(world.traffic());
    co_await collective.Run(world, buffers, tag);
    counted = Total(world.traffic()) - before;
  });
  return counted;
}

// The same of a collective that sums `data` in place.
inline Traffic SumCounted(ProgressLoop& loop, const Collective& collective, std::span<float> data,
                          int tag = 32) {
  ExchangeBuffers buffers;
  buffers.dense = data;
  return RunCounted(loop, collective, buffers, tag);
}

// Ranks that listen on this host.
struct TcpRanks {
  std::vector<TcpListener> listeners;
  std::vector<std::string> addresses;

  explicit TcpRanks(std::size_t ranks) : listeners(ranks) {
    for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  }
  // The world of one rank, which stops to listen.
  std::unique_ptr<Communicator> World(std::size_t rank,
                                      std::chrono::milliseconds deadline = kDeadline,
                                      const TcpSignals& signals = {}, int ranks_per_node = 1) {
    return MakeTcpWorld(std::move(listeners[rank]), addresses, static_cast<int>(rank),
                        ranks_per_node, deadline, signals);
  }
};

// The worlds of ranks that listen on this host. Rethrows the first rank's exception.
inline std::vector<std::unique_ptr<Communicator>> MakeTcpWorlds(
    int ranks, int ranks_per_node, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  TcpRanks here(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Communicator>> worlds(here.listeners.size());
  OnThreads(worlds.size(), [&](std::size_t rank) {
    worlds[rank] = here.World(rank, deadline, {}, ranks_per_node);
  });
  return worlds;
}

}  // namespace sparfuse::testing
