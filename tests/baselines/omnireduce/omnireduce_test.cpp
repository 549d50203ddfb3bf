// Tests OmniReduce: its sums, its traffic by formula, the model's expectations, and its streams
// without a transport, on messages by hand and on malformed ones.
#include "baselines/omnireduce/omnireduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/engine/live/lanes/lane_thread.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::baselines {
namespace {

using testing::Outcome;
using testing::Sent;
using testing::SparseVector;

std::unique_ptr<Collective> MakeOmnireduce(std::int64_t block, std::int64_t slots,
                                           std::int64_t bundle) {
  return MakeCollective(OmniReduceCollective(),
                        {{"block", block}, {"slots", slots}, {"bundle", bundle}});
}

// Shard 0 has blocks 0 and 1, shard 1 has block 2. Rank 0 sends block 2, and the sums of blocks 0
// and 1 of its shard. Rank 1 sends block 1 and the sum of block 2.
TEST(OmniReduce, TwoRanksAndThreeBlocksByHand) {
  const Sent sent{"", 6, 3, {{{1, 10}, {4, 40}}, {{2, -2}, {3, 3}, {4, -40}}}};
  const auto collective = MakeOmnireduce(2, 1, 8);
  const auto outcomes = testing::RunExchanges(*collective, {sent})[0];
  const std::uint64_t block = 3 * kWord;  // its number and two elements
  EXPECT_EQ(outcomes[0].traffic,
            (Traffic{2, 2, (block + kWord) + (2 * block + kWord), 2 * (block + kWord)}));
  EXPECT_EQ(outcomes[1].traffic,
            (Traffic{2, 2, 2 * (block + kWord), (block + kWord) + (2 * block + kWord)}));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{0, 10, -2, 3, 0, 0}));
    EXPECT_EQ(outcome.summed, 3u) << "a sum that is 0 is not applied";
  }
}

// Every rank sends `many` blocks of whole elements, or `many` single elements if `loose`.
Sent Draw(std::size_t elements, std::size_t block, std::size_t ranks, std::size_t many, bool loose,
          unsigned seed) {
  std::mt19937 random(seed);
  Sent sent{"", elements, many * block, {}};
  const std::size_t blocks = (elements + block - 1) / block;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    SparseVector own;
    std::set<std::size_t> chosen;
    const std::size_t of = loose ? elements : blocks;
    while (chosen.size() < std::min(many, of)) chosen.insert(random() % of);
    for (const std::size_t at : chosen) {
      const std::size_t begin = loose ? at : at * block;
      const std::size_t end = loose ? at + 1 : std::min(elements, begin + block);
      for (std::size_t i = begin; i < end; ++i) {
        own[static_cast<std::uint32_t>(i)] = static_cast<float>(1 + random() % 20);
      }
    }
    sent.by_rank.push_back(std::move(own));
  }
  return sent;
}

std::vector<std::set<std::size_t>> BlocksOf(const Sent& sent, std::size_t block) {
  std::vector<std::set<std::size_t>> blocks;
  for (const SparseVector& own : sent.by_rank) {
    blocks.emplace_back();
    for (const auto& [index, value] : own) blocks.back().insert(index / block);
  }
  return blocks;
}

struct Shape {
  std::size_t elements, block, slots, bundle, ranks, many;
  bool loose;
  std::unique_ptr<Collective> Make() const {
    return MakeOmnireduce(static_cast<std::int64_t>(block), static_cast<std::int64_t>(slots),
                          static_cast<std::int64_t>(bundle));
  }
};

