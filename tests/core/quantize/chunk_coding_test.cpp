// Tests the coding of chunks against bytes and levels computed by hand, and on random selections.
#include "core/coding/chunk_coding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/bits.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Indices = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

PayloadCoding Chunks(ValueCoding values, std::uint32_t chunk = 4096, double density = 0) {
  PayloadCoding coding{values, IndexCoding::kU12};
  coding.chunk = chunk;
  coding.density = density;
  return coding;
}

// Replaces values by the decoded ones.
Bytes EncodeChunks(const PayloadCoding& coding, const Indices& indices, Floats& values,
                   std::size_t n, std::span<float> residual = {}) {
  Bytes bytes(ChunkCodedBytes(coding, indices.size(), n), std::byte{0xa5});
  EXPECT_EQ(EncodeChunks(coding, indices, values, residual, n, bytes), bytes.size());
  return bytes;
}

Selected DecodeChunks(const PayloadCoding& coding, const Bytes& bytes, std::size_t n) {
  Indices indices(n);
  Floats values(n);
  const auto [payload, used] = DecodeChunks(coding, bytes, n, indices, values);
  EXPECT_EQ(used, bytes.size());
  return {{payload.indices.begin(), payload.indices.end()},
          {payload.values.begin(), payload.values.end()}};
}

TEST(ChunkCoding, HasTheSpecifiedBits) {
  // Three chunks of 3, 2 and 1 elements.
  Floats values(6, 1.0f);
  const PayloadCoding coding = Chunks(ValueCoding::kF32);
  const Bytes bytes =
      EncodeChunks(coding, {3, 10, 4095, 4096 + 7, 4096 + 2048, 8192 + 1}, values, 12288);
  EXPECT_EQ(Bytes(bytes.begin(), bytes.begin() + 15),
            BytesOf({3, 0, 2, 0, 1, 0, 0x03, 0xa0, 0x00, 0xff, 0x7f, 0x00, 0x00, 0x18, 0x00}));
  EXPECT_EQ(bytes.size(), 40u);  // 6 + 9 + 24, padded
}

TEST(ChunkCoding, HasTheSpecifiedCodes) {
  const Floats values = {4, -3, 2.5f, -1, .5f, -.25f};
  std::vector<std::uint8_t> codes(values.size());
  const std::array<float, 4> levels = Codes4(values, codes);
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{3, 1, 3, 2, 2, 2}));
  EXPECT_EQ(levels, (std::array<float, 4>{0, -3, -.25f, 3.25f}));
  Floats sent = values;
  Floats residual(6);
  const PayloadCoding coding = Chunks(ValueCoding::kCodes4, 6, 1);
  const Bytes bytes = EncodeChunks(coding, {0, 1, 2, 3, 4, 5}, sent, 6, residual);
  EXPECT_EQ(bytes.size(), 28u);  // 9 + 2 + 16, padded
  EXPECT_EQ(Bytes(bytes.begin() + 9, bytes.begin() + 11), BytesOf({0xb7, 0x0a}));
  EXPECT_EQ(sent, (Floats{3.25f, -3, 3.25f, -.25f, -.25f, -.25f}));
  EXPECT_EQ(residual, (Floats{.75f, 0, -.75f, -.75f, .75f, 0}));
  EXPECT_EQ(DecodeChunks(coding, bytes, 6).values, sent);
}

// Equal values, a single value, and values whose squares exceed the range of floats.
TEST(ChunkCoding, HasLevelsForAnyValues) {
  for (const Floats& values : std::vector<Floats>{
           {2}, {-1, -1, -1}, {0, 0}, {3e38f, -3e38f, 1}, {1e-30f, 0}, {1, 1, 1, 1e30f}}) {
    std::vector<std::uint8_t> codes(values.size());
    const std::array<float, 4> levels = Codes4(values, codes);
    double sum = 0, decoded = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      decoded += levels[codes[i]];
      largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
    }
    EXPECT_NEAR(decoded, sum, 1e-6 * largest);
    for (const float level : levels) EXPECT_LE(std::fabs(level), largest);
  }
  const Floats one = {2};
  std::uint8_t code = 0;
  EXPECT_EQ(Codes4(one, {&code, 1})[code], 2);
}

TEST(ChunkCoding, TakesFourteenBitsAnElement) {
  const std::size_t n = std::size_t{1} << 20;
  EXPECT_EQ(ChunkCodedBytes(Chunks(ValueCoding::kCodes4, 4096, 1.0 / 64), n / 64, n),
            24576u + 4096 + 16);
  EXPECT_EQ(ChunkCodedBytes(Chunks(ValueCoding::kCodes4), n / 64, n), 512u + 24576 + 4096 + 16);
  EXPECT_EQ(ChunkCodedBytes(Chunks(ValueCoding::kF16, 4096, .5), 1, 2), 4u);
  EXPECT_EQ(ChunkCodedBytes(Chunks(ValueCoding::kCodes4), 0, 5), 4u);
}

