// Runs a function on every rank of a world, each rank with its own communication thread. Also makes
// worlds of transport `tcp` whose ranks are in this process.
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

// Calls body(loop) on a thread of each rank. A loop lives until every rank's body has returned, so
// that no rank finds another lost. Rethrows the first rank's exception after all have ended.
// `wrap` may put another transport around a rank's world; it is called on all ranks at once.
using WrapWorld = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
inline void RunRanksOver(
    std::vector<std::unique_ptr<Communicator>> worlds, std::chrono::milliseconds deadline,
    const std::function<void(ProgressLoop&)>& body,
    const WrapWorld& wrap = [](std::unique_ptr<Communicator> world) { return world; }) {
  std::vector<std::unique_ptr<ProgressLoop>> loops(worlds.size());
  std::vector<std::exception_ptr> errors(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < worlds.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        loops[rank] = std::make_unique<ProgressLoop>(
            [&] { return wrap(std::exchange(worlds[rank], nullptr)); },
            std::min(deadline, LongestWait()));
        body(*loops[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Runs the ranks over transport `threads`.
inline void RunRanks(
    int ranks, int ranks_per_node, std::chrono::milliseconds deadline,
    const std::function<void(ProgressLoop&)>& body,
    const WrapWorld& wrap = [](std::unique_ptr<Communicator> world) { return world; }) {
  RunRanksOver(MakeThreadsWorld(ranks, ranks_per_node), deadline, body, wrap);
}

// The worlds of ranks that listen on this host. Rethrows the first rank's exception.
inline std::vector<std::unique_ptr<Communicator>> MakeTcpWorlds(
    int ranks, int ranks_per_node, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  std::vector<TcpListener> listeners(static_cast<std::size_t>(ranks));
  std::vector<std::string> addresses;
  for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  std::vector<std::unique_ptr<Communicator>> worlds(listeners.size());
  std::vector<std::exception_ptr> errors(listeners.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < listeners.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        worlds[rank] = MakeTcpWorld(std::move(listeners[rank]), addresses, static_cast<int>(rank),
                                    ranks_per_node, deadline);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return worlds;
}

}  // namespace sparfuse::testing