const std::vector<Shape> kShapes = {
    {1000, 4, 1, 1, 2, 20, false},     {1000, 4, 3, 1, 3, 30, false},
    {1001, 4, 2, 3, 4, 60, false},     {1001, 7, 8, 2, 5, 100, false},
    {999, 1, 4, 5, 3, 200, true},      {5000, 16, 4, 2, 8, 100, true},
    {20'000, 256, 4, 4, 16, 5, false}, {300, 256, 4, 1, 6, 1, true},
    {50, 1, 8, 1, 2, 50, false}};

// Only blocks that a rank needs travel: each once to its aggregator, and once from there to every
// other rank. Messages of sums are full except for the last one of a stream.
TEST(OmniReduce, BytesAreThoseOfTheNeededBlocks) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.elements) + " by " + std::to_string(shape.block));
    const Sent sent = Draw(shape.elements, shape.block, shape.ranks, shape.many, shape.loose, 5);
    const auto collective = shape.Make();
    const auto outcomes = testing::RunExchanges(*collective, {sent})[0];
    const BlockCut cut{shape.elements, shape.block};
    const auto by_rank = BlocksOf(sent, shape.block);
    std::set<std::size_t> united;
    for (const auto& blocks : by_rank) united.insert(blocks.begin(), blocks.end());
    const std::size_t slots =
        OmniReduceStreams(sent.kept, shape.block, shape.bundle, shape.slots, shape.ranks);
    const auto count = [](const std::set<std::size_t>& blocks, const BlockRange& part) {
      return static_cast<std::size_t>(
          std::distance(blocks.lower_bound(part.begin), blocks.lower_bound(part.end)));
    };
    for (std::size_t rank = 0; rank < shape.ranks; ++rank) {
      const BlockRange shard = cut.all().Part(shape.ranks, rank);
      std::uint64_t results = 0;  // messages to one other rank
      for (std::size_t s = 0; s < slots; ++s) {
        const BlockRange stream = shard.Part(slots, s);
        if (stream.size() == 0) continue;
        results +=
            std::max<std::size_t>(1, (count(united, stream) + shape.bundle - 1) / shape.bundle);
      }
      std::uint64_t words = 0;
      for (const std::size_t b : by_rank[rank]) {
        if (b < shard.begin || b >= shard.end) words += 1 + cut.Floats(b);
      }
      for (const std::size_t b : united) {
        if (b >= shard.begin && b < shard.end) words += (shape.ranks - 1) * (1 + cut.Floats(b));
      }
      const Traffic& traffic = outcomes[rank].traffic;
      EXPECT_EQ(traffic.bytes_sent, kWord * (traffic.messages_sent + words));
      ASSERT_GE(traffic.messages_sent, (shape.ranks - 1) * results);
      const std::uint64_t bundles = traffic.messages_sent - (shape.ranks - 1) * results;
      std::uint64_t least = 0;
      for (std::size_t peer = 0; peer < shape.ranks; ++peer) {
        if (peer == rank) continue;
        for (std::size_t s = 0; s < slots; ++s) {
          const BlockRange stream = cut.all().Part(shape.ranks, peer).Part(slots, s);
          if (stream.size() == 0) continue;
          least += std::max<std::size_t>(
              1, (count(by_rank[rank], stream) + shape.bundle - 1) / shape.bundle);
        }
      }
      EXPECT_GE(bundles, least);
    }
  }
}

// Over several steps with changing payloads, the result equals the all-gather's sum, which is the
// sum of all payloads. Nothing is returned.
TEST(OmniReduce, GivesWhatAllGatherGives) {
  const auto gather = CoreCollective("sparse-allgather");
  for (const Shape& shape : kShapes) {
    std::vector<Sent> steps;
    for (unsigned step = 0; step < 4; ++step) {
      steps.push_back(Draw(shape.elements, shape.block, shape.ranks, 1 + shape.many * step / 3,
                           shape.loose, step));
    }
    const auto collective = shape.Make();
    const auto sums = testing::RunExchanges(*collective, steps);
    const auto gathered = testing::RunExchanges(*gather, steps);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      for (std::size_t rank = 0; rank < shape.ranks; ++rank) {
        ASSERT_EQ(sums[step][rank].applied, gathered[step][0].applied);
        ASSERT_EQ(sums[step][rank].returned, std::vector<float>(shape.elements, 0.0f));
        ASSERT_TRUE(sums[step][rank].increasing);
      }
    }
  }
}

// 1 + 2^-24 is 1, and so is 1 + 2^-24 + 2^-24, but 2^-24 + 2^-24 + 1 is not.
TEST(OmniReduce, AddsInTheOrderOfTheRanks) {
  const float small = std::ldexp(1.0f, -24);
  const auto collective = MakeOmnireduce(1, 1, 1);
  const Sent sent{"", 2, 2, {{{0, 1}, {1, small}}, {{0, small}, {1, small}}, {{0, small}, {1, 1}}}};
  const auto outcomes = testing::RunExchanges(*collective, {sent})[0];
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied[0], 1.0f);
    EXPECT_EQ(outcome.applied[1], 1.0f + 2 * small);
  }
}

