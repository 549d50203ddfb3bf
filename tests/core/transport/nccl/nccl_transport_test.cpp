// Tests transport `nccl` on a fake NCCL: order, lost ranks, errors, set-up and splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/device/runtime.hpp"
#include "core/transport/nccl/handle.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/task.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/communicators/forwarding_communicator.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/devices/devices.hpp"
#include "tests/support/devices/fake_nccl.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using sparfuse::testing::FailureOf;

using std::chrono::milliseconds;
using std::chrono::steady_clock;
const std::vector<std::string> kNone;

// The results or errors of `make` on each rank, on threads.
struct Worlds {
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::vector<std::string> failures;
};
Worlds MakeWorlds(
    int ranks, int ranks_per_node,
    const std::function<void(NcclSetup&)>& change = [](NcclSetup&) {},
    milliseconds deadline = kDeadline) {
  auto hosts = MakeThreadsWorld(ranks, ranks_per_node);
  Worlds worlds;
  worlds.ranks.resize(hosts.size());
  worlds.failures.resize(hosts.size());
  OnThreads(hosts.size(), [&](std::size_t rank) {
    worlds.failures[rank] = FailureOf([&] {
      NcclSetup setup = EmulatedSetup(std::move(hosts[rank]), deadline);
      change(setup);
      worlds.ranks[rank] = MakeNcclWorld(FakeNccl::Api(), std::move(setup));
    });
  });
  return worlds;
}
std::vector<std::unique_ptr<Communicator>> MakeWorld(int ranks, int ranks_per_node = 1) {
  Worlds worlds = MakeWorlds(ranks, ranks_per_node);
  for (const auto& failure : worlds.failures) EXPECT_EQ(failure, "none");
  return std::move(worlds.ranks);
}

// Tests all requests until all are complete.
void Finish(const std::vector<Request*>& requests) {
  const auto expires = steady_clock::now() + kDeadline;
  for (bool complete = false; !complete;) {
    complete = true;
    for (Request* request : requests) complete = request->Test() && complete;
    ASSERT_LT(steady_clock::now(), expires);
    std::this_thread::yield();
  }
}
void FinishAll(const std::vector<std::unique_ptr<Request>>& requests) {
  std::vector<Request*> pointers;
  for (const auto& request : requests) pointers.push_back(request.get());
  Finish(pointers);
}
// The failure of testing the request.
std::string FailureOf(Request& request) {
  return FailureOf([&] { Finish(std::vector{&request}); });
}

class NcclTransport : public ::testing::Test {
 protected:
  FakeNccl nccl_;
};

// --- ring steps -----------------------------------------------------------------------------

TEST_F(NcclTransport, RingStepsOfSeveralMessagesGoInPostingOrder) {
  {
    constexpr std::size_t kRanks = 4;
    constexpr std::size_t kSteps = 3;
    auto world = MakeWorld(kRanks, 2);
    std::array<std::array<std::array<int, 4>, kSteps>, kRanks> sent{};
    auto received = sent;
    std::array<float, kRanks> sums{1, 2, 3, 4};
    std::vector<std::unique_ptr<Request>> requests;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const int own = static_cast<int>(rank);
      for (std::size_t step = 0; step < kSteps; ++step) {
        for (std::size_t i = 0; i < 4; ++i) {
          sent[rank][step][i] = static_cast<int>(100 * rank + 10 * step + i);
        }
        requests.push_back(world[rank]->NativeRingStep({(own + 3) % 4, (own + 1) % 4},
                                                       Bytes(sent[rank][step]),
                                                       Room(received[rank][step]), 1 << step));
        if (step == 1) requests.push_back(world[rank]->NativeAllReduceSum({&sums[rank], 1}));
      }
    }
    EXPECT_EQ(requests[0]->peer(), 3);
    EXPECT_EQ(requests[0]->bytes(), 4 * sizeof(int));
    FinishAll(requests);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(received[rank], sent[(rank + 3) % 4]);
      EXPECT_EQ(sums[rank], 10);
    }
  }
  EXPECT_EQ(nccl_.calls()["send"], 4 * (1 + 2 + 4));
  EXPECT_EQ(nccl_.violations(), kNone);
}

