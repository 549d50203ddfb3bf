// Tests the coded payload's format, its rounding, and the errors found in damaged payloads.
#include "core/coding/payload_coding.hpp"

#include <gtest/gtest.h>

#include "tests/support/bits.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr PayloadCoding kPlain{ValueCoding::kF32, IndexCoding::kU32};
constexpr PayloadCoding kF16{ValueCoding::kF16, IndexCoding::kU32};
constexpr PayloadCoding kDelta{ValueCoding::kF32, IndexCoding::kDelta};
constexpr PayloadCoding kShort{ValueCoding::kF16, IndexCoding::kDelta};

std::vector<std::byte> Encode(PayloadCoding coding, const std::vector<std::uint32_t>& indices,
                              const std::vector<float>& values, std::size_t n) {
  std::vector<std::byte> bytes(EncodedBytesBound(coding, indices.size(), n));
  bytes.resize(EncodePayload(coding, {indices, values}, n, bytes));
  return bytes;
}

Selected Decode(std::span<const std::byte> bytes, std::size_t n, std::size_t capacity) {
  std::vector<std::uint32_t> indices(capacity);
  std::vector<float> values(capacity);
  const SparsePayload payload = DecodePayload(bytes, n, indices, values);
  EXPECT_EQ(payload.indices.data(), indices.data());
  EXPECT_EQ(payload.values.data(), values.data());
  return {{payload.indices.begin(), payload.indices.end()},
          {payload.values.begin(), payload.values.end()}};
}

