// Stops a rank after any of its messages, and collects the errors of the other ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "tests/support/communicators/forwarding_communicator.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {

// A rank that stops: its first messages arrive, later ones do not, and from then on it receives
// nothing.
class Stopping final : public ForwardingCommunicator {
 public:
  using Messages = std::shared_ptr<std::atomic<int>>;  // messages left, shared by its groups
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
    int peer() const noexcept override { return peer_; }

   private:
    int peer_;
  };

  Messages left_;
};

// A run of ranks whose first rank ends with an error that names the rank it waits for.
struct StoppedRun {
  int stopped;   // rank, not the first
  int messages;  // number that it sends in a step if it does not stop
  std::function<void(const Wrap&, std::chrono::milliseconds wait)> run;
};

// The final error of the first rank, for each run and each number of messages that arrive. Some
// runs wait at the same time; if all ran at once, they would keep one another from answering.
inline std::vector<std::string> SaidWhereARankStops(const std::vector<StoppedRun>& runs) {
  constexpr std::chrono::milliseconds kWait{kSanitized ? 6000 : 3000};
  constexpr std::size_t kAtOnce = 24;
  std::vector<std::pair<const StoppedRun*, int>> cases;
  for (const StoppedRun& run : runs) {
    for (int sent = 0; sent < run.messages; ++sent) cases.emplace_back(&run, sent);
  }
  std::vector<std::string> said(cases.size());
  std::atomic<std::size_t> next{0};
  OnThreads(std::min(kAtOnce, cases.size()), [&](std::size_t) {
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
  });
  return said;
}

// Expects that the other ranks do not wait forever, whichever message is the rank's last, and that
// their errors name the stopped rank.
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