// Selections of a sparsifier that works by chunk, and selections with other counts.
TEST(ChunkCoding, WhatIsEncodedIsDecoded) {
  std::mt19937_64 random(1);
  for (int draw = 0; draw < (kSanitized ? 30 : 200); ++draw) {
    const std::size_t n = 1 + random() % 20000;
    const bool known = draw % 2 == 0;
    const std::uint32_t chunk = known ? 1 + random() % 4096 : 4096;
    const double density = 1.0 / static_cast<double>(1 + random() % 100);
    Indices indices;
    for (std::size_t begin = 0; begin < n; begin += chunk) {
      const std::size_t size = std::min<std::size_t>(chunk, n - begin);
      Indices all(size);
      std::iota(all.begin(), all.end(), static_cast<std::uint32_t>(begin));
      const std::size_t count = known ? KeptCount(size, density) : random() % (size / 8 + 1);
      std::ranges::sample(Indices(all), all.begin(), static_cast<long>(count), random);
      indices.insert(indices.end(), all.begin(), all.begin() + static_cast<long>(count));
    }
    for (const ValueCoding values : {ValueCoding::kF32, ValueCoding::kF16, ValueCoding::kCodes4}) {
      const PayloadCoding coding = Chunks(values, chunk, known ? density : 0);
      Floats given;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        given.push_back(std::ldexp(static_cast<float>(random() % 2001) - 1000, -7));
      }
      Floats sent = given, residual(n);
      const Bytes bytes = EncodeChunks(coding, indices, sent, n, residual);
      const Selected decoded = DecodeChunks(coding, bytes, n);
      EXPECT_EQ(decoded.indices, indices);
      EXPECT_EQ(decoded.values, sent);
      for (std::size_t i = 0; i < given.size(); ++i) {
        EXPECT_NEAR(sent[i] + residual[indices[i]], given[i], 2e-6);
        if (values == ValueCoding::kF32) {
          EXPECT_EQ(sent[i], given[i]);
        }
      }
      // A payload that is cut short is refused.
      Indices room(n);
      Floats values_room(n);
      EXPECT_THROW(
          DecodeChunks(coding, std::span(bytes).first(bytes.size() - 1), n, room, values_room),
          Error);
    }
  }
}

TEST(ChunkCoding, IsReadNoOtherWayThanItIsWritten) {
  const PayloadCoding coding = Chunks(ValueCoding::kCodes4, 8, .25);  // two of eight, one of five
  Floats values = {1, -1, 4};
  const Bytes good = EncodeChunks(coding, {1, 6, 9}, values, 13);
  ASSERT_EQ(good.size(), 24u);  // 5 + 1 + 16, padded
  const auto why = [&](std::size_t at, int byte, std::size_t room = 13) {
    Bytes bad = good;
    bad[at] = static_cast<std::byte>(byte);
    Indices indices(room);
    Floats floats(room);
    return ErrorOf([&] { DecodeChunks(coding, bad, 13, indices, floats); }, FailureKind::kComm);
  };
  EXPECT_SAYS(why(0, 6), "index 1 of chunk 0 is 6");    // not ascending
  EXPECT_SAYS(why(0, 9), "index 0 of chunk 0 is 9");    // not of the chunk
  EXPECT_SAYS(why(3, 5), "index 0 of chunk 1 is 5");    // not of the last, shorter one
  EXPECT_SAYS(why(4, 0x10), "bits after the indices");  // of the last byte of indices
  EXPECT_SAYS(why(5, 0xc0), "bits after the codes");
  EXPECT_EQ(why(21, 0x41), "no error");  // a level, which may be any number
  EXPECT_SAYS(why(23, 1), "its padding is not zero");
  EXPECT_SAYS(why(0, 1, 2), "3 elements; expected at most 2");
  Bytes infinite = good;
  infinite[8] = std::byte{0x80};
  infinite[9] = std::byte{0x7f};
  Indices indices(13);
  Floats floats(13);
  const auto refused = [&](const PayloadCoding& as, const Bytes& bytes) {
    return ErrorOf([&] { DecodeChunks(as, bytes, 13, indices, floats); }, FailureKind::kComm);
  };
  EXPECT_SAYS(refused(coding, infinite), "level 0 is not finite");
  const PayloadCoding counted = Chunks(ValueCoding::kF32, 8);
  EXPECT_SAYS(refused(counted, BytesOf({9, 0, 0, 0})),
              "chunk 0 has 9 elements; expected at most 8");
  EXPECT_SAYS(refused(counted, BytesOf({9, 0})), "2 bytes; expected at least 4");
}

TEST(ChunkCoding, RefusesOtherCountsThanTheDensitySays) {
  Floats values = {1, 2};
  Bytes bytes(64);
  EXPECT_SAYS(
      ErrorOf(
          [&] {
            EncodeChunks(Chunks(ValueCoding::kF32, 8, .25), Indices{0, 9}, values, {}, 16, bytes);
          },
          FailureKind::kInternal),
      "1 elements are selected of chunk 0; expected 2");
}

}  // namespace
}  // namespace sparfuse::testing
