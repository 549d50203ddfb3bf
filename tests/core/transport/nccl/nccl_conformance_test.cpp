// Checks the collectives over transport `nccl`, on emulated devices and a fake NCCL. The backend's
// own collectives are right; the errors of the others name the one to use instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "core/collective/collective.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/devices/fake_nccl.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

constexpr int kTag = 32;

void RunNccl(int ranks, int ranks_per_node, const AllGatherLinks& links,
             const std::function<void(ProgressLoop&)>& body) {
  RunRanks(ranks, ranks_per_node, kDeadline, body, [&](auto host) {
    NcclSetup setup = EmulatedSetup(std::move(host));
    setup.links = links;
    return MakeNcclWorld(FakeNccl::Api(), std::move(setup));
  });
}

// Element i of rank r's payload.
std::uint64_t Element(std::size_t rank, std::size_t i) { return 1'000'000 * (rank + 1) + i; }

// sizes[r]: the elements of rank r. Returns the number of NCCL's calls, by name.
std::map<std::string, int> Gather(std::string_view name, std::span<const std::size_t> sizes,
                                  int ranks_per_node, const AllGatherLinks& links = {}) {
  FakeNccl nccl;
  const std::size_t ranks = sizes.size();
  const std::size_t capacity = *std::max_element(sizes.begin(), sizes.end()) + 3;
  RunNccl(static_cast<int>(ranks), ranks_per_node, links, [&](ProgressLoop& loop) {
    const auto rank = static_cast<std::size_t>(loop.rank());
    std::vector<std::uint64_t> own(sizes[rank]);
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = Element(rank, i);
    std::vector<std::uint64_t> gathered(ranks * capacity);
    ExchangeBuffers buffers;
    buffers.own = std::as_bytes(std::span(own));
    buffers.gathered = std::as_writable_bytes(std::span(gathered));
    buffers.capacity_bytes = capacity * sizeof(std::uint64_t);
    for (int repeat = 0; repeat < 2; ++repeat) {
      RunCounted(loop, *CoreCollective(name), buffers);
      ASSERT_EQ(buffers.payloads.size(), ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        ASSERT_EQ(buffers.payloads[r].size(), sizes[r] * sizeof(std::uint64_t));
        for (std::size_t i = 0; i < sizes[r]; ++i) {
          std::uint64_t value = 0;
          std::memcpy(&value, buffers.payloads[r].data() + i * sizeof value, sizeof value);
          ASSERT_EQ(value, Element(r, i)) << "rank " << r << ", element " << i;
        }
      }
      std::fill(gathered.begin(), gathered.end(), 0);
    }
  });
  EXPECT_EQ(nccl.violations(), std::vector<std::string>{});
  return nccl.calls();
}

std::vector<std::vector<std::size_t>> SizeCases(std::size_t ranks) {
  std::vector<std::vector<std::size_t>> cases;
  for (const std::size_t n : {0, 1, 1000}) cases.emplace_back(ranks, n);
  for (auto& sizes : UnequalSizes(ranks)) cases.push_back(std::move(sizes));
  return cases;
}

class NcclCollectives : public ::testing::TestWithParam<int> {};

TEST_P(NcclCollectives, NativeAllGatherGroupedAndPadded) {
  const auto ranks = static_cast<std::size_t>(GetParam());
  AllGatherLinks grouped;
  grouped.message_seconds = 0;
  AllGatherLinks padded;
  padded.message_seconds = 1;
  for (const auto& sizes : SizeCases(ranks)) {
    SCOPED_TRACE("elements of the last rank: " + std::to_string(sizes.back()));
    const bool some = ranks > 1 && sizes.back() + sizes.front() > 0;
    auto calls = Gather("nccl-allgather", sizes, 8, grouped);
    EXPECT_EQ(calls["all-gather"], 0);
    EXPECT_EQ(calls["send"] > 0, some);
    calls = Gather("nccl-allgather", sizes, 8, padded);
    EXPECT_EQ(calls["all-gather"], some ? 2 * GetParam() : 0);
    EXPECT_EQ(calls["send"], 0);
  }
}

