// Tests the streams of OmniReduce without a transport: messages by hand, and malformed ones.
#include "baselines/omnireduce/omnireduce_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "baselines/omnireduce/omnireduce.hpp"
#include "core/base/error.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::baselines {
namespace {

float Number(std::uint32_t block) { return std::bit_cast<float>(block); }

// Words as bits: block numbers are not floats that compare.
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

// Two workers of one stream of three blocks of two elements; the last one has a single element.
class TwoWorkers {
 public:
  explicit TwoWorkers(std::size_t bundle)
      : first_{kCut, kFirst.view(), first_index_, kCut.all(), bundle},
        second_{kCut, kSecond.view(), second_index_, kCut.all(), bundle},
        room_(2 * kCut.MessageWords(kCut.all(), bundle)),
        aggregator_(kCut, kCut.all(), bundle, 2, room_) {}

  // Every worker that may send does; what each said (empty: nothing), then the sums, which all
  // take.
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
  // For the four sums that are not 0, and no more.
  std::vector<std::uint32_t> indices_ = std::vector<std::uint32_t>(4);
  std::vector<float> values_ = std::vector<float>(4);
  SumRoom sums_{indices_, values_};
};

// A block at a time: both send their first one. Block 0 is summed, as nobody can still send it, and
// block 1 asked for, which is there; the first worker's block 0 is given out and it may go on, the
// second one waits for its block 1.
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
    try {
      call();
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kComm) << error.what();
      EXPECT_SAYS(error.what(), "omnireduce: malformed");
      return true;
    }
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

// A malformed sum of more elements than the ranks can have sent.
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
  // 10,000 elements are 40 blocks of 256; two of each rank's for each of 4 shards fill a stream.
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