TEST(OmniReduce, OverflowIsSeenByAllRanks) {
  const auto collective = MakeOmnireduce(2, 1, 1);
  const float large = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Sent sent{"", 8, 2, {{{1, large}}, {{1, large}}, {{6, nan}}}};
  const auto outcomes = testing::RunExchanges(*collective, {sent})[0];
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(std::isinf(outcome.applied[1]));
    EXPECT_TRUE(std::isnan(outcome.applied[6]));
  }
}

// With a work thread a rank gives the same results, whichever streams the thread works on.
TEST(OmniReduce, WorksBesideTheCommunicationThread) {
  const Sent sent = Draw(4000, 8, 4, 120, false, 9);
  const auto collective = MakeOmnireduce(8, 4, 3);
  const auto expected = testing::RunExchanges(*collective, {sent})[0];
  testing::RunRanks(4, 1, testing::kExchangeDeadline, [&](ProgressLoop& loop) {
    const auto rank = static_cast<std::size_t>(loop.rank());
    JobThread jobs(loop);
    const std::vector<std::byte> bytes = testing::PayloadOf(sent.by_rank[rank]);
    Buffer<std::byte> own(bytes.size());
    std::copy(bytes.begin(), bytes.end(), own.data());
    ExchangeBuffers buffers;
    buffers.shape = {sent.elements, sent.kept, 0};
    buffers.own = own.host();
    Buffer<std::byte> gathered(4 * sent.most() * kSparseElementBytes);
    buffers.gathered = gathered.host();
    buffers.capacity_bytes = sent.most() * kSparseElementBytes;
    buffers.jobs = &jobs;
    loop.RunBlocking(
        [&](Communicator& world) -> Task { co_await collective->Run(world, buffers, 32); });
    std::vector<float> applied(sent.elements);
    testing::AddTo(applied, buffers.payloads.at(0));
    EXPECT_EQ(applied, expected[rank].applied);
    EXPECT_EQ(buffers.seen, expected[rank].seen);
    jobs.Stop();
  });
}

TEST(OmniReduce, RefusesOptionsOutOfRange) {
  for (const char* name : {"block", "slots", "bundle"}) {
    for (const std::int64_t value : {0, 1'000'000}) {
      EXPECT_THROW((void)MakeCollective(OmniReduceCollective(), {{name, value}}), Error) << name;
    }
  }
  EXPECT_THROW((void)MakeOmnireduce(256, 9, 1), Error) << "tags are for eight streams";
}

// --- the model's expectations ---

struct Volume {
  double own = 0;     // sent blocks / blocks that ranks could send
  double united = 0;  // received blocks / blocks that ranks could receive
  std::uint64_t messages = 0;
  std::uint64_t repeats = 0;
  std::uint64_t sums = 0;
};

Volume VolumeOf(const RoundPlan& plan, const ExchangeSizes& sizes, std::size_t block) {
  const std::uint64_t ranks = sizes.seen.size();
  Volume volume;
  std::uint64_t own = 0;
  std::uint64_t united = 0;
  for (const auto& seen : sizes.seen) {
    own += seen[kBundleWords] - seen[kBundles];
    united += seen[kResultWords] - seen[kResults];
    volume.messages += seen[kBundles] + (ranks - 1) * seen[kResults];
  }
  const double all = static_cast<double>(sizes.shape.elements) / static_cast<double>(block) *
                     static_cast<double>(block + 1);
  volume.own = static_cast<double>(own) / (all * static_cast<double>(ranks - 1));
  volume.united = static_cast<double>(united) / all;
  volume.repeats = plan.rounds[0].repeat;
  volume.sums = *plan.sums;
  return volume;
}

struct Both {
  Volume run;
  Volume model;
};

Both Compare(const Sent& sent, const Shape& shape, const OverlapModel& overlap) {
  const auto collective = shape.Make();
  const auto outcomes = testing::RunExchanges(*collective, {sent})[0];
  const Topology topology{static_cast<int>(shape.ranks), 1};
  ExchangeSizes sizes = testing::RecordedSizes(*collective, sent, 0, outcomes);
  const auto volume = [&] {
    return VolumeOf(collective->Rounds(sizes, topology), sizes, shape.block);
  };
  Both both;
  both.run = volume();
  collective->Expect(overlap, topology, sizes);
  both.model = volume();
  EXPECT_NEAR(both.model.own / both.run.own, 1, 0.02);
  EXPECT_NEAR(both.model.united / both.run.united, 1, 0.02);
  testing::ExpectClose(both.model.messages, both.run.messages, 0.15);
  testing::ExpectClose(both.model.repeats, both.run.repeats, 0.15);
  testing::ExpectClose(both.model.sums, both.run.sums, 0.02);
  return both;
}

