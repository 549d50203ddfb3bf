// Tests the features of transport `tcp` alone: addresses, strangers, missing ranks, dying
// processes. The laws of all transports are in conformance_test.cpp.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using std::chrono::milliseconds;

int PortOf(const std::string& address) { return std::stoi(address.substr(address.find(' ') + 1)); }

// A connection to a port of this host.
Socket Connected(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  HostAddress address = ParseHost("127.0.0.1", port);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), address.length),
            0);
  return socket;
}

std::string HostOf(const TcpListener& listener) {
  return listener.address().substr(0, listener.address().find(' '));
}

std::string UntilFailure(Communicator& world, Request& request) {
  return FailureOf([&] {
    while (!request.Test()) world.Idle(kDeadline);
  });
}

TEST(TcpListener, ListensWhereItIsTold) {
  EXPECT_EQ(HostOf(TcpListener()), "127.0.0.1");
  EXPECT_EQ(HostOf(TcpListener("lo")), "127.0.0.1");
  EXPECT_EQ(HostOf(TcpListener("127.0.0.2")), "127.0.0.2");
  EXPECT_EQ(HostOf(TcpListener("", "127.0.0.3")), "127.0.0.1");
  EXPECT_EQ(HostOf(TcpListener("", "no-such-host.invalid")), "127.0.0.1");
  const std::string failure = FailureOf([] { TcpListener listener("nothing0"); });
  EXPECT_SAYS(failure, "config: interface \"nothing0\": this host has no interface of that name");
  EXPECT_SAYS(failure, "lo");
  EXPECT_SAYS(FailureOf([] { TcpListener listener("192.0.2.1"); }),
              "config: interface \"192.0.2.1\": cannot listen at 192.0.2.1");
}

TEST(TcpListener, TokensDiffer) {
  const auto token = [](const TcpListener& listener) {
    return listener.address().substr(listener.address().rfind(' '));
  };
  EXPECT_NE(token(TcpListener()), token(TcpListener()));
}

TEST(TcpTransport, AddressesThatNoListenerMadeAreRefused) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1 0 00000000000000000000000000000000",
                              "127.0.0.1 80 abc", "host 80 00000000000000000000000000000000"}) {
    TcpListener listener;
    const std::vector<std::string> addresses{address, listener.address()};
    EXPECT_SAYS(FailureOf([&] {
                  (void)MakeTcpWorld(std::move(listener), addresses, 1, 1, milliseconds(100));
                }),
                "config: ");
  }
}

TEST(TcpTransport, StrangersAreTurnedAway) {
  TcpRanks ranks(2);
  const int port = PortOf(ranks.addresses[0]);
  // One speaks another protocol, one has no token, the others say nothing.
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(Connected(port));
  const std::string http =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: everything there is\r\n\r\n";
  ASSERT_GT(::send(strangers[1].get(), http.data(), http.size(), MSG_NOSIGNAL), 0);
  const std::string zeros(48, '\0');
  ASSERT_GT(::send(strangers[2].get(), zeros.data(), zeros.size(), MSG_NOSIGNAL), 0);
  std::vector<std::unique_ptr<Communicator>> worlds(2);
  OnThreads(2, [&](std::size_t rank) { worlds[rank] = ranks.World(rank); });
  for (const Socket& stranger : strangers) {
    char byte = 0;
    EXPECT_LE(::recv(stranger.get(), &byte, 1, 0), 0);
  }
  int value = 5;
  int received = 0;
  const auto send = worlds[0]->Isend(1, 0, Bytes(value));
  const auto receive = worlds[1]->Irecv(0, 0, Room(received));
  while (!receive->Test()) worlds[1]->Idle(milliseconds(1));
  EXPECT_EQ(received, 5);
  // Later no socket listens.
  Socket late(::socket(AF_INET, SOCK_STREAM, 0));
  HostAddress address = ParseHost("127.0.0.1", port);
  EXPECT_NE(::connect(late.get(), reinterpret_cast<sockaddr*>(&address.storage), address.length),
            0);
}

TEST(TcpTransport, RankThatDoesNotComeIsNamedWithBothAddresses) {
  TcpRanks ranks(2);
  const std::vector<std::string>& addresses = ranks.addresses;
  const std::string failure = FailureOf([&] { (void)ranks.World(0, milliseconds(50)); });
  EXPECT_SAYS(failure, "timeout: tcp: no connection between rank 0 at 127.0.0.1:" +
                           std::to_string(PortOf(addresses[0])) + " and rank 1 at 127.0.0.1:" +
                           std::to_string(PortOf(addresses[1])) + " within 50 ms");
  // The port of rank 0 is closed.
  const std::string gone = FailureOf([&] { (void)ranks.World(1); });
  EXPECT_SAYS(gone, "comm: tcp: rank 1 at 127.0.0.1 does not reach rank 0 at 127.0.0.1:" +
                        std::to_string(PortOf(addresses[0])) +
                        " (Connection refused); it has ended");
}

TEST(TcpTransport, WaitForRanksIsStopped) {
  TcpRanks ranks(2);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_SAYS(FailureOf([&] { (void)ranks.World(0, kDeadline, {stop.get_token()}); }),
              "comm: tcp: stopped before all ranks had connected");
}

