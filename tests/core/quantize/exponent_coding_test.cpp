// Tests the lossless coding of exponents against bytes computed by hand, and on values of all
// kinds.
#include "core/coding/exponent_coding.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/bits.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

Bytes Encode(const Floats& values) {
  Bytes bytes(ExponentBytesBound(values.size()), std::byte{0xa5});
  bytes.resize(EncodeExponents(values, bytes));
  return bytes;
}

double BitsAnElement(const Floats& values) {
  return 8.0 * static_cast<double>(Encode(values).size()) / static_cast<double>(values.size());
}

std::string Refused(const Bytes& bytes, std::size_t n) {
  Floats values(n);
  return ErrorOf([&] { DecodeExponents(bytes, values, "message"); }, FailureKind::kComm);
}

void ExpectReturned(const Floats& values) {
  const Bytes bytes = Encode(values);
  Floats decoded(values.size());
  DecodeExponents(bytes, decoded, "message");
  EXPECT_EQ(std::memcmp(decoded.data(), values.data(), values.size() * sizeof(float)), 0);
}

TEST(ExponentCoding, HasTheSpecifiedBytes) {
  EXPECT_EQ(Encode({1, -1.5f, .25f, 3}),
            BytesOf({0x80, 2, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0x40, 0x35, 0x7d, 0, 0}));
  EXPECT_EQ(Encode({1, 1, 1, 1}), BytesOf({0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Encode({1e-30f, 1, 2, 0}), BytesOf({0x80, 2, 2, 0, 0x60, 0x42, 0x22, 0,    0, 0,
                                                0,    0, 0, 0, 0,    0,    0xc7, 0x1b, 0, 0}));
  EXPECT_TRUE(Encode({}).empty());
}

TEST(ExponentCoding, TakesTheSpecifiedBits) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  Floats values(std::size_t{1} << 18);
  for (float& value : values) value = normal(random);
  EXPECT_NEAR(BitsAnElement(values), 27.25, 0.05);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  EXPECT_NEAR(BitsAnElement(values), 32.0 * 1.001, 0.02);
}

TEST(ExponentCoding, ReturnsEveryBitPattern) {
  std::mt19937_64 random(2);
  const auto drawn = [&](std::uint32_t mask) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(random()) & mask);
  };
  for (const std::size_t n : {1, 2, 3, 1023, 1024, 1025, 5000}) {
    Floats any(n), subnormal(n), near(n), not_finite(n);
    for (std::size_t i = 0; i < n; ++i) {
      any[i] = drawn(0xffffffff);
      subnormal[i] = drawn(0x807fffff);
      near[i] = drawn(0x81ffffff) + 1;
      not_finite[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()) | 0x7f800000);
    }
    for (const Floats& values : {any, subnormal, near, not_finite}) ExpectReturned(values);
  }
  ExpectReturned({0, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, 3.4e38f});
}

// Every width, with the last values to be coded and the first to be escaped.
TEST(ExponentCoding, EscapesWhatIsFarFromTheLargest) {
  for (int width = 1; width <= 8; ++width) {
    Floats values;
    for (int i = 0; i < 1024; ++i) {
      const int apart = i % std::max(1, (1 << std::min(width, 7)) - 1);
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(250 - apart) << 23));
    }
    for (int i = 0; i < width; ++i) values[100 + 7 * i] = 0;
    ExpectReturned(values);
  }
}

TEST(ExponentCoding, RefusesWhatIsNotOfTheForm) {
  const Bytes good = Encode({1, -1.5f, .25f, 3});
  const auto with = [&](std::size_t at, int byte) {
    Bytes bad = good;
    bad[at] = static_cast<std::byte>(byte);
    return Refused(bad, 4);
  };
  EXPECT_SAYS(with(1, 9), "codes of 9 bits");
  EXPECT_SAYS(with(2, 5), "5 of 4 exponents escaped");
  EXPECT_SAYS(with(2, 0), "more exponents are escaped");
  EXPECT_SAYS(with(2, 2), "fewer exponents are escaped");
  EXPECT_SAYS(with(19, 1), "the padding of its codes");
  EXPECT_SAYS(with(0, 0), "an exponent below 0");
  EXPECT_SAYS(Refused(Bytes(good.begin(), good.end() - 1), 4), "expected at least 20");
  EXPECT_SAYS(Refused(Bytes(3), 4), "expected at least 4");
  EXPECT_SAYS(Refused(good, 0), "20 bytes for 0 values");
  Bytes longer = good;
  longer.resize(24);
  EXPECT_SAYS(Refused(longer, 4), "24 bytes for 4 values: expected 20");
}

}  // namespace
}  // namespace sparfuse::testing