// Elements selected independently at density 0.1 %. One rank needs 22.6 % of the blocks of 256, 8
// ranks 87.1 %, 16 ranks 98.3 %. At 1 % one rank needs 92.4 %, and 8 ranks need all.
TEST(OmniReduceModel, UnstructuredSelectionsNeedNearlyAllBlocks) {
  constexpr std::size_t kBlocks = 4000;
  const auto draw = [](std::size_t ranks, double density) {
    const Shape shape{256 * kBlocks, 256, 4, 64, ranks, 0, true};
    const auto many = static_cast<std::size_t>(256 * kBlocks * density);
    Sent sent = Draw(shape.elements, 256, ranks, many, true, 3);
    sent.kept = many;
    return Compare(sent, shape, {});
  };
  const Both eight = draw(8, 0.001);
  EXPECT_NEAR(eight.run.own, 0.226, 0.005);
  EXPECT_NEAR(eight.run.united, 0.871, 0.01);
  const Both sixteen = draw(16, 0.001);
  EXPECT_NEAR(sixteen.run.own, 0.226, 0.005);
  EXPECT_NEAR(sixteen.run.united, 0.983, 0.005);
  const Both dense = draw(8, 0.01);
  EXPECT_NEAR(dense.run.own, 0.924, 0.005);
  EXPECT_NEAR(dense.run.united, 1.0, 0.01);
}

// Whole blocks at density 1 %: one rank needs 1 % of them, 8 ranks 1 - 0.99^8 = 7.7 %. A model of
// independent elements would need nearly all blocks.
TEST(OmniReduceModel, BlocksThatAreSelectedTogetherAreFew) {
  for (const std::size_t bundle : {4, 256}) {
    const Shape shape{256 * 8000, 256, 4, bundle, 8, 80, false};
    const Sent sent = Draw(shape.elements, shape.block, shape.ranks, shape.many, false, 4);
    OverlapModel overlap;
    overlap.together = 256;
    const Both both = Compare(sent, shape, overlap);
    EXPECT_NEAR(both.model.own, 0.01, 0.0005);
    EXPECT_NEAR(both.model.united, 0.077, 0.002);
  }
}

// If all ranks select the same, each sends it once, and the sums are no more elements.
TEST(OmniReduceModel, RanksThatSelectTheSameNeedNoMoreTogether) {
  const Shape shape{16 * 10'000, 16, 1, 8, 4, 1000, false};
  Sent sent = Draw(shape.elements, shape.block, 1, shape.many, false, 4);
  sent.by_rank.resize(shape.ranks, sent.by_rank[0]);
  const Both both = Compare(sent, shape, {.theta = 1, .together = 16});
  EXPECT_NEAR(both.model.united, both.model.own, 1e-3);
}

TEST(OmniReduceModel, RanksOfANodeShareItsNetwork) {
  const auto collective = MakeOmnireduce(256, 4, 256);
  OverlapModel overlap;
  overlap.together = 256;
  const auto rounds = [&](const Topology& topology) {
    return testing::ExpectedRounds(*collective, {256 * 8000, 80 * 256, 1}, topology, overlap)
        .rounds;
  };
  const auto alone = rounds({8, 1});
  const auto four = rounds({8, 4});
  const auto together = rounds({8, 8});
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(alone[r].node_bytes, 0u);
    EXPECT_EQ(alone[r].bytes, four[r].bytes);
    // Each of four ranks sends to seven others, and four sevenths of its bytes leave the node.
    testing::ExpectClose(four[r].bytes * 4 * 4 / 7, four[r].node_bytes, 0.05);
    EXPECT_EQ(together[r].node_bytes, 0u);
    EXPECT_EQ(together[r].link, LinkClass::kIntraNode);
  }
}

float Number(std::uint32_t block) { return std::bit_cast<float>(block); }

// Words as bits, since block numbers are not comparable as floats.
std::vector<std::uint32_t> Bits(std::span<const float> words) {
  std::vector<std::uint32_t> bits;
  for (const float word : words) bits.push_back(std::bit_cast<std::uint32_t>(word));
  return bits;
}

struct Elements {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  SparsePayload view() const { return {indices, values}; }
};

