// Tests codes of blocks, and the all-reduces that send them, by values computed by hand.
#include "core/coding/quantizers/block_codes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/collective/collective.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using Values = std::vector<float>;

TEST(Fp8, RoundsToTheNearestAndSaturates) {
  EXPECT_EQ(Fp8Of(0.1f), 0x1d);
  EXPECT_EQ(OfFp8(0x1d), 0.1015625f);
  EXPECT_EQ(Fp8Of(-1), 0xb8);
  EXPECT_EQ(Fp8Of(17), 0x58);
  EXPECT_EQ(OfFp8(0x58), 16);
  EXPECT_EQ(Fp8Of(449), 0x7e);
  EXPECT_EQ(Fp8Of(1e30f), 0x7e);
  EXPECT_EQ(OfFp8(0x7e), 448);
  EXPECT_EQ(Fp8Of(0x1p-9f), 0x01);
  EXPECT_EQ(Fp8Of(0x1p-10f), 0x00);
  EXPECT_EQ(Fp8Of(1.5f * 0x1p-10f), 0x01);
  EXPECT_EQ(Fp8Of(248), 0x78);
  EXPECT_EQ(OfFp8(0x78), 256);
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // NaN
    EXPECT_EQ(Fp8Of(OfFp8(static_cast<std::uint8_t>(code))), code);
  }
}

Values Decoded(BlockCode code, const Values& x, Values* scales = nullptr) {
  const BlockForm form{code, 4};
  std::vector<std::byte> bytes(form.Bytes(x.size()));
  EncodeBlocks(form, x, bytes);
  if (scales != nullptr) {
    scales->resize(form.BlocksOf(x.size()));
    std::memcpy(scales->data(), bytes.data(), scales->size() * sizeof(float));
  }
  Values out(x.size());
  DecodeBlocks(form, bytes, out, "test");
  return out;
}

void ExpectNear(const Values& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-6 * std::fabs(expected[i])) << i;
  }
}

// The neighbour below if the draw is not below the distance from it in steps, else the one above.
TEST(BlockCodes, AreDrawnByElement) {
  const Values x = {.3f, -1.75f, 12.5f, 0, -127, 99.1f, .99f, -.01f};
  const RandomStream stream(3, 5, 7);
  const BlockForm form{.code = BlockCode::kInt8, .block = 32, .stochastic = true};
  std::vector<std::byte> bytes(form.Bytes(x.size()));
  EncodeBlocks(form, x, bytes, &stream);  // the scale is 1
  bool above = false, below = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double draw = static_cast<double>(stream.At(i) >> 40) / (1 << 24);
    const double floor = std::floor(x[i]);
    const int expected = static_cast<int>(floor) + (draw < x[i] - floor ? 1 : 0);
    EXPECT_EQ(static_cast<int>(static_cast<std::int8_t>(bytes[4 + i])), expected) << i;
    above |= static_cast<float>(expected) > x[i];
    below |= static_cast<float>(expected) < x[i];
  }
  EXPECT_TRUE(above && below);
  // 16.25 lies an eighth of the way from 16 to 18.
  EXPECT_EQ(Fp8Of(16.25f, .124f), 0x59);
  EXPECT_EQ(Fp8Of(16.25f, .126f), 0x58);
  EXPECT_EQ(Fp8Of(-16.25f, .124f), 0xd9);
  EXPECT_EQ(Fp8Of(0x1p-10f, .49f), 0x01);
  EXPECT_EQ(Fp8Of(0x1p-10f, .51f), 0x00);
  EXPECT_EQ(Fp8Of(448, 0), 0x7e);
}

TEST(BlockCodes, AreTheirDefinition) {
  const Values x = {.1f, -1, 3, .004f, -7, 2.5f, 0, .001f};
  Values scales;
  ExpectNear(Decoded(BlockCode::kInt8, x, &scales),
             {.0944881886, -.992125988, 3, 0, -7, 2.48031497, 0, 0});
  ExpectNear(scales, {.0236220472, .05511811});
  ExpectNear(Decoded(BlockCode::kInt4, x, &scales), {0, -.857142866, 3, 0, -7, 2, 0, 0});
  ExpectNear(scales, {.428571433, 1});
  ExpectNear(Decoded(BlockCode::kFp8, x, &scales),
             {.100446433, -.964285731, 3, .00418526772, -7, 2.5, 0, .0009765625});
  ExpectNear(scales, {.00669642864, .015625});
}

TEST(BlockCodes, PutTwoHalfBytesInAByte) {
  const BlockForm form{BlockCode::kInt4, 4};
  const Values x = {7, -7, 1, 0, -2};
  std::vector<std::byte> bytes(form.Bytes(x.size()));
  ASSERT_EQ(bytes.size(), 8u + 4u);
  EncodeBlocks(form, x, bytes);
  EXPECT_EQ(bytes[8], std::byte{0x97});
  EXPECT_EQ(bytes[9], std::byte{0x01});
  EXPECT_EQ(bytes[10], std::byte{0x09});
  EXPECT_EQ(bytes[11], std::byte{0});
}

TEST(BlockCodes, RefuseWhatEncodingCannotMake) {
  const BlockForm form{BlockCode::kInt8, 4};
  std::vector<std::byte> bytes(form.Bytes(4));
  Values out(4);
  ExpectError(FailureKind::kComm, {"test", "12"},
              [&] { DecodeBlocks(form, std::vector<std::byte>(12), out, "test"); });
  bytes[5] = std::byte{0x80};
  ExpectError(FailureKind::kComm, {"code"}, [&] { DecodeBlocks(form, bytes, out, "test"); });
  bytes[5] = {};
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data(), &infinity, sizeof infinity);
  ExpectError(FailureKind::kComm, {"scale"}, [&] { DecodeBlocks(form, bytes, out, "test"); });
}

