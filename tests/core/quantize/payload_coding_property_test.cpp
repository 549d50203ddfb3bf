// Checks laws of all payloads in all codings, on random payloads.
#include <gtest/gtest.h>

#include "core/coding/payload_coding.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr PayloadCoding kCodings[] = {{ValueCoding::kF32, IndexCoding::kU32},
                                      {ValueCoding::kF16, IndexCoding::kU32},
                                      {ValueCoding::kF32, IndexCoding::kDelta},
                                      {ValueCoding::kF16, IndexCoding::kDelta}};

struct Drawn {
  std::size_t n = 0;
  Selected payload;
};

// Densities from all elements to a few of 2^32, clustered and even. Values cover every exponent
// that a half can hold.
Drawn Draw(std::mt19937_64& random) {
  Drawn drawn;
  drawn.n = std::size_t{1} << random() % 33;
  const std::size_t wanted = 1 + random() % 300;
  const std::uint64_t spread = std::max<std::uint64_t>(1, drawn.n / wanted);
  std::uint64_t index = random() % spread;
  while (index < drawn.n && drawn.payload.indices.size() < wanted) {
    drawn.payload.indices.push_back(static_cast<std::uint32_t>(index));
    index += random() % 4 == 0 ? 1 + random() % (2 * spread) : 1 + random() % 3;
  }
  for (std::size_t i = 0; i < drawn.payload.indices.size(); ++i) {
    const auto fraction = static_cast<float>(static_cast<std::int64_t>(random() % 4001) - 2000);
    drawn.payload.values.push_back(std::ldexp(fraction, static_cast<int>(random() % 40) - 35));
  }
  return drawn;
}

std::vector<std::byte> Encode(PayloadCoding coding, const Selected& payload, std::size_t n) {
  const std::size_t bound = EncodedBytesBound(coding, payload.indices.size(), n);
  std::vector<std::byte> bytes(bound + 8, std::byte{0xa5});
  const std::size_t size =
      EncodePayload(coding, {payload.indices, payload.values}, n, std::span(bytes).first(bound));
  EXPECT_LE(size, bound);
  EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<long>(size), bytes.end(), [](std::byte b) {
    return b == std::byte{0xa5};
  })) << "wrote past the end";
  // A buffer of exactly this size, so that the address sanitizer sees reads past it.
  return {bytes.begin(), bytes.begin() + static_cast<long>(size)};
}

// Returns false if the payload is refused.
bool Decode(std::span<const std::byte> bytes, std::size_t n, Selected* decoded) {
  std::vector<std::uint32_t> indices(bytes.size());
  std::vector<float> values(bytes.size());
  try {
    const SparsePayload payload = DecodePayload(bytes, n, indices, values);
    *decoded = {{payload.indices.begin(), payload.indices.end()},
                {payload.values.begin(), payload.values.end()}};
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kComm);
    return false;
  }
}

constexpr int kDraws = kSanitized ? 30 : 300;

TEST(PayloadCoding, WhatIsEncodedIsDecoded) {
  std::mt19937_64 random(1);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Drawn drawn = Draw(random);
    for (const PayloadCoding coding : kCodings) {
      Selected rounded = drawn.payload;
      RoundToCoding(coding, rounded.indices, rounded.values, {});
      const auto bytes = Encode(coding, drawn.payload, drawn.n);
      Selected decoded;
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        ASSERT_TRUE(Decode(bytes, drawn.n, &decoded));
        ASSERT_EQ(decoded.indices, drawn.payload.indices);
        ASSERT_EQ(Bits(decoded.values), Bits(rounded.values));
        ASSERT_EQ(Encode(coding, decoded, drawn.n), bytes) << "on " << IsaName(isa);
      }
    }
  }
}

TEST(PayloadCoding, NoPrefixAndNoExtensionIsAPayload) {
  std::mt19937_64 random(2);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Drawn drawn = Draw(random);
    for (const PayloadCoding coding : kCodings) {
      auto bytes = Encode(coding, drawn.payload, drawn.n);
      Selected decoded;
      for (int cut = 0; cut < 20; ++cut) {
        const std::vector<std::byte> prefix(
            bytes.begin(), bytes.begin() + static_cast<long>(random() % bytes.size()));
        ASSERT_FALSE(Decode(prefix, drawn.n, &decoded)) << prefix.size() << " of " << bytes.size();
      }
      bytes.push_back(static_cast<std::byte>(random()));
      ASSERT_FALSE(Decode(bytes, drawn.n, &decoded));
    }
  }
}

// A damaged payload is either refused, or it is the one encoding of its decoded elements.
TEST(PayloadCoding, ADamagedPayloadIsRefusedOrAnother) {
  std::mt19937_64 random(3);
  int refused = 0;
  int accepted = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const Drawn drawn = Draw(random);
    for (const PayloadCoding coding : kCodings) {
      const auto good = Encode(coding, drawn.payload, drawn.n);
      for (int change = 0; change < 20; ++change) {
        auto bytes = good;
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
        Selected decoded;
        if (!Decode(bytes, drawn.n, &decoded)) {
          ++refused;
          continue;
        }
        ++accepted;
        ASSERT_TRUE(std::is_sorted(decoded.indices.begin(), decoded.indices.end()));
        ASSERT_TRUE(decoded.indices.empty() || decoded.indices.back() < drawn.n);
        ASSERT_EQ(Encode(CodingOf(bytes), decoded, drawn.n), bytes);
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace sparfuse::testing