// Two workers of one stream of three blocks of two elements; the last block has a single element.
class TwoWorkers {
 public:
  explicit TwoWorkers(std::size_t bundle)
      : first_{kCut, kFirst.view(), first_index_, kCut.all(), bundle},
        second_{kCut, kSecond.view(), second_index_, kCut.all(), bundle},
        room_(2 * kCut.MessageWords(kCut.all(), bundle)),
        aggregator_(kCut, kCut.all(), bundle, 2, room_) {}

  // Every worker that may send does. Returns each worker's message (empty: none), then the message
  // of sums, which all workers take.
  std::vector<std::vector<std::uint32_t>> Step() {
    std::vector<std::vector<std::uint32_t>> said;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      WorkerStream& worker = rank == 0 ? first_ : second_;
      EXPECT_EQ(worker.sends(), aggregator_.Expects(rank));
      said.emplace_back();
      if (!worker.sends()) continue;
      const std::span<float> room = aggregator_.Room(rank);
      const std::size_t words = worker.Fill(room);
      said.back() = Bits(room.first(words));
      aggregator_.Arrived(rank, words);
    }
    std::vector<float> message(100);
    message.resize(aggregator_.Emit(message));
    said.push_back(Bits(message));
    SumRoom other = sums_;
    first_.Take(message, sums_);
    second_.Take(message, other);
    EXPECT_EQ(other.used, sums_.used);
    EXPECT_EQ(first_.done(), second_.done());
    return said;
  }
  bool done() const { return first_.done(); }
  SparsePayload sums() const {
    return {sums_.indices.first(sums_.used), sums_.values.first(sums_.used)};
  }
  std::uint64_t added() const { return aggregator_.added(); }

  static inline const BlockCut kCut{5, 2};
  static inline const Elements kFirst{{1, 4}, {10, 40}};        // blocks 0 and 2
  static inline const Elements kSecond{{2, 3, 4}, {-2, 3, 4}};  // blocks 1 and 2

 private:
  BlockIndex first_index_{kCut, kFirst.view()};
  BlockIndex second_index_{kCut, kSecond.view()};
  WorkerStream first_;
  WorkerStream second_;
  std::vector<float> room_;
  AggregatorStream aggregator_;
  // Room for exactly the four non-zero sums.
  std::vector<std::uint32_t> indices_ = std::vector<std::uint32_t>(4);
  std::vector<float> values_ = std::vector<float>(4);
  SumRoom sums_{indices_, values_};
};