TEST_F(NcclTransport, RingStepOfUnequalPartsOrToItselfIsRefused) {
  auto world = MakeWorld(2);
  std::array<std::byte, 6> data{};
  std::array<std::byte, 6> room{};
  const auto refuse = [&](RingNeighbours ring, std::size_t out, std::size_t in, int messages) {
    EXPECT_EQ(FailureOf([&] {
                (void)world[0]->NativeRingStep(ring, std::span(data).first(out),
                                               std::span(room).first(in), messages);
              }).substr(0, 23),
              "internal: nccl: ring st");
  };
  refuse({1, 1}, 6, 4, 1);
  refuse({1, 1}, 6, 6, 4);
  refuse({1, 1}, 6, 6, 0);
  refuse({1, 1}, 0, 0, 1);
  refuse({0, 1}, 6, 6, 1);
  refuse({1, 0}, 6, 6, 1);
}

TEST_F(NcclTransport, SingleMessagesAreRefusedWithTheWayThatTheyGo) {
  auto world = MakeWorld(2);
  int value = 0;
  const std::string expected =
      "unsupported: nccl: single messages go through host memory, over host(); the device has "
      "collectives only";
  EXPECT_EQ(FailureOf([&] { (void)world[0]->Isend(1, 0, Bytes(value)); }), expected);
  EXPECT_EQ(FailureOf([&] { (void)world[0]->Irecv(1, 0, Room(value)); }), expected);
}

// --- collectives ----------------------------------------------------------------------------

TEST_F(NcclTransport, CollectivesPostedInDifferentOrdersAreAnError) {
  for (const bool reduces_first : {false, true}) {
    auto world = MakeWorld(2);
    std::array<std::array<float, 2>, 3> data{};
    std::array<std::byte, 16> room{};
    std::vector<std::span<const std::byte>> by_rank;
    const auto common_here = world[0]->NativeAllReduceSum(data[0]);
    const auto common_there = world[1]->NativeAllReduceSum(data[1]);
    std::unique_ptr<Request> reduce;
    if (reduces_first) reduce = world[0]->NativeAllReduceSum(data[2]);
    const auto gather = world[1]->NativeAllGather(std::span(room).first(4), room, 8, by_rank);
    if (!reduces_first) {
      EXPECT_FALSE(common_here->Test());  // receives the count
      reduce = world[0]->NativeAllReduceSum(data[2]);
    }
    EXPECT_EQ(FailureOf(*reduce),
              "comm: nccl: rank 1 gathers while this rank does not: all ranks must post "
              "collectives in the same order");
    EXPECT_EQ(FailureOf(*gather).substr(0, 21), "comm: rank 0 gave up:");
  }
}

TEST_F(NcclTransport, PayloadAboveTheCapacityIsNamed) {
  auto world = MakeWorld(2);
  std::array<std::byte, 32> room{};
  std::array<std::byte, 32> other{};
  std::vector<std::span<const std::byte>> by_rank;
  EXPECT_EQ(FailureOf([&] {
              (void)world[0]->NativeAllGather(std::span(room).first(9), room, 8, by_rank);
            }),
            "internal: nccl: all-gather of 9 bytes with room for 32: expected at most 8 bytes, "
            "and room for as many from each of 2 ranks");
  const auto small = world[0]->NativeAllGather(std::span(room).first(8), room, 8, by_rank);
  std::vector<std::span<const std::byte>> by_rank_there;
  const auto large =
      world[1]->NativeAllGather(std::span(other).first(12), other, 16, by_rank_there);
  EXPECT_EQ(FailureOf(*small),
            "comm: all-gather: payload of 12 bytes from rank 1: expected at most 8");
  EXPECT_NE(FailureOf(*large), "none");
}

// --- waiting --------------------------------------------------------------------------------

TEST_F(NcclTransport, WakeEndsIdle) {
  auto world = MakeWorld(2);
  std::atomic<bool> woken = false;
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(20));  // most likely rank 0 is idle by then
    woken = true;
    world[0]->Wake();
  });
  while (!woken) world[0]->Idle(std::chrono::hours(24));
  waker.join();
}

// No bell rings when a device is done. Idle must not sleep through it, on any communicator of the
// rank.
TEST_F(NcclTransport, IdleIsShortWhileSomethingRuns) {
  auto world = MakeWorld(2);
  std::array<float, 1> data{};
  const auto reduce = world[0]->NativeAllReduceSum(data);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(reduce->Test());  // it runs and waits for rank 1
  for (int i = 0; i < 100; ++i) world[0]->Idle(std::chrono::hours(24));
  std::array<float, 1> other{};
  const auto there = world[1]->NativeAllReduceSum(other);
  Finish({reduce.get(), there.get()});
}

// The host's communicator of a rank. It records the limits of Idle calls and does not sleep.
class NotesIdle final : public ForwardingCommunicator {
 public:
  using Limits = std::vector<std::chrono::nanoseconds>;
  NotesIdle(std::unique_ptr<Communicator> inner, Limits& limits)
      : ForwardingCommunicator(std::move(inner)), limits_(limits) {}

  void Idle(std::chrono::nanoseconds limit) override {
    limits_.push_back(limit);
    std::this_thread::yield();
  }
  std::unique_ptr<Communicator> Split(int color, int key, milliseconds deadline) override {
    return std::make_unique<NotesIdle>(SplitInner(color, key, deadline), limits_);
  }

 private:
  Limits& limits_;
};

// A launched operation may end soon, however long the rank was idle before. The sleep time follows
// from the time since the launch (PollingSleepNanoseconds).
TEST_F(NcclTransport, IdleIsShortAfterALaunch) {
  constexpr std::chrono::nanoseconds kShortest = std::chrono::microseconds(20);
  nccl_.busy_polls = 20;  // the launch is on its way to the stream
  std::array<NotesIdle::Limits, 2> limits;
  Worlds worlds = MakeWorlds(2, 1, [&](NcclSetup& setup) {
    const auto rank = static_cast<std::size_t>(setup.host->rank());
    setup.host = std::make_unique<NotesIdle>(std::move(setup.host), limits[rank]);
  });
  std::this_thread::sleep_for(milliseconds(15));  // then it would sleep for 200 us
  limits[0].clear();
  const auto before_launch = steady_clock::now();
  std::array<float, 1> data{};
  const auto reduce = worlds.ranks[0]->NativeAllReduceSum(data);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(reduce->Test());
  while (limits[0].empty()) worlds.ranks[0]->Idle(std::chrono::hours(24));  // at first it yields
  EXPECT_LE(limits[0][0], std::max(kShortest, (steady_clock::now() - before_launch) / 50));
  std::array<float, 1> other{};
  const auto there = worlds.ranks[1]->NativeAllReduceSum(other);
  Finish({reduce.get(), there.get()});
}

// --- errors ---------------------------------------------------------------------------------

TEST_F(NcclTransport, LostRankFailsWhatIsNotStarted) {
  auto world = MakeWorld(3);
  std::array<float, 1> data{};
  std::array<std::byte, 24> room{};
  std::array<std::byte, 24> room_there{};
  std::vector<std::span<const std::byte>> by_rank;
  std::vector<std::span<const std::byte>> by_rank_there;
  auto gather = world[0]->NativeAllGather(std::span(room).first(8), room, 8, by_rank);
  auto there =
      world[1]->NativeAllGather(std::span(room_there).first(8), room_there, 8, by_rank_there);
  EXPECT_FALSE(gather->Test());
  EXPECT_EQ(gather->peer(), 2);  // the rank whose count is missing
  world[2].reset();
  EXPECT_EQ(FailureOf(*gather), "comm: rank 2 is lost");
  EXPECT_SAYS(FailureOf(*there), "rank 2 is lost");
  EXPECT_EQ(FailureOf([&] { (void)world[0]->NativeAllReduceSum(data); }), "comm: rank 2 is lost");
  EXPECT_EQ(FailureOf([&] { (void)world[0]->Split(0, 0, kDeadline); }), "comm: rank 2 is lost");
  gather.reset();
  there.reset();
  world.clear();
  EXPECT_EQ(nccl_.Aborts(0), 1);
  EXPECT_EQ(nccl_.Aborts(1), 1);
  EXPECT_EQ(nccl_.Destroys(2), 1);
  EXPECT_EQ(nccl_.Aborts(2), 0);
  EXPECT_EQ(nccl_.violations(), kNone);
}