TEST(TcpTransport, RankThatEndsBeforeItConnectsIsNamedBeforeTheDeadline) {
  TcpRanks ranks(3);
  const std::vector<std::string>& addresses = ranks.addresses;
  // Rank 2 has left when the others begin, rank 1 leaves because of it.
  ranks.listeners.pop_back();
  OnThreads(2, [&](std::size_t rank) {
    const std::string failure = FailureOf([&] { (void)ranks.World(rank, std::chrono::hours(1)); });
    EXPECT_EQ(failure, "comm: tcp: rank 2 at 127.0.0.1:" + std::to_string(PortOf(addresses[2])) +
                           " is lost before it has connected to rank " + std::to_string(rank) +
                           " at 127.0.0.1:" + std::to_string(PortOf(addresses[rank])));
  });
}

TEST(TcpTransport, AnswerOfAnotherWorldIsRefused) {
  TcpRanks ranks(2);
  std::vector<std::string> others = ranks.addresses;
  others[0].back() = others[0].back() == '0' ? '1' : '0';
  std::thread first([&] {
    EXPECT_SAYS(FailureOf([&] { (void)ranks.World(0); }),
                "is lost before it has connected to rank 0");
  });
  EXPECT_SAYS(FailureOf([&] {
                (void)MakeTcpWorld(std::move(ranks.listeners[1]), others, 1, 1, kDeadline);
              }),
              "is not rank 0 of 2");
  first.join();
}

// The kernel closes the connections of a killed process. All ranks notice it at once, whichever
// rank they wait for.
TEST(TcpTransport, KilledProcessIsNamedByWhoWaitsForAnotherRank) {
  TcpRanks ranks(3);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ranks.listeners[0] = TcpListener();
    ranks.listeners[1] = TcpListener();
    const auto world = ranks.World(2);
    while (true) world->Idle(std::chrono::seconds(1));
  }
  std::vector<std::unique_ptr<Communicator>> worlds(2);
  OnThreads(2, [&](std::size_t rank) { worlds[rank] = ranks.World(rank); });
  int value = 0;
  const auto receive = worlds[0]->Irecv(1, 0, Room(value));
  EXPECT_FALSE(receive->Test());
  kill(child, SIGKILL);
  EXPECT_EQ(UntilFailure(*worlds[0], *receive), "comm: rank 2 is lost");
  // A rank that leaves because of a lost rank tells the others which one.
  ranks.listeners.clear();
  waitpid(child, nullptr, 0);
  worlds[0].reset();
  const auto later = worlds[1]->Irecv(0, 0, Room(value));
  EXPECT_EQ(UntilFailure(*worlds[1], *later), "comm: rank 2 is lost");
}

// A loader's process, forked from a rank, outlives it: its copies of the connections must not hide
// that the rank has died.
TEST(TcpTransport, KilledProcessIsLostThoughItsChildLives) {
  TcpRanks ranks(2);
  int begun[2], ends[2];
  ASSERT_EQ(pipe(begun), 0);
  ASSERT_EQ(pipe(ends), 0);
  char byte = 0;
  const pid_t rank = fork();
  ASSERT_GE(rank, 0);
  if (rank == 0) {
    close(ends[1]);
    ranks.listeners[0] = TcpListener();
    const auto world = ranks.World(1);
    if (fork() == 0) {
      (void)!write(begun[1], &byte, 1);
      _exit(static_cast<int>(read(ends[0], &byte, 1)));  // 0, once the test has closed its end
    }
    while (true) world->Idle(std::chrono::seconds(1));
  }
  const auto world = ranks.World(0);
  ASSERT_EQ(read(begun[0], &byte, 1), 1);
  int value = 0;
  const auto receive = world->Irecv(1, 0, Room(value));
  kill(rank, SIGKILL);
  EXPECT_EQ(UntilFailure(*world, *receive), "comm: rank 1 is lost");
  waitpid(rank, nullptr, 0);
  for (const int end : {begun[0], begun[1], ends[0], ends[1]}) close(end);
}

// Rank 0 leaves in peace, rank 1 because of a failure: rank 2, which waits for rank 3, hears of it.
TEST(TcpTransport, RankThatLeavesBecauseOfAFailureSaysWhoIsToBlame) {
  for (const bool first_leaves : {false, true}) {
    TcpRanks ranks(4);
    const auto failure = std::make_shared<TcpFailure>();
    std::vector<std::unique_ptr<Communicator>> worlds(4);
    OnThreads(worlds.size(), [&](std::size_t rank) {
      TcpSignals signals;
      if (rank == 1) signals.failure = failure;
      worlds[rank] = ranks.World(rank, kDeadline, signals);
    });
    int value = 0;
    if (first_leaves) {
      const auto lost = worlds[1]->Irecv(0, 0, Room(value));
      worlds[0].reset();
      EXPECT_EQ(UntilFailure(*worlds[1], *lost), "comm: rank 0 is lost");
    }
    failure->why = "no good";
    failure->known = true;
    worlds[1].reset();
    const auto receive = worlds[2]->Irecv(3, 0, Room(value));
    EXPECT_EQ(UntilFailure(*worlds[2], *receive),
              first_leaves ? "comm: rank 0 is lost" : "comm: rank 1 is lost: no good");
    worlds[2].reset();  // passes on what it heard
    const auto last = worlds[3]->Irecv(2, 0, Room(value));
    EXPECT_EQ(UntilFailure(*worlds[3], *last),
              first_leaves ? "comm: rank 0 is lost" : "comm: rank 1 is lost: no good");
  }
}

}  // namespace
}  // namespace sparfuse::testing