// One block at a time: both workers send their first block. Block 0 is summed, since no worker can
// still send it, and block 1 is requested, which has arrived. The sum of block 0 is sent out; the
// first worker may continue, the second waits for its block 1.
TEST(OmniReduceStream, GoesThroughThreeBlocksOneAtATime) {
  TwoWorkers stream(1);
  auto said = stream.Step();
  EXPECT_EQ(said[0], Bits({{Number(0), 0, 10, Number(2)}}));
  EXPECT_EQ(said[1], Bits({{Number(1), -2, 3, Number(2)}}));
  EXPECT_EQ(said[2], Bits({{Number(0), 0, 10, Number(1)}}));
  EXPECT_FALSE(stream.done());
  said = stream.Step();
  EXPECT_EQ(said[0], Bits({{Number(2), 40, Number(kNone)}}));
  EXPECT_TRUE(said[1].empty());
  EXPECT_EQ(said[2], Bits({{Number(1), -2, 3, Number(2)}}));
  said = stream.Step();
  EXPECT_TRUE(said[0].empty());
  EXPECT_EQ(said[1], Bits({{Number(2), 4, Number(kNone)}}));
  EXPECT_EQ(said[2], Bits({{Number(2), 44, Number(kNone)}}));
  EXPECT_TRUE(stream.done());
  const auto [indices, values] = stream.sums();
  EXPECT_EQ(std::vector(indices.begin(), indices.end()), (std::vector<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(std::vector(values.begin(), values.end()), (std::vector<float>{10, -2, 3, 44}));
  EXPECT_EQ(stream.added(), 2u + 2 + 1 + 1);
}

TEST(OmniReduceStream, TakesOneStepWhereABundleHoldsAll) {
  TwoWorkers stream(3);
  const auto said = stream.Step();
  EXPECT_EQ(said[0], Bits({{Number(0), 0, 10, Number(2), 40, Number(kNone)}}));
  EXPECT_EQ(said[1], Bits({{Number(1), -2, 3, Number(2), 4, Number(kNone)}}));
  EXPECT_EQ(said[2], Bits({{Number(0), 0, 10, Number(1), -2, 3, Number(2), 44, Number(kNone)}}));
  EXPECT_TRUE(stream.done());
}

TEST(OmniReduceStream, RefusesMalformedMessages) {
  const BlockCut cut{5, 2};
  const BlockRange stream{1, 3};
  const BlockIndex index(cut, {});
  const auto refused = [](const auto& call) {
    const std::string error = testing::ErrorOf(call, FailureKind::kComm);
    if (error == "no error") return false;
    EXPECT_SAYS(error, "omnireduce: malformed");
    return true;
  };
  const auto refuses = [&](const std::vector<float>& message) {
    std::uint32_t indices[3];
    float values[3];
    SumRoom sums{indices, values};
    WorkerStream worker(cut, {}, index, stream, 4);
    const bool by_worker = refused([&] { worker.Take(message, sums); });
    std::vector<float> room(100);
    AggregatorStream aggregator(cut, stream, 4, 1, room);
    std::copy(message.begin(), message.end(), aggregator.Room(0).begin());
    EXPECT_EQ(by_worker, refused([&] { aggregator.Arrived(0, message.size()); }));
    return by_worker;
  };
  EXPECT_FALSE(refuses({Number(1), 1, 2, Number(2), 3, Number(kNone)}));
  EXPECT_FALSE(refuses({Number(kNone)}));
  EXPECT_TRUE(refuses({})) << "no word at all";
  EXPECT_TRUE(refuses({Number(0), 1, 2, Number(kNone)})) << "a block of another stream";
  EXPECT_TRUE(refuses({Number(3), 1, Number(kNone)})) << "no block at all";
  EXPECT_TRUE(refuses({Number(2), 1, Number(1), 1, 2, Number(kNone)})) << "not increasing";
  EXPECT_TRUE(refuses({Number(1), 1, Number(kNone)})) << "half a block";
  EXPECT_TRUE(refuses({Number(2), 3, Number(2)})) << "asks for what it has given";
  EXPECT_TRUE(refuses({Number(7)})) << "asks for no block";
}

// A malformed message has more sums than the ranks can have sent.
TEST(OmniReduceStream, RefusesMoreSumsThanThereIsRoomFor) {
  const BlockCut cut{4, 2};
  const BlockIndex index(cut, {});
  std::uint32_t indices[2];
  float values[2];
  const auto take = [&](const std::vector<float>& message) {
    SumRoom sums{indices, values};
    WorkerStream worker(cut, {}, index, cut.all(), 4);
    worker.Take(message, sums);
    return sums.used;
  };
  EXPECT_EQ(take({Number(0), 0, 2, Number(1), 3, 0, Number(kNone)}), 2u);
  EXPECT_EQ(indices[0], 1u);
  EXPECT_EQ(indices[1], 2u);
  EXPECT_THROW(take({Number(0), 0, 2, Number(1), 3, 4, Number(kNone)}), Error);
}

TEST(OmniReduceStream, BlocksAreDealtOutToShardsAndStreams) {
  const BlockRange all{0, 11};
  std::size_t next = 0;
  for (std::size_t shard = 0; shard < 4; ++shard) {
    const BlockRange part = all.Part(4, shard);
    EXPECT_EQ(part.begin, next);
    EXPECT_EQ(part.size(), shard < 3 ? 3u : 2u);
    next = part.end;
  }
  EXPECT_EQ(next, 11u);
  EXPECT_EQ(all.Part(20, 10).size(), 1u);
  EXPECT_EQ(all.Part(20, 11).size(), 0u);
  // 10,000 elements are 40 blocks of 256. A stream is filled by two blocks of each rank for each of
  // 4 shards.
  EXPECT_EQ(OmniReduceStreams(10'000, 256, 2, 8, 4), 5u);
  EXPECT_EQ(OmniReduceStreams(10'000, 256, 2, 4, 4), 4u);
  EXPECT_EQ(OmniReduceStreams(10'000, 256, 256, 4, 4), 1u);
  EXPECT_EQ(OmniReduceStreams(1, 256, 256, 4, 32), 1u);
}

TEST(OmniReduceStream, RefusesAnIndexBeyondTheRange) {
  const BlockCut cut{10, 4};
  const Elements own{{9, 10}, {1, 1}};
  testing::ExpectError(FailureKind::kInternal, {},
                       [&] { const BlockIndex index(cut, own.view()); });
}

}  // namespace
}  // namespace sparfuse::baselines