TEST_F(NcclTransport, LostRankFailsWhatRuns) {
  auto world = MakeWorld(2);
  std::array<float, 3> data{};
  const auto reduce = world[0]->NativeAllReduceSum(data);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(reduce->Test());
  world[1].reset();
  EXPECT_EQ(FailureOf(*reduce), "comm: rank 1 is lost");
  EXPECT_EQ(nccl_.Aborts(0), 1);
}

TEST_F(NcclTransport, ErrorThatNcclFindsLaterNamesWhatRuns) {
  auto world = MakeWorld(2);
  std::array<float, 1> here{};
  std::array<float, 1> there{};
  auto first = world[0]->NativeAllReduceSum(here);
  auto second = world[1]->NativeAllReduceSum(there);
  nccl_.busy_polls = 1000;  // rank 0 does not get further than NCCL's call
  EXPECT_FALSE(first->Test());
  nccl_.busy_polls = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(first->Test());
    EXPECT_FALSE(second->Test());
  }
  nccl_.BreakAsync(1, kNcclRemoteError, "socket closed by peer\n");
  EXPECT_EQ(FailureOf(*second),
            "comm: NCCL: remote process exited or there was a network error: socket closed by "
            "peer; under way: an all-reduce of 4 bytes");
  EXPECT_EQ(FailureOf(*first).substr(0, 26), "comm: rank 1 gave up: NCCL");
  first.reset();
  second.reset();
  world.clear();
  EXPECT_EQ(nccl_.Aborts(0), 1);
  EXPECT_EQ(nccl_.Aborts(1), 1);
  EXPECT_EQ(nccl_.violations(), kNone);
}

TEST_F(NcclTransport, GivenUpRequestEndsTheCommunicatorOnAllRanks) {
  auto world = MakeWorld(2);
  std::array<float, 3> data{};
  auto reduce = world[0]->NativeAllReduceSum(data);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(reduce->Test());
  std::array<float, 1> given_up{};
  world[1]->NativeAllReduceSum(given_up).reset();
  EXPECT_EQ(FailureOf(*reduce), "comm: rank 1 gave up: an all-reduce of 4 bytes was given up");
  reduce.reset();
  world.clear();
  EXPECT_EQ(nccl_.Aborts(0), 1);
  EXPECT_EQ(nccl_.Aborts(1), 1);
}

TEST_F(NcclTransport, ErrorsMeanKinds) {
  const auto of = [&](int result, const std::string& detail) {
    nccl_.BreakAsync(0, result, detail);
    const Error error = NcclError(FakeNccl::Api(), result, "ncclSend", nullptr);
    return std::string(FailureKindName(error.kind())) + ": " + error.what();
  };
  EXPECT_EQ(of(kNcclUnhandledCudaError, "Cuda failure 700 'an illegal memory access'"),
            "internal: ncclSend: some error: Cuda failure 700 'an illegal memory access'");
  EXPECT_EQ(of(kNcclUnhandledCudaError, "Cuda failure 2 'out of memory'"),
            "out_of_memory: ncclSend: some error: Cuda failure 2 'out of memory'");
  EXPECT_EQ(of(kNcclSystemError, ""), "comm: ncclSend: some error");
  EXPECT_EQ(of(kNcclRemoteError, ""),
            "comm: ncclSend: remote process exited or there was a network error");
  EXPECT_EQ(of(kNcclInternalError, ""), "internal: ncclSend: some error");
  EXPECT_EQ(of(kNcclInvalidUsage, ""), "internal: ncclSend: invalid usage");
}

// --- deadlines, with the loop that owns them ------------------------------------------------

// The failure of `make`'s task on each rank but the last, which does nothing.
std::vector<std::string> WithoutTheLast(FakeNccl& nccl, int ranks,
                                        const std::function<Task(Communicator&)>& make) {
  constexpr milliseconds kShort{3000};
  std::vector<std::string> failures(static_cast<std::size_t>(ranks), "not run");
  RunRanks(
      ranks, 1, kShort,
      [&](ProgressLoop& loop) {
        if (loop.rank() == ranks - 1) return;
        failures[static_cast<std::size_t>(loop.rank())] =
            FailureOf([&] { loop.RunBlocking(make); });
      },
      [&](auto host) {
        return MakeNcclWorld(FakeNccl::Api(), EmulatedSetup(std::move(host), kShort));
      });
  for (int rank = 0; rank + 1 < ranks; ++rank) EXPECT_EQ(nccl.Aborts(rank), 1);
  EXPECT_EQ(nccl.violations(), kNone);
  failures.pop_back();
  return failures;
}