// The wire format, byte by byte: it must not change without a new version.
TEST(PayloadCoding, WritesItsFormat) {
  const std::vector<std::uint32_t> indices = {3, 70'000, 70'001};
  const std::vector<float> values = {1.0f, -2.0f, 0.5f};
  EXPECT_EQ(Encode(kPlain, indices, values, 100'000),
            BytesOf({'S', 'P', 1,    0,    3,    0,    0, 0,                          //
                     0,   0,   0x80, 0x3f, 0,    0,    0, 0xc0, 0,    0,    0, 0x3f,  //
                     3,   0,   0,    0,    0x70, 0x11, 1, 0,    0x71, 0x11, 1, 0}));
  EXPECT_EQ(Encode(kShort, indices, values, 100'000),
            BytesOf({'S', 'P',  1,    3,    3,    0,    0, 0,  //
                     0,   0x3c, 0,    0xc0, 0,    0x38, 0, 0,  // halves, padded
                     3,   0,    0xff, 0xff, 0x6d, 0x11, 1, 0, 1, 0}));
  EXPECT_EQ(Encode(kF16, {}, {}, 100), BytesOf({'S', 'P', 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(Encode(kDelta, {0}, {0.5f}, 1),
            BytesOf({'S', 'P', 1, 2, 1, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0}));
}

TEST(PayloadCoding, HalvesAndGapsTakeHalfOfTheBytes) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < 10'000; ++i) indices.push_back(i * 100);
  const std::vector<float> values(indices.size(), 1.0f);
  EXPECT_EQ(Encode(kPlain, indices, values, 1'000'000).size(), 8u + 80'000u);
  EXPECT_EQ(Encode(kShort, indices, values, 1'000'000).size(), 8u + 40'000u);
}

TEST(PayloadCoding, GapsAroundTheEscapeSurvive) {
  constexpr std::size_t kN = std::size_t{1} << 32;
  std::vector<std::uint32_t> indices;
  std::uint64_t index = 0;
  for (const std::uint64_t gap : {65534u, 65535u, 65536u, 1u, 2u, 3u, 65534u, 65534u, 65535u, 1u,
                                  1u, 1u, 1u, 4'000'000'000u}) {
    index += gap;
    indices.push_back(static_cast<std::uint32_t>(index));
  }
  indices.push_back(0xffffffffu);
  for (const std::uint32_t first : {0u, 1u, 65534u}) {
    indices.front() = first;
    const auto x = MakeData("few-values", indices.size(), 1);
    const Selected decoded = Decode(Encode(kDelta, indices, x, kN), kN, indices.size());
    EXPECT_EQ(decoded.indices, indices);
    EXPECT_EQ(Bits(decoded.values), Bits(x));
  }
}

// Sent plus kept values equal the selected values, and the decoded values equal the sent ones.
TEST(PayloadCoding, RoundingGoesToTheResidual) {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::string& data : DataNames()) {
      constexpr std::size_t kN = 30'000;
      std::vector<float> x = MakeData(data, kN, 1);
      x[0] = 1e6f;  // beyond the largest half
      x[3] = -66'000.0f;
      std::vector<std::uint32_t> indices;
      std::vector<float> values;
      std::vector<float> residual = x;
      for (std::uint32_t i = 0; i < kN; i += 3) {
        indices.push_back(i);
        values.push_back(x[i]);
        residual[i] = 0.0f;
      }
      RoundToCoding(kShort, indices, values, residual);
      std::vector<float> sum = residual;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        ASSERT_EQ(values[i] + residual[indices[i]], x[indices[i]]) << data << " " << i;
        sum[indices[i]] = x[indices[i]];
      }
      EXPECT_EQ(Bits(sum), Bits(x)) << data << ": what was not selected changed";
      const Selected decoded = Decode(Encode(kShort, indices, values, kN), kN, indices.size());
      EXPECT_EQ(Bits(decoded.values), Bits(values)) << data;

      const std::vector<float> before = values;
      RoundToCoding(kShort, indices, values, {});
      EXPECT_EQ(Bits(values), Bits(before)) << "rounded twice";
    }
  }
}

TEST(PayloadCoding, FloatsAreNotRounded) {
  std::vector<float> values = {0.1f, 1e30f};
  std::vector<float> residual = {5.0f, 6.0f};
  RoundToCoding(kDelta, std::vector<std::uint32_t>{0, 1}, values, residual);
  EXPECT_EQ(values, (std::vector<float>{0.1f, 1e30f}));
  EXPECT_EQ(residual, (std::vector<float>{5.0f, 6.0f}));
}

TEST(PayloadCoding, NamesItsCoding) {
  for (const PayloadCoding coding : {kPlain, kF16, kDelta, kShort}) {
    EXPECT_EQ(CodingOf(Encode(coding, {1}, {1.0f}, 2)), coding);
  }
}

TEST(PayloadCoding, RefusesABufferThatIsTooSmall) {
  std::vector<std::byte> out(EncodedBytesBound(kShort, 1, 100) - 1);
  const std::vector<std::uint32_t> indices = {1};
  const std::vector<float> values = {1.0f};
  EXPECT_THROW(EncodePayload(kShort, {indices, values}, 100, out), Error);
}

TEST(PayloadCoding, RefusesGapsThatRunBackwards) {
  EXPECT_THROW(Encode(kDelta, {5, 3}, {1.0f, 1.0f}, 100), Error);
}

// The error of each malformed payload names its fault.
TEST(PayloadCoding, SaysWhatIsWrong) {
  struct Case {
    std::vector<int> bytes;
    std::string what;
  };
  const Case cases[] = {
      {{}, "0 bytes; expected a header of 8"},
      {{'S', 'P', 1, 0, 0, 0, 0}, "7 bytes; expected a header of 8"},
      {{'X', 'P', 1, 0, 0, 0, 0, 0}, "byte 0 of the header is 88; expected 83"},
      {{'S', 'P', 2, 0, 0, 0, 0, 0}, "byte 2 of the header is 2; expected 1"},
      {{'S', 'P', 1, 4, 0, 0, 0, 0}, "flags 4; expected at most 3"},
      {{'S', 'P', 1, 0, 0, 0, 0, 0, 0}, "9 bytes for 0 elements; expected 8"},
      {{'S', 'P', 1, 2, 0, 0, 0, 0, 0, 0}, "10 bytes for 0 elements; expected 8"},
      {{'S', 'P', 1, 0, 101, 0, 0, 0}, "101 elements; expected at most 100"},
      {{'S', 'P', 1, 0, 255, 255, 255, 255}, "4294967295 elements; expected at most 100"},
      {{'S', 'P', 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
       "15 bytes for 1 elements; expected at least 16"},
      {{'S', 'P', 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
       "17 bytes for 1 elements; expected 16"},
      {{'S', 'P', 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0},
       "the last index is 100; expected one below 100"},
      {{'S', 'P', 1, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x7f, 1, 0, 0, 0}, "value 0 is not finite"},
      {{'S', 'P', 1, 1, 2, 0, 0, 0, 0, 0, 0, 0x7e, 1, 0, 0, 0, 2, 0, 0, 0},
       "value 1 is not finite"},
      {{'S', 'P', 1, 1, 1, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0},
       "byte 10, between values and indices, is 7; expected 0"},
      {{'S', 'P', 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0},
       "index 1 is 9 after 9; expected increasing indices"},
      {{'S', 'P', 1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0},
       "index 1 repeats 9; expected increasing indices"},
      {{'S', 'P', 1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 255, 255, 9, 0}, "it ends within index 0 of 2"},
      {{'S', 'P', 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 9, 0, 0, 0},
       "an escaped gap of 9 before index 0; expected at least 65535"},
      {{'S', 'P', 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 9, 0},
       "16 bytes for 1 elements; expected 14"},
      {{'S', 'P', 1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 1, 0},
       "index 1 is 4294967296; expected 32 bits"},
  };
  for (const Case& c : cases) {
    ExpectError(FailureKind::kComm, {c.what}, [&] { Decode(BytesOf(c.bytes), 100, 100); });
  }
}

// Long payloads take the decoder's fast path, which must find faults too.
TEST(PayloadCoding, FindsFaultsInTheMiddleOfLongPayloads) {
  constexpr std::size_t kN = 40'000;
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < 10'000; ++i) indices.push_back(3 * i);
  const std::vector<float> values(indices.size(), 1.0f);
  for (const std::size_t at : {1, 4095, 4096, 9999}) {
    auto repeated = indices;
    repeated[at] = repeated[at - 1];
    auto infinite = values;
    infinite[at] = kInfinity;
    for (const PayloadCoding coding : {kPlain, kDelta}) {
      const auto expect = [&](const std::vector<std::byte>& bytes, const std::string& what) {
        ExpectError(FailureKind::kComm, {what}, [&] { Decode(bytes, kN, kN); });
      };
      expect(Encode(coding, repeated, values, kN), "index " + std::to_string(at) + " ");
      expect(Encode(coding, indices, infinite, kN),
             "value " + std::to_string(at) + " is not finite");
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing
