// Makes a world of transport `tcp` whose ranks are in this process.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/transport/tcp/tcp.hpp"

namespace sparfuse::testing {

// Rethrows the first rank's exception.
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