Task Reduce(Communicator& world) {
  std::vector<float> data(100);
  co_await Complete(world.NativeAllReduceSum(data));
}

Task Gather(Communicator& world) {
  std::vector<std::byte> own(400);
  std::vector<std::byte> gathered(400 * static_cast<std::size_t>(world.size()));
  std::vector<std::span<const std::byte>> by_rank;
  co_await Complete(world.NativeAllGather(own, gathered, own.size(), by_rank));
}

Task StepInRing(Communicator& world) {
  std::vector<std::byte> out(400);
  std::vector<std::byte> in(400);
  const int last = world.size() - 1;
  const RingNeighbours ring{world.rank() == 0 ? last : world.rank() - 1,
                            world.rank() == last ? 0 : world.rank() + 1};
  co_await Complete(world.NativeRingStep(ring, out, in, 1));
}

// The first rank that reaches the deadline tells the others, which may still be waiting.
void ExpectOneNames(const std::vector<std::string>& failures, const std::string& timeout) {
  int named = 0;
  for (const auto& failure : failures) {
    if (failure == "timeout: no progress for 3000 ms: " + timeout) {
      ++named;
    } else {
      EXPECT_EQ(failure.substr(0, 11), "comm: rank ");
      EXPECT_SAYS(failure, " gave up: ");
    }
  }
  EXPECT_GE(named, 1);
}

TEST_F(NcclTransport, RankThatNeverReducesIsNamed) {
  ExpectOneNames(WithoutTheLast(nccl_, 3, &Reduce), "rank 2 answers but did not take part");
}

TEST_F(NcclTransport, RankThatNeverGathersIsNamed) {
  ExpectOneNames(WithoutTheLast(nccl_, 3, &Gather), "rank 2 answers but did not send");
}

TEST_F(NcclTransport, RankThatNeverTakesAStepOfTheRingIsNamed) {
  ExpectOneNames(WithoutTheLast(nccl_, 3, &StepInRing), "rank 2 answers but did not send");
}

// --- set-up and end -------------------------------------------------------------------------

TEST_F(NcclTransport, SoundCommunicatorsAreDestroyedAndNotAborted) {
  {
    auto world = MakeWorld(2);
    std::array<float, 1> zero{1};
    std::array<float, 1> one{2};
    const auto a = world[0]->NativeAllReduceSum(zero);
    const auto b = world[1]->NativeAllReduceSum(one);
    Finish({a.get(), b.get()});
    EXPECT_EQ(zero[0], 3);
  }
  for (const int rank : {0, 1}) {
    EXPECT_EQ(nccl_.Destroys(rank), 1);
    EXPECT_EQ(nccl_.Aborts(rank), 0);
  }
  EXPECT_EQ(nccl_.violations(), kNone);
}

TEST_F(NcclTransport, TwoRanksOnOneCardAreRefusedBeforeNcclIsAsked) {
  const Worlds worlds = MakeWorlds(3, 1, [](NcclSetup& setup) {
    if (setup.card == "GPU-2") setup.card = "GPU-0";
  });
  for (const auto& failure : worlds.failures) {
    EXPECT_EQ(failure,
              "unsupported: nccl: ranks 0 and 2 have the same card, GPU-0; NCCL gives every rank a "
              "card of its own: start at most as many ranks as there are cards, or stage messages "
              "through host memory with transport = \"mpi\", device = \"cuda\"");
  }
  EXPECT_EQ(nccl_.calls()["init"], 0);
}

