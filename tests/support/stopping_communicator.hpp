// Stops a rank after any of the messages that it sends, and collects what the others say.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "tests/support/forwarding_communicator.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {

// A rank that stops: of what it sends the first messages arrive, and nothing comes in afterwards.
class Stopping final : public ForwardingCommunicator {
 public:
  using Messages = std::shared_ptr<std::atomic<int>>;  // left to it; of all its groups
  Stopping(std::unique_ptr<Communicator> inner, Messages left)
      : ForwardingCommunicator(std::move(inner)), left_(std::move(left)) {}

  std::unique_ptr<Request> Isend(int to, int tag, std::span<const std::byte> data) override {
    if (--*left_ < 0) return std::make_unique<Never>(to);
    return ForwardingCommunicator::Isend(to, tag, data);
  }
  std::unique_ptr<Request> Irecv(int from, int tag, std::span<std::byte> buffer) override {
    if (*left_ <= 0) return std::make_unique<Never>(from);
    return ForwardingCommunicator::Irecv(from, tag, buffer);
  }
  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    return std::make_unique<Stopping>(SplitInner(color, key, deadline), left_);
  }

 private:
  class Never final : public Request {
   public:
    explicit Never(int peer) : peer_(peer) {}
    bool Test() override { return false; }
    std::size_t bytes() const noexcept override { return 0; }
    int peer() const noexcept override { return peer_; }

   private:
    int peer_;
  };

  Messages left_;
};

// A run of ranks, the first of which ends with an error that says what it waits for.
struct StoppedRun {
  int stopped;   // rank, not the first
  int messages;  // that it sends in a step, as long as it does not stop
  std::function<void(const Wrap&, std::chrono::milliseconds wait)> run;
};

// What the first rank says in the end, of each run and number of messages that arrive. Some runs
// are under way at once, since they wait; all at once would keep one another from answering.
inline std::vector<std::string> SaidWhereARankStops(const std::vector<StoppedRun>& runs) {
  constexpr std::chrono::milliseconds kWait{kSanitized ? 6000 : 3000};
  constexpr std::size_t kAtOnce = 24;
  std::vector<std::pair<const StoppedRun*, int>> cases;
  for (const StoppedRun& run : runs) {
    for (int sent = 0; sent < run.messages; ++sent) cases.emplace_back(&run, sent);
  }
  std::vector<std::string> said(cases.size());
  std::atomic<std::size_t> next{0};
  const auto run_cases = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      const auto& [run, sent] = cases[i];
      const auto left = std::make_shared<std::atomic<int>>(sent);
      const auto stop = [&](std::unique_ptr<Communicator> world) {
        if (world->rank() != run->stopped) return world;
        return std::unique_ptr<Communicator>(new Stopping(std::move(world), left));
      };
      try {
        run->run(stop, kWait);
        said[i] = "nothing";
      } catch (const Error& error) {
        said[i] = error.what();
      }
      const std::string expected = "rank " + std::to_string(run->stopped) + " does not answer";
      if (said[i].find(expected) != std::string::npos) said[i] = expected;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(kAtOnce, cases.size()); ++i) threads.emplace_back(run_cases);
  for (std::thread& thread : threads) thread.join();
  return said;
}

// Whichever of its messages is a rank's last, the others do not wait for it for ever, and say whose
// fault it is.
inline void ExpectTheStoppedRankIsNamed(const std::vector<StoppedRun>& runs) {
  const auto said = SaidWhereARankStops(runs);
  std::size_t i = 0;
  for (const StoppedRun& run : runs) {
    EXPECT_GT(run.messages, 1);
    for (int sent = 0; sent < run.messages; ++sent, ++i) {
      EXPECT_EQ(said[i], "rank " + std::to_string(run.stopped) + " does not answer")
          << "after " << sent << " messages of " << run.messages;
    }
  }
}

}  // namespace sparfuse::testing
