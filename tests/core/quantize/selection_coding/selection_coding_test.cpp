// Tests the form of coded selections, the revised slot and residual, and the errors found in
// damaged selections.
#include "core/coding/selection_coding.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr PayloadCoding Coding(ValueCoding values, IndexCoding indices,
                               BloomPolicy policy = BloomPolicy::kLeftmost, double rate = 0) {
  return {values, indices, policy, rate};
}
constexpr auto kF32 = ValueCoding::kF32;
constexpr auto kF16 = ValueCoding::kF16;
constexpr auto kFitted = ValueCoding::kFitted;
constexpr auto kBloom = IndexCoding::kBloom;
constexpr PayloadCoding kCodings[] = {Coding(kF32, kBloom),
                                      Coding(kF32, kBloom, BloomPolicy::kRandom),
                                      Coding(kF32, kBloom, BloomPolicy::kAll),
                                      Coding(kF32, kBloom, BloomPolicy::kRandom, 0.05),
                                      Coding(kF32, kBloom, BloomPolicy::kAll, 0.05),
                                      Coding(kF16, kBloom),
                                      Coding(kFitted, IndexCoding::kU32),
                                      Coding(kFitted, kBloom),
                                      Coding(kFitted, kBloom, BloomPolicy::kAll)};

// A selection of x after encoding.
struct Coded {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::vector<float> residual;
  Bytes bytes;
};

Coded Encode(const PayloadCoding& coding, const std::vector<float>& x,
             const std::vector<std::uint32_t>& selected, bool feedback = true, int threads = 1) {
  const std::size_t n = x.size();
  const std::size_t capacity = std::min(n, 4 * selected.size() + 64);
  Coded coded;
  coded.indices = selected;
  for (const std::uint32_t index : selected) coded.values.push_back(x[index]);
  coded.indices.resize(capacity);
  coded.values.resize(capacity);
  if (feedback) {
    coded.residual = x;
    for (const std::uint32_t index : selected) coded.residual[index] = 0;
  }
  Slot slot{{coded.indices.data(), capacity, {}},
            {coded.values.data(), capacity, {}},
            capacity,
            selected.size()};
  coded.bytes.assign(SelectionBytesBound(coding, capacity, n), std::byte{0xa5});
  ThreadPool pool(threads);
  SelectionCoder coder;
  coded.bytes.resize(coder.Encode(coding, x, coded.residual, slot, coded.bytes, pool));
  coded.indices.resize(slot.count);
  coded.values.resize(slot.count);
  return coded;
}

struct Read {
  Selected elements;
  std::size_t bytes = 0;
  std::string refused;  // the reason
};

Read Decode(std::span<const std::byte> bytes, std::size_t n, std::size_t room, int threads = 1) {
  std::vector<std::uint32_t> indices(room);
  std::vector<float> values(room);
  ThreadPool pool(threads);
  SelectionCoder coder;
  try {
    const auto [payload, used] = coder.Decode(bytes, n, indices, values, pool);
    return {{{payload.indices.begin(), payload.indices.end()},
             {payload.values.begin(), payload.values.end()}},
            used,
            ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kComm);
    return {{}, 0, error.what()};
  }
}