TEST_P(NcclCollectives, NativeAllReduce) {
  FakeNccl nccl;
  const int ranks = GetParam();
  RunNccl(ranks, 2, {}, [&](ProgressLoop& loop) {
    for (const std::size_t n : {0, 1, 7, 1000}) {
      std::vector<float> data(n);
      for (std::size_t i = 0; i < n; ++i) {
        data[i] = static_cast<float>(static_cast<std::size_t>(loop.rank() + 1) * i);
      }
      SumCounted(loop, *CoreCollective("native-allreduce"), data);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(data[i], static_cast<float>(i) * static_cast<float>(ranks * (ranks + 1) / 2));
      }
    }
  });
  EXPECT_EQ(nccl.violations(), std::vector<std::string>{});
}

// Starts several at once on all ranks, in one order, whatever order their counts arrive in.
TEST_P(NcclCollectives, ManyAtOnce) {
  FakeNccl nccl;
  const auto ranks = static_cast<std::size_t>(GetParam());
  RunNccl(GetParam(), 4, {}, [&](ProgressLoop& loop) {
    constexpr std::size_t kTasks = 20;
    struct Exchange {
      std::vector<float> data;
      std::vector<float> gathered;
      ExchangeBuffers buffers;
    };
    std::vector<Exchange> exchanges(kTasks);
    loop.RunBlocking([&](Communicator& world) -> Task {
      std::vector<std::unique_ptr<Request>> requests;
      for (std::size_t t = 0; t < kTasks; ++t) {
        Exchange& exchange = exchanges[t];
        exchange.data.assign(10 * t + static_cast<std::size_t>(world.rank()),
                             static_cast<float>(world.rank() + 1));
        exchange.gathered.resize(ranks * (10 * t + ranks));
        if (t % 3 == 0) exchange.data.resize(10 * t, 1);
        if (t % 3 == 0) {
          requests.push_back(world.NativeAllReduceSum(exchange.data));
        } else {
          requests.push_back(
              world.NativeAllGather(std::as_bytes(std::span(exchange.data)),
                                    std::as_writable_bytes(std::span(exchange.gathered)),
                                    (10 * t + ranks) * sizeof(float), exchange.buffers.payloads));
        }
      }
      co_await Complete(std::move(requests));
    });
    for (std::size_t t = 0; t < kTasks; ++t) {
      for (std::size_t r = 0; t % 3 != 0 && r < ranks; ++r) {
        const auto payload = exchanges[t].buffers.payloads[r];
        ASSERT_EQ(payload.size(), (10 * t + r) * sizeof(float));
        for (std::size_t at = 0; at < payload.size(); at += sizeof(float)) {
          float value = 0;
          std::memcpy(&value, payload.data() + at, sizeof value);
          ASSERT_EQ(value, static_cast<float>(r + 1));
        }
      }
    }
  });
  EXPECT_EQ(nccl.violations(), std::vector<std::string>{});
}

TEST_P(NcclCollectives, ControlCollectivesUseHostMemory) {
  FakeNccl nccl;
  RunNccl(GetParam(), 2, {}, [&](ProgressLoop& loop) {
    std::vector<std::int64_t> values{loop.rank(), -loop.rank()};
    std::vector<std::byte> data(100, std::byte(loop.rank()));
    loop.RunBlocking([&](Communicator& world) -> Task {
      co_await AllReduceMax(world, values, kTag);
      co_await Broadcast(world, data, world.size() - 1, kTag);
      co_await Barrier(world, kTag);
    });
    EXPECT_EQ(values, (std::vector<std::int64_t>{loop.size() - 1, 0}));
    EXPECT_EQ(data, std::vector<std::byte>(100, std::byte(loop.size() - 1)));
  });
  EXPECT_EQ(nccl.calls()["send"], 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, ::testing::Values(1, 2, 3, 4, 8));

TEST(Nccl, CollectivesThatAddOnTheHostAreRefused) {
  FakeNccl nccl;
  RunNccl(2, 1, {}, [](ProgressLoop& loop) {
    std::vector<float> data(4);
    EXPECT_EQ(ErrorOf([&] { SumCounted(loop, *CoreCollective("ring-allreduce"), data); },
                      FailureKind::kUnsupported),
              "ring-allreduce: adds in host memory, but messages of transport \"nccl\" lie on "
              "a device; use native-allreduce");
  });
}

}  // namespace
}  // namespace sparfuse::testing