TEST_F(NcclTransport, CardThatOnlyNcclKnowsToBeSharedIsRefused) {
  nccl_.init_errors[1] = {kNcclInvalidUsage,
                          "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 81000"};
  const Worlds worlds = MakeWorlds(2, 1);
  EXPECT_EQ(worlds.failures[1],
            "unsupported: ncclCommInitRankConfig: invalid usage: Duplicate GPU detected : rank 1 "
            "and rank 0 both on CUDA device 81000; NCCL gives every rank a card of its own: start "
            "at most as many ranks as there are cards, or stage messages through host memory with "
            "transport = \"mpi\", device = \"cuda\"");
  EXPECT_SAYS(worlds.failures[0], "rank 1 ");
  EXPECT_EQ(worlds.failures[0].substr(0, 5), "comm:");
  EXPECT_EQ(nccl_.Aborts(0), 1);
}

TEST_F(NcclTransport, SetUpThatNeverEndsIsATimeout) {
  nccl_.missing_rank = 1;
  const Worlds worlds = MakeWorlds(
      2, 1, [](NcclSetup&) {}, milliseconds(1000));
  int timeouts = 0;
  for (const auto& failure : worlds.failures) {
    if (failure == "timeout: nccl: the set-up among 2 ranks is not complete after 1000 ms") {
      ++timeouts;
    } else {
      EXPECT_EQ(failure.substr(0, 5), "comm:") << failure;
    }
  }
  EXPECT_GE(timeouts, 1);
  EXPECT_EQ(nccl_.Aborts(0), 1);
  EXPECT_EQ(nccl_.Aborts(1), 1);
}

TEST_F(NcclTransport, RankThatDoesNotComeToTheSetUpIsNamed) {
  auto hosts = MakeThreadsWorld(2, 1);
  EXPECT_EQ(FailureOf([&] {
              (void)MakeNcclWorld(FakeNccl::Api(),
                                  EmulatedSetup(std::move(hosts[0]), milliseconds(30)));
            }),
            "timeout: nccl: rank 1 did not arrive within 30 ms");
}

TEST_F(NcclTransport, RanksThatWouldChooseDifferentlyAreRefused) {
  const Worlds worlds = MakeWorlds(2, 1, [](NcclSetup& setup) {
    if (setup.card == "GPU-1") setup.links.message_seconds = 1;
  });
  for (const auto& failure : worlds.failures) {
    EXPECT_EQ(
        failure,
        "config: nccl: ranks 0 and 1 have different link constants: expected equal constants, "
        "so that all ranks choose alike");
  }
  const Worlds versions = MakeWorlds(
      2, 1, [](NcclSetup& setup) { FakeNccl::version = setup.card == "GPU-1" ? 22703 : 22809; });
  for (const auto& failure : versions.failures) {
    EXPECT_EQ(failure,
              "config: nccl: rank 1 has NCCL of version code 22703: expected 22809, as rank 0");
  }
}

TEST_F(NcclTransport, CardWithoutANameIsRefused) {
  for (const std::string& card : {std::string(), std::string(64, 'x')}) {
    const Worlds worlds = MakeWorlds(1, 1, [&](NcclSetup& setup) { setup.card = card; });
    EXPECT_EQ(worlds.failures[0],
              "config: nccl: card \"" + card + "\": expected a name of 1 to 63 characters");
  }
}

TEST_F(NcclTransport, SplitGroupsHaveCommunicatorsOfTheirOwn) {
  {
    auto world = MakeWorld(4, 2);
    OnThreads(4, [&](std::size_t rank) {
      Communicator& own = *world[rank];
      const int number = static_cast<int>(rank);
      const auto node = own.Split(number / 2, -number, kDeadline);
      EXPECT_EQ(node->backend(), "nccl");
      EXPECT_EQ(node->rank(), 1 - number % 2);
      EXPECT_EQ(node->topology(), (Topology{2, 2}));
      EXPECT_NE(node->stream(), own.stream());
      std::array<float, 1> sum{static_cast<float>(number)};
      std::array<float, 1> all{static_cast<float>(number)};
      // The order is opposite on two ranks of a node: each communicator has a stream.
      auto first = number % 2 == 0 ? node->NativeAllReduceSum(sum) : own.NativeAllReduceSum(all);
      for (int i = 0; i < 5; ++i) first->Test();
      auto second = number % 2 == 0 ? own.NativeAllReduceSum(all) : node->NativeAllReduceSum(sum);
      Finish(std::vector{first.get(), second.get()});
      EXPECT_EQ(sum[0], number < 2 ? 1 : 5);
      EXPECT_EQ(all[0], 6);
      // A request names the peer's rank in the world.
      const int out = number;
      int in = -1;
      const int other = 1 - node->rank();
      const auto step = node->NativeRingStep({other, other}, Bytes(out), Room(in), 1);
      EXPECT_EQ(step->peer(), number ^ 1);
      while (!step->Test()) node->Idle(milliseconds(1));
      EXPECT_EQ(in, number ^ 1);
    });
  }
  EXPECT_EQ(nccl_.calls()["init"], 8);
  EXPECT_EQ(nccl_.calls()["destroy"], 8);
  EXPECT_EQ(nccl_.violations(), kNone);
}