// The error of one encoding is at most half a step.
TEST(BlockCodes, LoseAtMostHalfAStep) {
  Values x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i));
  for (const auto& [code, steps] :
       {std::pair{BlockCode::kInt8, 254.0f}, {BlockCode::kInt4, 14.0f}}) {
    const Values decoded = Decoded(code, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(std::fabs(decoded[i] - x[i]), 1.00001f / steps);
    }
  }
  const Values decoded = Decoded(BlockCode::kFp8, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(decoded[i] - x[i]),
              std::max(std::fabs(x[i]) / 16, 0x1p-10f / 448) * 1.00001f);
  }
}

std::vector<Values> Reduced(const char* name, std::vector<Values> data, std::int64_t block,
                            RoundPlan* rounds = nullptr, std::vector<Traffic>* sent = nullptr,
                            const std::string& gather = "direct") {
  const int ranks = static_cast<int>(data.size());
  const CollectiveDescriptor& descriptor = CoreCollective(name)->descriptor();
  const auto collective = MakeCollective(descriptor, {{"block", block}, {"gather", gather}});
  if (rounds != nullptr) {
    *rounds = collective->Rounds(
        SizesOf(std::vector<std::uint64_t>(data.size(), sizeof(float) * data[0].size())),
        Topology{ranks, 1});
  }
  if (sent != nullptr) sent->resize(data.size());
  RunRanks(ranks, 1, std::chrono::seconds(20), [&](ProgressLoop& loop) {
    const auto rank = static_cast<std::size_t>(loop.rank());
    ExchangeBuffers buffers;
    buffers.dense = data[rank];
    loop.RunBlocking([&](Communicator& world) -> Task {
      const Traffic before = Total(world.traffic());
      co_await collective->Run(world, buffers, 0);
      if (sent != nullptr) (*sent)[rank] = Total(world.traffic()) - before;
    });
  });
  return data;
}

// The shards have four elements, fewer than the blocks of 32: one scale a shard.
TEST(BlockAllReduce, SumsWhatCodesSay) {
  const std::vector<Values> data = {{1, -2, .5f, 3, .1f, -.6f, 2, .25f},
                                    {.3f, 1, -1.5f, 2, -.2f, .4f, -1, .75f}};
  for (const auto& [name, sum] : std::vector<std::pair<const char*, std::vector<double>>>{
           {"int8-blocks",
            {1.29921257, -.984251976, -.984251976, 5, -.102362201, -.196850389, 1, 1}},
           {"int4-blocks",
            {1.42857146, -1.42857146, -.714285731, 5, -.142857149, -.142857149, 1, 1}},
           {"fp8-blocks", {1.25, -.892857194, -.982142866, 5, -.098214291, -.178571433, 1, 1}}}) {
    SCOPED_TRACE(name);
    for (const Values& rank : Reduced(name, data, 32)) ExpectNear(rank, sum);
  }
}

TEST(BlockAllReduce, GivesAllRanksTheSameBitsAndSendsWhatItSays) {
  for (const char* name : {"int8-blocks", "int4-blocks", "fp8-blocks"}) {
    for (const std::size_t n : {1, 2, 97, 1000}) {
      for (const std::size_t ranks : {1, 2, 3, 5}) {
        SCOPED_TRACE(::testing::Message() << name << ", n = " << n << ", ranks = " << ranks);
        std::vector<Values> data(ranks, Values(n));
        for (std::size_t r = 0; r < ranks; ++r) {
          for (std::size_t i = 0; i < n; ++i) data[r][i] = std::sin(static_cast<float>(r * n + i));
        }
        RoundPlan rounds;
        std::vector<Traffic> sent;
        const auto reduced = Reduced(name, data, 32, &rounds, &sent);
        EXPECT_EQ(sent, rounds.per_rank);
        for (const Values& rank : reduced) EXPECT_EQ(rank, reduced[0]);
        const auto around = Reduced(name, data, 32, &rounds, &sent, "ring");
        EXPECT_EQ(sent, rounds.per_rank);
        EXPECT_EQ(around, reduced);
      }
    }
  }
}

// 10 elements on 3 ranks: shards of 4, 3 and 3, each with a scale and bytes padded to words.
TEST(BlockAllReduce, GathersAroundARingInAsManyStepsAsOthers) {
  const auto collective = MakeCollective(CoreCollective("int8-blocks")->descriptor(),
                                         {{"gather", std::string("ring")}});
  const RoundPlan plan = collective->Rounds(SizesOf({40, 40, 40}), {3, 1});
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.rounds[0].messages, 2u);
  EXPECT_EQ(plan.rounds[1].repeat, 2u);
  EXPECT_EQ(plan.rounds[1].messages, 1u);
  EXPECT_EQ(plan.rounds[1].bytes, 2u * 8);
  for (const Traffic& rank : plan.per_rank) EXPECT_EQ(rank, (Traffic{4, 4, 32, 32}));
  ExpectError(FailureKind::kConfig, {"gather = \"ring\" with levels = 2"}, [] {
    MakeCollective(CoreCollective("int8-blocks")->descriptor(),
                   {{"gather", std::string("ring")}, {"levels", std::int64_t{2}}});
  });
}

}  // namespace
}  // namespace sparfuse::testing
