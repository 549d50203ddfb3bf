// Tests that a device codes payloads into the host's bytes, and detects damaged ones.
#include <bit>
#include <optional>
#include <random>

#include "core/base/error.hpp"
#include "core/coding/payload_coding.hpp"
#include "tests/support/devices/device_arrays.hpp"

namespace sparfuse {
namespace {

class PayloadCodingDevice : public OnDevices {
 protected:
  struct Elements {
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
  };

  std::vector<std::byte> Encode(PayloadCoding coding, const Elements& elements, std::size_t n) {
    const std::size_t count = elements.indices.size();
    const std::size_t room = EncodedBytesBound(coding, count + 3000, n);
    const DeviceArray<std::uint32_t> indices(stream(), elements.indices, 1);
    const DeviceArray<float> values(stream(), elements.values, 2);
    const DeviceArray<std::uint32_t> word(
        stream(), std::vector<std::uint32_t>{static_cast<std::uint32_t>(count)});
    const DeviceArray<std::byte> out(stream(), std::vector<std::byte>(room, std::byte{0x5a}), 4);
    const DeviceArray<std::uint32_t> bytes(stream(), 1);
    EncodePayloadOnDevice(stream(), workspace(), coding,
                          {indices.data(), values.data(), count + 3000, word.data()}, n, out.view(),
                          bytes.data());
    std::vector<std::byte> found = out.ToHost();
    const std::size_t size = bytes.ToHost()[0];
    EXPECT_LE(size, room);
    for (std::size_t i = size; i < room; ++i) EXPECT_EQ(found[i], std::byte{0x5a});
    found.resize(size);
    return found;
  }

  // Returns nothing if the payload is found corrupt.
  std::optional<Elements> Decode(PayloadCoding coding, const std::vector<std::byte>& bytes,
                                 std::size_t n, std::size_t capacity) {
    const DeviceArray<std::byte> coded(stream(), bytes, 4);
    // Elements that must not be written lie behind those that may.
    const DeviceArray<std::uint32_t> indices(stream(),
                                             std::vector<std::uint32_t>(capacity + 1, 77));
    const DeviceArray<float> values(stream(), std::vector<float>(capacity + 1, 77));
    const DeviceArray<std::uint32_t> count(stream(), 1);
    const DeviceArray<std::uint64_t> fault(stream(), 1);
    const DevicePayload payload =
        DecodePayloadOnDevice(stream(), workspace(), coding, {coded.data(), bytes.size(), stream()},
                              n, {indices.data(), capacity, stream()},
                              {values.data(), capacity, stream()}, count.data(), 3, fault.data());
    EXPECT_EQ(payload.indices, indices.data());
    EXPECT_EQ(payload.count, capacity);
    EXPECT_EQ(payload.count_word, count.data());
    Elements found{indices.ToHost(), values.ToHost()};
    EXPECT_EQ(found.indices.back(), 77u);
    EXPECT_EQ(found.values.back(), 77.0f);
    fault_ = fault.ToHost()[0];
    const std::size_t size = count.ToHost()[0];
    EXPECT_LE(size, capacity);
    found.indices.resize(size);
    found.values.resize(size);
    if (fault_ != 0) return std::nullopt;
    return found;
  }