TEST_F(NcclTransport, SplitNamesWhoIsMissing) {
  auto world = MakeWorld(2);
  EXPECT_EQ(FailureOf([&] { (void)world[0]->Split(0, 0, milliseconds(30)); }),
            "timeout: split: rank 1 did not arrive within 30 ms");
}

// --- the real library -----------------------------------------------------------------------

#ifndef SPARFUSE_CUDA
TEST(LinkedNccl, IsRefusedInABuildWithoutCuda) {
  EXPECT_EQ(
      FailureOf([] { (void)LinkedNccl(); }),
      "unsupported: transport \"nccl\": this build has no CUDA and no NCCL (sparfuse doctor)");
}
#endif

class Card : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = WhyNotOn(DeviceKind::kCuda);
    if (!why.empty()) GTEST_SKIP() << why;
  }
  // Ranks on threads; rank r uses device r modulo the number of cards.
  static void Run(int ranks, const std::function<void(ProgressLoop&)>& body) {
    RunRanks(ranks, 8, kDeadline, body, [](auto host) {
      NcclSetup setup = EmulatedSetup(std::move(host));
      setup.device = {DeviceKind::kCuda, setup.host->rank() % CudaDeviceCount()};
      return MakeNcclWorld(LinkedNccl(), std::move(setup));
    });
  }
};

TEST_F(Card, ReducesAndGathersAsManyRanksAsThereAreCards) {
  const int ranks = CudaDeviceCount();
  const auto count = static_cast<std::size_t>(ranks);
  Run(ranks, [&](ProgressLoop& loop) {
    constexpr std::size_t kElements = 1000;
    const Device device{DeviceKind::kCuda, loop.rank()};
    std::vector<float> host(kElements, static_cast<float>(loop.rank() + 1));
    const Buffer<float> dense(kElements, device, "test");
    const Buffer<float> gathered(count * kElements, device, "test");
    std::vector<std::span<const std::byte>> by_rank;
    loop.RunBlocking([&](Communicator& world) -> Task {
      gpu::CopyAsync(world.stream(), dense.data(), host.data(), kElements * sizeof(float));
      const std::span own(dense.data(), 10 + static_cast<std::size_t>(world.rank()));
      co_await Complete(world.NativeAllGather(
          std::as_bytes(own), std::as_writable_bytes(std::span(gathered.data(), gathered.size())),
          kElements * sizeof(float), by_rank));
      for (std::size_t r = 0; r < by_rank.size(); ++r) {
        std::vector<float> payload(by_rank[r].size() / sizeof(float));
        gpu::CopyAsync(world.stream(), payload.data(), by_rank[r].data(), by_rank[r].size());
        gpu::Synchronize(world.stream());
        EXPECT_EQ(payload, std::vector<float>(10 + r, static_cast<float>(r + 1)));
      }
      co_await Complete(world.NativeAllReduceSum({dense.data(), kElements}));
      gpu::CopyAsync(world.stream(), host.data(), dense.data(), kElements * sizeof(float));
      gpu::Synchronize(world.stream());
    });
    EXPECT_EQ(host, std::vector<float>(kElements, static_cast<float>(ranks * (ranks + 1) / 2)));
  });
}

TEST_F(Card, IsNotSharedByTwoRanks) {
  const std::string failure = FailureOf([] { Run(CudaDeviceCount() + 1, [](ProgressLoop&) {}); });
  EXPECT_SAYS(failure, "unsupported");
}

}  // namespace
}  // namespace sparfuse::testing