std::vector<float> Gaussian(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

std::vector<std::uint32_t> Largest(const std::vector<float>& x, std::size_t k) {
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater{}, [&](auto i) { return std::fabs(x[i]); });
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

Bytes Of(const std::vector<int>& values) {
  Bytes bytes;
  for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}

// --- the form

// 22 bits and 5 hashes, which 16 of 1001 indices match (bloom_filter_test.cpp).
constexpr double kRate = 1.0 / 32;
const std::vector<std::uint32_t> kThree = {5, 700, 1000};

std::vector<float> Ramp() {
  std::vector<float> x(1001);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.5f * static_cast<float>(i);
  return x;
}

TEST(SelectionCoding, WritesItsForm) {
  const Coded coded = Encode(Coding(kF32, kBloom, BloomPolicy::kLeftmost, kRate), Ramp(), kThree);
  EXPECT_EQ(coded.bytes, Of({'S', 'P', 1,    8,    3,    0,    0,    0,     //
                             0,   0,   0x20, 0x40, 0,    0,    0xaf, 0x42,  // 2.5, 87.5
                             0,   0,   0xe8, 0x42, 5,    0,    0,    0,     // 116
                             22,  0,   0,    0,    0xd8, 0x18, 0x1b, 0}));
  EXPECT_EQ(Encode(Coding(kF32, kBloom), Ramp(), {}).bytes, Of({'S', 'P', 1, 8, 0, 0, 0, 0}));
  // At most a thousand elements.
  EXPECT_EQ(Encode(Coding(kFitted, kBloom), std::vector<float>(1000, 1.0f), {258}).bytes,
            Of({'S', 'P', 1, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3f, 2, 1, 0, 0}));
}

TEST(SelectionCoding, ThePolicyChooses) {
  const auto sent = [](BloomPolicy policy) {
    return Encode(Coding(kF32, kBloom, policy, kRate), Ramp(), kThree).indices;
  };
  using Numbers = std::vector<std::uint32_t>;
  EXPECT_EQ(sent(BloomPolicy::kLeftmost), (Numbers{5, 175, 232}));
  EXPECT_EQ(sent(BloomPolicy::kRandom), (Numbers{465, 938, 1000}));
  EXPECT_EQ(sent(BloomPolicy::kAll), (Numbers{5, 175, 232, 266, 465, 473, 481, 534, 700, 711, 760,
                                              764, 853, 903, 938, 1000}));
}

// Elements that leave the slot go to the residual; elements that enter it come from there.
TEST(SelectionCoding, RevisesTheSlot) {
  std::vector<float> x = Ramp();
  const Coded coded = Encode(Coding(kF32, kBloom, BloomPolicy::kLeftmost, kRate), x, kThree);
  EXPECT_EQ(coded.values, (std::vector<float>{2.5f, 87.5f, 116}));
  for (const std::uint32_t index : coded.indices) x[index] = 0;
  EXPECT_EQ(coded.residual, x);  // 350 and 500 are returned
}

// Three values in descending order, at indices 1000, 700 and 5: t = -1, 0, 1 of one segment.
TEST(SelectionCoding, FitsAndRanks) {
  std::vector<float> x(1001);
  x[5] = 1;
  x[700] = 2;
  x[1000] = 5;
  const Coded listed = Encode(Coding(kFitted, IndexCoding::kU32), x, kThree);
  ASSERT_EQ(listed.bytes.size(), 8u + 4 + 48 + 12);
  EXPECT_EQ(Bytes(listed.bytes.begin(), listed.bytes.begin() + 12),
            Of({'S', 'P', 1, 4, 3, 0, 0, 0, 3, 0, 0, 0}));
  double coefficients[6];
  std::memcpy(coefficients, listed.bytes.data() + 12, sizeof coefficients);
  const double expected[] = {2, -2, 1, 0, 0, 0};
  for (std::size_t a = 0; a < 6; ++a) EXPECT_NEAR(coefficients[a], expected[a], 1e-12);
  EXPECT_EQ(Bytes(listed.bytes.end() - 12, listed.bytes.end()),
            Of({0xe8, 3, 0, 0, 0xbc, 2, 0, 0, 5, 0, 0, 0}));
  EXPECT_EQ(listed.values, (std::vector<float>{1, 2, 5}));

  // All positives of the filter: 16 ranks of 4 bits. The three values, then the thirteen zeros in
  // order.
  const Coded ranked = Encode(Coding(kFitted, kBloom, BloomPolicy::kAll, kRate), x, kThree);
  ASSERT_EQ(ranked.bytes.size(), 8u + 4 + 2 * 48 + 8 + 12);
  EXPECT_EQ(Bytes(ranked.bytes.end() - 20, ranked.bytes.end()),
            Of({0x32, 0x54, 0x76, 0x98, 0xa1, 0xcb, 0xed, 0x0f, 5,    0,
                0,    0,    22,   0,    0,    0,    0xd8, 0x18, 0x1b, 0}));
}

// --- laws

struct Drawn {
  std::vector<float> x;
  std::vector<std::uint32_t> selected;
};

Drawn Draw(std::mt19937_64& random) {
  const std::size_t n = std::vector<std::size_t>{1, 1000, 1001, 4097, 30'000}[random() % 5];
  const std::size_t k = std::vector<std::size_t>{0, 1, n / 100, n / 10, n / 2, n}[random() % 6];
  Drawn drawn{Gaussian(n, random()), {}};
  drawn.selected = Largest(drawn.x, k);
  return drawn;
}

constexpr int kDraws = kSanitized ? 20 : 150;

TEST(SelectionCoding, SendsWhatIsDecodedAndKeepsTheRest) {
  std::mt19937_64 random(1);
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto [x, selected] = Draw(random);
    const std::size_t n = x.size();
    for (const PayloadCoding& coding : kCodings) {
      const Coded coded = Encode(coding, x, selected);
      const bool all = coding.policy == BloomPolicy::kAll;
      if (!all || n <= kLeastElements) {
        ASSERT_EQ(coded.indices.size(), selected.size());
        const ExpectedSelection expected = ExpectSelection(coding, selected.size(), n);
        ASSERT_EQ(expected.elements, selected.size());
        if (SelectionCodingOf(coding, n).values != kFitted) {
          ASSERT_EQ(expected.bytes, coded.bytes.size());
        }
      } else {
        ASSERT_GE(coded.indices.size(), selected.size());
      }
      ASSERT_TRUE(coding.indices == kBloom || coded.indices == selected);

      std::vector<float> sum = coded.residual;
      for (std::size_t i = 0; i < coded.indices.size(); ++i) {
        float& value = sum[coded.indices[i]];
        if (coding.values == kF32) {
          ASSERT_EQ(value, 0.0f);
          value = coded.values[i];
        } else {
          const float whole = x[coded.indices[i]];
          ASSERT_NEAR(value + coded.values[i], whole,
                      coding.values == kF16 ? 0 : 2e-7 * (std::fabs(whole) + std::fabs(value)));
          value = whole;
        }
      }
      ASSERT_EQ(Bits(sum), Bits(x));

      auto followed = coded.bytes;
      followed.insert(followed.end(), 9, std::byte{0x5a});  // the next selection
      for (const int threads : {1, 3}) {
        const Read read = Decode(followed, n, coded.indices.size() + 3, threads);
        ASSERT_EQ(read.refused, "");
        ASSERT_EQ(read.bytes, coded.bytes.size());
        ASSERT_EQ(read.elements.indices, coded.indices);
        ASSERT_EQ(Bits(read.elements.values), Bits(coded.values));
      }
      ASSERT_EQ(Encode(coding, x, selected, true, 3).bytes, coded.bytes);
      const Coded lost = Encode(coding, x, selected, false);  // without a residual
      ASSERT_EQ(lost.bytes, coded.bytes);
      ASSERT_EQ(lost.indices, coded.indices);
    }
  }
}

// A list or a bit an element would be shorter at this density, but the filter is coded all the
// same.
TEST(SelectionCoding, AFilterOfEverythingHasEverything) {
  const std::vector<float> x = Gaussian(5000, 3);
  const Coded coded = Encode(kCodings[0], x, Largest(x, x.size()));
  EXPECT_EQ(coded.indices, Largest(x, x.size()));
  EXPECT_EQ(coded.values, x);
  EXPECT_EQ(coded.residual, std::vector<float>(x.size()));
  EXPECT_EQ(coded.bytes.size(), 8u + 4 * 5000 + 8 + 4 * ((23963 + 31) / 32));
}

// The slot's room limits the number of elements that p0 sends.
TEST(SelectionCoding, SendsNoMoreThanTheSlotHolds) {
  const std::vector<float> x = Gaussian(10'000, 4);
  const auto selected = Largest(x, 100);
  const Coded coded = Encode(Coding(kF32, kBloom, BloomPolicy::kAll, 0.5), x, selected);
  EXPECT_EQ(coded.indices.size(), 464u);
  EXPECT_EQ(Decode(coded.bytes, x.size(), 464).elements.indices, coded.indices);
  std::vector<float> sum = coded.residual;
  for (std::size_t i = 0; i < 464; ++i) sum[coded.indices[i]] += coded.values[i];
  EXPECT_EQ(sum, x);
}

// Sorted Gaussian values are smooth, so that polynomials fit them closely.
TEST(SelectionCoding, FittedValuesAreNear) {
  const std::vector<float> x = Gaussian(100'000, 5);
  const auto selected = Largest(x, 1000);
  const Coded coded = Encode(Coding(kFitted, IndexCoding::kU32), x, selected);
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < selected.size(); ++i) {
    error += std::pow(coded.values[i] - x[selected[i]], 2);
    norm += std::pow(x[selected[i]], 2);
  }
  EXPECT_LT(error, 1e-4 * norm);
  EXPECT_LT(coded.bytes.size(), 8 * selected.size() * 2 / 3);
}

// --- damaged selections

TEST(SelectionCoding, NoPrefixIsASelection) {
  const std::vector<float> x = Gaussian(3000, 6);
  for (const PayloadCoding& coding : kCodings) {
    const Coded coded = Encode(coding, x, Largest(x, 40));
    for (std::size_t size = 0; size < coded.bytes.size(); ++size) {
      const Bytes prefix(coded.bytes.begin(), coded.bytes.begin() + static_cast<long>(size));
      ASSERT_NE(Decode(prefix, x.size(), 200).refused, "") << size;
    }
  }
}

TEST(SelectionCoding, ADamagedSelectionIsRefusedOrAnother) {
  std::mt19937_64 random(7);
  int refused = 0;
  int accepted = 0;
  const std::vector<float> x = Gaussian(3000, 8);
  for (const PayloadCoding& coding : kCodings) {
    const Coded coded = Encode(coding, x, Largest(x, 40));
    for (int change = 0; change < (kSanitized ? 50 : 500); ++change) {
      Bytes bytes = coded.bytes;
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
      const Read read = Decode(bytes, x.size(), 200);
      if (!read.refused.empty()) {
        ++refused;
        continue;
      }
      ++accepted;
      const auto& indices = read.elements.indices;
      ASSERT_EQ(std::ranges::adjacent_find(indices, std::greater_equal{}), indices.end());
      ASSERT_TRUE(indices.empty() || indices.back() < x.size());
      for (const float value : read.elements.values) ASSERT_TRUE(std::isfinite(value));
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

TEST(SelectionCoding, SaysWhatIsWrong) {
  const std::vector<float> x = Ramp();
  const auto refusal = [&](const PayloadCoding& coding, std::size_t at, int byte,
                           std::size_t n = 1001, std::size_t room = 100) {
    Bytes bytes = Encode(coding, x, kThree).bytes;
    bytes.at(at) = static_cast<std::byte>(byte);
    return Decode(bytes, n, room).refused;
  };
  const auto expect = [](const std::string& what, const std::string& says) {
    EXPECT_SAYS(what, says);
  };
  const PayloadCoding leftmost = Coding(kF32, kBloom, BloomPolicy::kLeftmost, kRate);
  const PayloadCoding fitted = Coding(kFitted, kBloom, BloomPolicy::kAll, kRate);
  expect(refusal(leftmost, 0, 'T'), "byte 0 of the header is 84; expected 83");
  expect(refusal(leftmost, 3, 10), "flags 10, which no selection of 1001 elements has");
  expect(refusal(leftmost, 3, 16), "flags 16, which no selection");
  expect(refusal(leftmost, 3, 8, 1000), "flags 8, which no selection of 1000 elements has");
  expect(refusal(leftmost, 3, 32), "flags 32; expected at most 29");
  expect(refusal(leftmost, 4, 101), "101 elements; expected at most 100");
  expect(refusal(leftmost, 4, 20), "within its values; expected at least 88");
  expect(refusal(leftmost, 4, 3, 1001, 2), "3 elements; expected at most 2");
  expect(refusal(leftmost, 20, 0), "a filter of 22 bits and 0 hashes");
  expect(refusal(leftmost, 20, 65), "a filter of 22 bits and 65 hashes");
  expect(refusal(leftmost, 24, 0), "a filter of 0 bits");
  expect(refusal(leftmost, 24, 40), "within its filter; expected at least 36");
  expect(refusal(leftmost, 31, 1), "bits after the filter are set");
  expect(refusal(leftmost, 28, 0), "its filter has ");
  expect(refusal(fitted, 8, 17), "17 values above 0 of 16");
  expect(refusal(fitted, 8, 3), "within its polynomials; expected at least 108");
  expect(refusal(fitted, 60, 0xff), "rank 1 is 15; expected each of 0 to 15 once");
  const PayloadCoding listed = Coding(kFitted, IndexCoding::kU32);
  Bytes twice = Encode(listed, x, kThree).bytes;
  std::memcpy(twice.data() + 60, twice.data() + 64, 4);
  expect(Decode(twice, 1001, 10).refused, "index 700 occurs twice");
  const auto with = [&](const PayloadCoding& coding, auto value, std::size_t at) {
    Bytes bytes = Encode(coding, x, kThree).bytes;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return Decode(bytes, 1001, 100).refused;
  };
  expect(with(leftmost, kInfinity, 12), "value 1 is not finite");
  expect(with(fitted, std::numeric_limits<double>::quiet_NaN(), 20),
         "value 0 in descending order is not finite");
  expect(refusal(listed, 61, 0x77), "the last index is 30696; expected one below 1001");
}

TEST(SelectionCoding, NeedsTheRoomOfTheBound) {
  std::vector<std::uint32_t> indices = {3};
  std::vector<float> values = {1};
  Slot slot{{indices.data(), 1, {}}, {values.data(), 1, {}}, 1, 1};
  const std::vector<float> x(2000);
  Bytes out(SelectionBytesBound(kCodings[0], 1, 2000) - 1);
  ThreadPool pool(1);
  SelectionCoder coder;
  EXPECT_THROW(coder.Encode(kCodings[0], x, {}, slot, out, pool), Error);
}

// --- the model's expectations

TEST(SelectionCoding, SizesFollowFromTheCounts) {
  const PayloadCoding leftmost = kCodings[0];
  EXPECT_EQ(ExpectSelection(leftmost, 1000, 100'000).bytes, 8u + 4000 + 8 + 4 * 450);
  EXPECT_EQ(ExpectSelection(leftmost, 10, 1000).bytes, 8u + 80);
  EXPECT_EQ(ExpectSelection(leftmost, 0, 5000).bytes, 8u);
  const ExpectedSelection all =
      ExpectSelection(Coding(kF32, kBloom, BloomPolicy::kAll), 1000, 100'000);
  EXPECT_EQ(all.elements, 1099u);
  EXPECT_EQ(all.bytes, 8u + 4 * 1099 + 8 + 4 * 450);
  // Both halves of 1000 are cut into a fifth, a tenth and the remainder: 48 bytes each.
  EXPECT_EQ(ExpectSelection(Coding(kFitted, IndexCoding::kU32), 1000, 100'000).bytes,
            8u + 4 + 6 * 48 + 4000);
  EXPECT_EQ(ExpectSelection(Coding(kFitted, kBloom), 1000, 100'000).bytes,
            8u + 4 + 6 * 48 + 1252 + 8 + 4 * 450);
  const SelectionWork work = WorkOfEncoding(leftmost, 1000, 100'000);
  EXPECT_EQ(work.queries, 100'000);
  EXPECT_EQ(work.inserts, 10'000);
  EXPECT_EQ(work.fitted + work.restored, 0);
  EXPECT_EQ(WorkOfDecoding(Coding(kFitted, kBloom), 1000, 100'000).restored, 1000);
  EXPECT_EQ(WorkOfEncoding(leftmost, 10, 1000).queries, 0);
}

// The expected number of elements of p0 is right within the variation of draws.
TEST(SelectionCoding, ExpectsWhatP0Sends) {
  const std::vector<float> x = Gaussian(200'000, 9);
  const PayloadCoding coding = Coding(kF32, kBloom, BloomPolicy::kAll);
  const auto expected = static_cast<double>(ExpectSelection(coding, 2000, x.size()).elements);
  const auto sent = static_cast<double>(Encode(coding, x, Largest(x, 2000)).indices.size());
  EXPECT_NEAR(sent, expected, 3 * std::sqrt(expected - 2000) + 0.1 * (expected - 2000));
}

}  // namespace
}  // namespace sparfuse::testing