  std::uint64_t fault_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Devices, PayloadCodingDevice, TheDevices(), DeviceName);

constexpr PayloadCoding kCodings[] = {{ValueCoding::kF32, IndexCoding::kU32},
                                      {ValueCoding::kF16, IndexCoding::kU32},
                                      {ValueCoding::kF32, IndexCoding::kDelta},
                                      {ValueCoding::kF16, IndexCoding::kDelta}};

std::vector<std::byte> HostEncode(PayloadCoding coding, const std::vector<std::uint32_t>& indices,
                                  const std::vector<float>& values, std::size_t n) {
  std::vector<std::byte> bytes(EncodedBytesBound(coding, indices.size(), n));
  bytes.resize(EncodePayload(coding, {indices, values}, n, bytes));
  return bytes;
}

// Gaps of every kind: short, long, and gaps whose halves look like escapes.
std::vector<std::uint32_t> Indices(std::size_t count, std::uint32_t kind, std::mt19937& random) {
  static constexpr std::uint32_t kSpecial[] = {1,      2,      65534,  65535,   65536,
                                               131071, 131070, 131072, 0x1fffe, 70'000};
  std::vector<std::uint32_t> indices;
  std::uint64_t index = kind % 2;
  for (std::size_t i = 0; i < count; ++i) {
    indices.push_back(static_cast<std::uint32_t>(index));
    index += kind == 0   ? 1 + random() % 200
             : kind == 1 ? kSpecial[random() % std::size(kSpecial)]
             : kind == 2 ? 65535
                         : 1 + random() % 140'000;
  }
  return indices;
}

std::vector<float> Values(std::size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  for (float& v : values) {
    do {
      v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    } while (!(v - v == 0.0f));
  }
  return values;
}

constexpr std::size_t kN = std::size_t{1} << 32;

TEST_P(PayloadCodingDevice, EncodesAndDecodesTheHostsBytes) {
  std::mt19937 random(1);
  for (const std::size_t count : {0, 1, 2, 7, 2047, 2049, 6001}) {
    for (const std::uint32_t kind : {0u, 1u, 2u, 3u}) {
      const Elements elements{Indices(count, kind, random), Values(count, random)};
      for (const PayloadCoding coding : kCodings) {
        const auto expected = HostEncode(coding, elements.indices, elements.values, kN);
        ASSERT_EQ(Encode(coding, elements, kN), expected) << count << " " << kind;
        std::vector<std::uint32_t> indices(count);
        std::vector<float> values(count);
        DecodePayload(expected, kN, indices, values);
        const auto decoded = Decode(coding, expected, kN, count + 5);
        ASSERT_TRUE(decoded.has_value());
        EXPECT_EQ(decoded->indices, indices);
        EXPECT_EQ(Bits(decoded->values), Bits(values));
      }
    }
  }
}

// More tiles of words than one pass joins.
TEST_P(PayloadCodingDevice, DecodesLongPayloads) {
  std::mt19937 random(2);
  constexpr std::size_t kCount = 540'000;
  Elements elements{Indices(kCount, 0, random), std::vector<float>(kCount, 1.0f)};
  const std::uint32_t shift = 100'000'000;
  for (std::size_t i = 300'000; i < kCount; ++i) elements.indices[i] += shift;
  const PayloadCoding coding{ValueCoding::kF16, IndexCoding::kDelta};
  const auto decoded =
      Decode(coding, HostEncode(coding, elements.indices, elements.values, kN), kN, kCount);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->indices, elements.indices);
}

TEST_P(PayloadCodingDevice, NeedsTheRoomOfTheBound) {
  const DeviceArray<std::byte> out(stream(), 100);
  const DeviceArray<std::uint32_t> word(stream(), 1);
  EXPECT_THROW(EncodePayloadOnDevice(stream(), workspace(), kCodings[3], {nullptr, nullptr, 30}, 50,
                                     out.view(), word.data()),
               Error);
}

// Any payload: the device reports a fault if the host throws; otherwise it gives the host's
// elements.
TEST_P(PayloadCodingDevice, FindsWrongWhatTheHostFindsWrong) {
  std::mt19937 random(3);
  std::size_t wrong = 0;
  std::size_t right = 0;
  for (int round = 0; round < 600; ++round) {
    const PayloadCoding coding = kCodings[round % 4];
    const std::size_t count = random() % 20;
    const std::vector<std::uint32_t> indices =
        Indices(count, static_cast<std::uint32_t>(random() % 4), random);
    const std::size_t n = count == 0 ? 10 : std::size_t{indices.back()} + random() % 2;
    std::vector<std::byte> bytes = HostEncode(coding, indices, std::vector<float>(count, 0.5f), kN);
    for (std::size_t change = random() % 3; change > 0; --change) {
      const std::size_t at = random() % bytes.size();
      if (at == 3) continue;  // the coding, which the device knows
      static constexpr int kBytes[] = {0, 1, 0x7c, 0x7f, 0x80, 0xff};
      bytes[at] = static_cast<std::byte>(kBytes[random() % std::size(kBytes)]);
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (random() % 8 == 0) bytes.resize(bytes.size() + random() % 5, std::byte{1});
    std::vector<std::uint32_t> host_indices(25);
    std::vector<float> host_values(25);
    std::optional<Elements> expected;
    try {
      const SparsePayload payload = DecodePayload(bytes, n, host_indices, host_values);
      expected = Elements{{payload.indices.begin(), payload.indices.end()},
                          {payload.values.begin(), payload.values.end()}};
    } catch (const Error&) {
    }
    const auto found = Decode(coding, bytes, n, 25);
    ASSERT_EQ(found.has_value(), expected.has_value()) << round;
    if (!found) {
      ++wrong;
      EXPECT_EQ(~fault_ >> 32, 3u);
      continue;
    }
    ++right;
    EXPECT_EQ(found->indices, expected->indices);
    EXPECT_EQ(Bits(found->values), Bits(expected->values));
  }
  EXPECT_GT(wrong, 100u);
  EXPECT_GT(right, 100u);
}

TEST_P(PayloadCodingDevice, RoundsIntoTheResidual) {
  std::mt19937 random(4);
  constexpr std::size_t kSize = 3000;
  std::vector<float> values = Values(kSize, random);
  values[5] = 1e6f;
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < kSize; ++i) indices.push_back(2 * i + 1);
  SlotReport counted;
  counted.count = 2500;
  const DeviceArray<SlotReport> report(stream(), std::vector{counted});
  const DeviceArray<std::uint32_t> at(stream(), indices);
  for (const PayloadCoding coding : kCodings) {
    for (const bool feedback : {true, false}) {
      std::vector<float> expected = values;
      std::vector<float> kept(feedback ? 2 * kSize : 0);
      RoundToCoding(coding, std::span(indices).first(2500), std::span(expected).first(2500), kept);
      const DeviceArray<float> rounded(stream(), values, 1);
      const DeviceArray<float> residual(stream(), kept.size());
      RoundToCodingOnDevice(stream(), coding, {at.data(), rounded.data(), kSize, report.data()},
                            residual.view());
      EXPECT_EQ(Bits(rounded.ToHost()), Bits(expected));
      EXPECT_EQ(Bits(residual.ToHost()), Bits(kept));
    }
  }
}

}  // namespace
}  // namespace sparfuse
