// Tests the laws of all quantizers, and fp16, qsgd and sign by their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/random_stream.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::size_t kLargeShape = 270'001;  // several chunks of the pool, the last one short
const std::vector<std::size_t> kShapes = {1, 2, 31, 32, 33, 511, 4095, 4096, 4097, kLargeShape};

std::unique_ptr<Quantizer> MakeQuantizer(const std::string& name, const Options& given = {}) {
  const QuantizerDescriptor& descriptor = FindQuantizer(name);
  return descriptor.make(ResolveOptions("quantizer " + name, descriptor.options, given), kSeed);
}

struct Encoded {
  std::vector<std::byte> bytes;
  std::vector<float> residual;  // empty without error feedback
};

// residual: its values before encoding; empty without error feedback.
Encoded Encode(const Quantizer& quantizer, const std::vector<float>& gradient,
               std::vector<float> residual, std::uint64_t step = 0, int rank = 0, int threads = 1) {
  ThreadPool pool(threads);
  Workspace workspace;
  constexpr std::size_t kGuard = 64;
  constexpr std::byte kGuardByte{0xa5};
  const std::size_t size = quantizer.EncodedBytes(gradient.size());
  Encoded encoded{std::vector<std::byte>(size + kGuard, kGuardByte), std::move(residual)};
  quantizer.Encode({&pool, &workspace, rank},
                   {{gradient.data(), gradient.size(), {}},
                    {encoded.residual.data(), encoded.residual.size(), {}}},
                   {7, "conv1.weight", {}, step}, std::span(encoded.bytes).first(size));
  for (std::size_t i = size; i < encoded.bytes.size(); ++i) {
    EXPECT_EQ(encoded.bytes[i], kGuardByte) << "wrote behind the buffer";
  }
  encoded.bytes.resize(size);
  return encoded;
}

std::vector<float> Accumulate(const Quantizer& quantizer,
                              const std::vector<std::vector<std::byte>>& payloads, float scale,
                              std::size_t n, int threads = 1) {
  ThreadPool pool(threads);
  std::vector<float> out(n, kNan);
  const std::vector<std::span<const std::byte>> views(payloads.begin(), payloads.end());
  AccumulateQuantized(quantizer, views, scale, out, pool);
  return out;
}

double SquaredNorm(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

std::vector<float> Decode(const Quantizer& quantizer, const std::vector<std::byte>& bytes,
                          std::size_t n) {
  return Accumulate(quantizer, {bytes}, 1.0f, n);
}

// --- the laws of every quantizer

struct Variant {
  std::string name;
  Options options;
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const auto& descriptor : Quantizers())
    variants.push_back({std::string(descriptor.name), {}});
  for (const auto& descriptor : BlockQuantizers())
    variants.push_back({std::string(descriptor.name), {}});
  variants.push_back({"int4-blocks", {{"block", std::int64_t{32}}}});
  variants.push_back({"qsgd", {{"bucket", std::int64_t{0}}, {"levels", std::int64_t{4}}}});
  variants.push_back({"qsgd", {{"bucket", std::int64_t{64}}}});
  variants.push_back({"qsgd", {{"bucket", std::int64_t{4096}}, {"levels", std::int64_t{1}}}});
  return variants;
}

class QuantizerLaws : public ::testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<Quantizer> Make() const {
    return MakeQuantizer(GetParam().name, GetParam().options);
  }
  const QuantizerDescriptor& descriptor() const { return FindQuantizer(GetParam().name); }

  const std::unique_ptr<Quantizer> quantizer_ = Make();
};

// Sent and kept values add up to the input, within the rounding of one subtraction.
TEST_P(QuantizerLaws, KeepsWhatItDoesNotSend) {
  for (const std::size_t n : kShapes) {
    for (const std::string& data : DataNames()) {
      if (n > 100'000 && data != "gaussian") continue;
      const auto gradient = MakeData(data, n, 1);
      const auto old = MakeData("laplace", n, 2);
      const Encoded encoded = Encode(*quantizer_, gradient, old);
      const auto sent = Decode(*quantizer_, encoded.bytes, n);
      std::vector<float> x(n);
      std::ranges::transform(gradient, old, x.begin(), std::plus());
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(sent[i] + encoded.residual[i], x[i],
                    2 * FLT_EPSILON * (std::abs(sent[i]) + std::abs(x[i])))
            << data << " n=" << n << " i=" << i;
        ASSERT_FALSE(std::signbit(sent[i]) != std::signbit(x[i]) && sent[i] != 0 && x[i] != 0);
      }
      // A residual affects the encoded values, not the way of encoding.
      ASSERT_EQ(Encode(*quantizer_, x, {}).bytes, encoded.bytes) << data << " n=" << n;
    }
  }
}

TEST_P(QuantizerLaws, IsDeterministicOnEveryPoolAndInstructionSet) {
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {std::size_t{5003}, kLargeShape}) {
      if (n > 100'000 && data != "gaussian" && data != "denormal") continue;
      const auto gradient = MakeData(data, n, 1);
      const auto quantizer = Make();
      Encoded reference;
      std::vector<float> sum;
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        for (const int threads : {1, 2, 3}) {
          const Encoded encoded =
              Encode(*quantizer, gradient, MakeData("laplace", n, 2), 3, 1, threads);
          const auto out = Accumulate(*quantizer, {encoded.bytes, encoded.bytes}, 0.3f, n, threads);
          if (sum.empty()) {
            reference = encoded;
            sum = out;
          }
          ASSERT_EQ(encoded.bytes, reference.bytes) << data << " " << IsaName(isa);
          ASSERT_EQ(Bits(encoded.residual), Bits(reference.residual)) << data << IsaName(isa);
          ASSERT_EQ(Bits(out), Bits(sum)) << data << " " << IsaName(isa);
        }
      }
    }
  }
}

TEST_P(QuantizerLaws, AddsRanksInOrder) {
  for (const std::size_t n : {1, 33, 9000}) {
    std::vector<std::vector<std::byte>> payloads;
    std::vector<float> expected(n, 0.0f);
    for (int rank = 0; rank < 5; ++rank) {
      const auto gradient = MakeData("layers", n, rank);
      payloads.push_back(Encode(*quantizer_, gradient, {}, 0, rank).bytes);
      const auto decoded = Decode(*quantizer_, payloads.back(), n);
      for (std::size_t i = 0; i < n; ++i) expected[i] += decoded[i];
    }
    for (float& e : expected) e *= 0.2f;
    EXPECT_EQ(Bits(Accumulate(*quantizer_, payloads, 0.2f, n)), Bits(expected)) << n;
  }
  EXPECT_EQ(Accumulate(*quantizer_, {}, 0.5f, 70), std::vector<float>(70, 0.0f));
}

TEST_P(QuantizerLaws, LosesNoMoreThanItSays) {
  for (const std::size_t n : {1, 100, 5000}) {
    for (const std::string& data : DataNames()) {
      if (data == "denormal") continue;  // levels are rounded to multiples of the smallest float
      const auto x = MakeData(data, n, 1);
      const double squares = SquaredNorm(x);
      constexpr int kDraws = 20;
      double lost = 0;
      for (std::uint64_t step = 0; step < kDraws; ++step) {
        const Encoded encoded = Encode(*quantizer_, x, std::vector<float>(n, 0.0f), step);
        lost += SquaredNorm(encoded.residual) / kDraws;
      }
      // For a single element, the errors of 20 draws may all go one way and do not average out.
      EXPECT_LE(lost, (n == 1 ? 2 : 1.05) * quantizer_->ErrorBound(n) * squares + 1e-12 * squares)
          << data << " n=" << n;
    }
  }
}

TEST_P(QuantizerLaws, SendsZerosOfZeros) {
  const std::vector<float> zeros(5000, 0.0f);
  const Encoded encoded = Encode(*quantizer_, zeros, zeros);
  EXPECT_EQ(Decode(*quantizer_, encoded.bytes, zeros.size()), zeros);
  EXPECT_EQ(encoded.residual, zeros);
}

TEST_P(QuantizerLaws, HoldsOutAtTheEndsOfTheRange) {
  for (const float magnitude : {FLT_MAX, FLT_MIN, std::numeric_limits<float>::denorm_min()}) {
    for (const std::size_t n : {1, 5000}) {
      std::vector<float> x(n, magnitude);
      for (std::size_t i = 1; i < n; i += 2) x[i] = -magnitude;
      const Encoded encoded = Encode(*quantizer_, x, std::vector<float>(n, 0.0f));
      const auto sent = Decode(*quantizer_, encoded.bytes, n);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(std::isfinite(sent[i]) && std::isfinite(encoded.residual[i]));
        ASSERT_EQ(sent[i] + encoded.residual[i], x[i]) << magnitude << " n=" << n;
      }
    }
  }
}

TEST_P(QuantizerLaws, RefusesWhatIsNotFinite) {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {std::size_t{1}, std::size_t{33}, kLargeShape}) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        for (const bool feedback : {false, true}) {
          auto gradient = MakeData("ascending", n, 1);
          gradient[n * 2 / 3] = bad;
          SCOPED_TRACE(::testing::Message() << bad << ", n=" << n);
          ExpectError(
              FailureKind::kNumeric, {"conv1.weight", "element " + std::to_string(n * 2 / 3)}, [&] {
                Encode(*quantizer_, gradient, std::vector<float>(feedback ? n : 0, 0.0f), 9, 0, 2);
              });
        }
      }
    }
  }
}

TEST_P(QuantizerLaws, RefusesArgumentsThatMakeNoSense) {
  ThreadPool pool(1);
  Workspace workspace;
  std::vector<float> x(100, 1.0f);
  std::vector<std::byte> out(4096);
  const std::size_t right = quantizer_->EncodedBytes(100);
  EXPECT_EQ(right % 4, 0u);
  struct Case {
    std::size_t n, residual, bytes;
  };
  for (const Case& c : {Case{0, 0, 4}, Case{100, 99, right}, Case{100, 100, right + 4}}) {
    SCOPED_TRACE(::testing::Message() << "n=" << c.n);
    ExpectError(FailureKind::kConfig, {"fc.bias"}, [&] {
      quantizer_->Encode({&pool, &workspace, 0}, {{x.data(), c.n, {}}, {x.data(), c.residual, {}}},
                         {1, "fc.bias", {}, 0}, std::span(out).first(c.bytes));
    });
  }
}

TEST_P(QuantizerLaws, RefusesPayloadsOfAnotherLength) {
  const auto good = Encode(*quantizer_, MakeData("gaussian", 100, 1), {}).bytes;
  for (const std::size_t size : {std::size_t{0}, good.size() - 4, good.size() + 4}) {
    std::vector<std::byte> bad = good;
    bad.resize(size);
    ExpectError(FailureKind::kComm, {"payload 1", std::to_string(size)}, [&] {
      Accumulate(*quantizer_, {good, bad}, 1.0f, 100);
    });
  }
}

// A payload of all ones has a scale, a norm and a half that are no numbers.
TEST_P(QuantizerLaws, RefusesPayloadsThatAreNotFinite) {
  std::vector<std::byte> bytes(quantizer_->EncodedBytes(100), std::byte{0xff});
  ExpectError(FailureKind::kComm, {}, [&] { Decode(*quantizer_, bytes, 100); });
}

TEST_P(QuantizerLaws, DescribesItself) {
  EXPECT_EQ(Make()->name(), descriptor().name);
  EXPECT_FALSE(descriptor().paper.empty());
  EXPECT_GE(descriptor().revision, 1);
  for (const OptionSpec& option : descriptor().options) {
    EXPECT_FALSE(option.meaning.empty()) << option.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizerLaws, ::testing::ValuesIn(Variants()),
                         [](const auto& instance) {
                           std::string name =
                               instance.param.name + "_" + std::to_string(instance.index);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The values applied over T steps equal the sum of the gradients except for one residual, which
// does not grow.
TEST(Quantizers, ErrorFeedbackAppliesEverythingInTheEnd) {
  constexpr std::size_t kN = 3000;
  constexpr int kSteps = 200;
  const auto gradient = MakeData("gaussian", kN, 1);
  std::size_t tried = 0;
  for (const Variant& variant : Variants()) {
    const auto quantizer = MakeQuantizer(variant.name, variant.options);
    if (quantizer->ErrorBound(kN) > 1) continue;  // unfit for error feedback
    ++tried;
    std::vector<double> applied(kN, 0.0);
    std::vector<float> residual(kN, 0.0f);
    double at_half = 0, at_end = 0;
    for (int step = 0; step < kSteps; ++step) {
      Encoded encoded = Encode(*quantizer, gradient, residual, static_cast<std::uint64_t>(step));
      const auto sent = Decode(*quantizer, encoded.bytes, kN);
      residual = std::move(encoded.residual);
      for (std::size_t i = 0; i < kN; ++i) applied[i] += static_cast<double>(sent[i]);
      if (step == kSteps / 2) at_half = SquaredNorm(residual);
    }
    at_end = SquaredNorm(residual);
    for (std::size_t i = 0; i < kN; ++i) {
      // Each step rounds once; magnitudes stay below a hundred.
      ASSERT_NEAR(applied[i] + residual[i], kSteps * static_cast<double>(gradient[i]), 1e-2);
    }
    EXPECT_LE(at_end, 4 * at_half + 1e-9) << variant.name;
  }
  EXPECT_EQ(tried, Quantizers().size() + BlockQuantizers().size() + 2);
}

// The worst vectors of a block: one element is as large as the code allows, so that the scale is 1,
// and the others lie where rounding at random loses most. Means of many draws are the bounds.
TEST(Quantizers, BlocksAtRandomLoseOnAverageWhatTheirBoundSays) {
  struct Worst {
    const char* name;
    std::int64_t block;
    float largest, others;
    double bound, slack;  // of the worst vector; the quantizer's own may be larger by the slack
  };
  // Integers: (sqrt(1 + (block - 1) / largest^2) - 1) / 2. fp8: 271 lies 15 / 32 of the way from
  // 256 to 288, and loses 255 in squares.
  const double fp8 = 255 * 255.0 / (448 * 448 + 255 * 271.0 * 271);
  for (const Worst& worst : {Worst{"int8-blocks", 32, 127, .4997600f, .000480270301, 0},
                             Worst{"int8-blocks", 256, 127, .4980392f, .003937007874, 0},
                             Worst{"int4-blocks", 256, 7, .2864673f, .745399698, 0},
                             Worst{"fp8-blocks", 256, 448, 271, fp8, .2}}) {
    SCOPED_TRACE(worst.name + std::to_string(worst.block));
    const auto quantizer = MakeQuantizer(
        worst.name, {{"block", worst.block}, {"rounding", std::string("stochastic")}});
    std::vector<float> x(static_cast<std::size_t>(worst.block), worst.others);
    for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -x[i];
    x[5] = worst.largest;
    const auto lost = [&](const std::vector<float>& of) {
      double sum = 0;
      constexpr int kDraws = 2000;
      for (std::uint64_t step = 0; step < kDraws; ++step)
        sum += SquaredNorm(Encode(*quantizer, of, std::vector<float>(of.size()), step).residual);
      return sum / kDraws / SquaredNorm(of);
    };
    const double claimed = quantizer->ErrorBound(x.size());
    EXPECT_NEAR(lost(x), worst.bound, .02 * worst.bound);
    EXPECT_LE(worst.bound, claimed * (1 + 1e-6));
    EXPECT_NEAR(claimed, worst.bound, 1e-6 * worst.bound + worst.slack * claimed);
    // Other vectors of the same largest element lose less.
    for (float& other : x) other *= other == worst.largest ? 1 : .4f;
    EXPECT_LT(lost(x), worst.bound);
  }
}

// Shows why ErrorBound matters: with four levels for 3000 elements the residual grows forever.
TEST(Quantizers, ErrorFeedbackDivergesWhereTheErrorIsLargerThanTheVector) {
  constexpr std::size_t kN = 3000;
  const auto quantizer =
      MakeQuantizer("qsgd", {{"bucket", std::int64_t{0}}, {"levels", std::int64_t{4}}});
  EXPECT_GT(quantizer->ErrorBound(kN), 10);
  const auto gradient = MakeData("gaussian", kN, 1);
  std::vector<float> residual(kN, 0.0f);
  for (std::uint64_t step = 0; step < 200; ++step) {
    residual = Encode(*quantizer, gradient, residual, step).residual;
  }
  EXPECT_GT(SquaredNorm(residual), 1e6 * SquaredNorm(gradient));
}

TEST(Quantizers, AnUnknownNameIsAnErrorThatNamesTheNearest) {
  EXPECT_EQ(ErrorOf([&] { FindQuantizer("qsdg"); }, FailureKind::kConfig),
            "unknown quantizer \"qsdg\"; did you mean \"qsgd\"?");
}

// --- fp16

double HalfValue(std::uint32_t code) {  // by definition (IEEE 754, binary16), finite codes
  const int exponent = static_cast<int>((code >> 10) & 31);
  const double fraction = (code & 1023) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (code & 0x8000) != 0 ? -magnitude : magnitude;
}

std::vector<std::uint16_t> HalfCodes(const std::vector<float>& x) {
  const auto bytes = Encode(*MakeQuantizer("fp16"), x, {}).bytes;
  std::vector<std::uint16_t> codes(x.size());
  std::memcpy(codes.data(), bytes.data(), codes.size() * 2);
  return codes;
}

TEST(Fp16, DecodesEveryCode) {
  std::vector<std::uint16_t> codes;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    if ((code & 0x7c00) != 0x7c00) codes.push_back(static_cast<std::uint16_t>(code));
  }
  std::vector<std::byte> bytes(codes.size() * 2);
  std::memcpy(bytes.data(), codes.data(), bytes.size());
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    const auto decoded = Decode(*MakeQuantizer("fp16"), bytes, codes.size());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(static_cast<double>(decoded[i]), HalfValue(codes[i])) << codes[i];
    }
    EXPECT_EQ(HalfCodes(decoded)[1], codes[1]);
  }
}

// Between neighbouring halves a < b: values below the middle round to a, above it to b, and the
// middle to the even one.
TEST(Fp16, RoundsToTheNearestAndTiesToEven) {
  std::vector<float> x;
  std::vector<std::uint16_t> expected;
  for (std::uint32_t a = 0; a < 0x7bff; ++a) {
    const auto middle = static_cast<float>((HalfValue(a) + HalfValue(a + 1)) / 2);
    const auto even = static_cast<std::uint16_t>(a % 2 == 0 ? a : a + 1);
    const std::pair<float, std::uint32_t> cases[] = {
        {static_cast<float>(HalfValue(a)), a},
        {std::nextafter(middle, 0.0f), a},
        {middle, even},
        {std::nextafter(middle, 1e9f), a + 1},
    };
    for (const auto& [value, code] : cases) {
      x.push_back(value);
      expected.push_back(static_cast<std::uint16_t>(code));
      x.push_back(-value);
      expected.push_back(static_cast<std::uint16_t>(code | 0x8000));
    }
  }
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    const auto codes = HalfCodes(x);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(codes[i], expected[i]) << x[i];
  }
}

TEST(Fp16, SaturatesAndSendsTheRestLater) {
  const auto fp16 = MakeQuantizer("fp16");
  for (const float x : {65504.0f, 65519.0f, 65520.0f, 65536.0f, 1e6f, -1e6f, FLT_MAX}) {
    EXPECT_EQ(Decode(*fp16, Encode(*fp16, {x}, {}).bytes, 1)[0], std::copysign(65504.0f, x)) << x;
  }
  std::vector<float> residual = {150000.0f};
  std::vector<float> sent;
  for (int step = 0; step < 4; ++step) {
    Encoded encoded = Encode(*fp16, {0.0f}, residual);
    sent.push_back(Decode(*fp16, encoded.bytes, 1)[0]);
    residual = encoded.residual;
  }
  // Halves of this magnitude are 16 apart, and 18992 is one: nothing is left after three steps.
  EXPECT_EQ(sent, (std::vector<float>{65504, 65504, 18992, 0}));
  EXPECT_EQ(residual[0], 0.0f);
}

// A float minus its nearest half is a float, so that the two add up without rounding.
TEST(Fp16, ConservesEveryFloatBelowTwoToThe29) {
  const auto fp16 = MakeQuantizer("fp16");
  std::vector<float> x;
  std::mt19937 random(3);
  for (std::uint32_t exponent = 0; exponent < 127 + 29; ++exponent) {
    for (int i = 0; i < 500; ++i) {
      const std::uint32_t fraction = i < 4 ? 0x7fffffu - static_cast<std::uint32_t>(i)
                                           : static_cast<std::uint32_t>(random()) & 0x7fffffu;
      x.push_back(std::bit_cast<float>((exponent << 23) | fraction));
      if (i % 2 == 0) x.back() = -x.back();
    }
  }
  const Encoded encoded = Encode(*fp16, x, std::vector<float>(x.size(), 0.0f));
  const auto sent = Decode(*fp16, encoded.bytes, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(sent[i] + encoded.residual[i], x[i]);
    ASSERT_EQ(static_cast<double>(sent[i]) + static_cast<double>(encoded.residual[i]),
              static_cast<double>(x[i]));
  }
}

// --- qsgd

// Alistarh et al., section 3.1: if |x| / norm is in [l / q, (l + 1) / q], it rounds to level l or l
// + 1 of q. The upper level has probability q |x| / norm - l.
TEST(Qsgd, RoundsByItsDefinition) {
  constexpr std::size_t kN = 1000;
  constexpr float kLevels = 5;
  const auto x = MakeData("gaussian", kN, 4);
  const auto bytes =
      Encode(*MakeQuantizer("qsgd", {{"levels", std::int64_t{5}}, {"bucket", std::int64_t{0}}}), x,
             {}, 6, 2)
          .bytes;
  const double squares = SquaredNorm(x);
  float norm = 0;
  std::memcpy(&norm, bytes.data(), sizeof norm);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6 * norm);
  const float step = norm / kLevels;
  const RandomStream stream(RandomStream(kSeed, 7, 6).At(2), 7, 6);
  for (std::size_t i = 0; i < kN; ++i) {
    const auto half = static_cast<std::uint32_t>(stream.At(i / 2) >> (32 * (i % 2)));
    const float draw = static_cast<float>(half >> 8) / 16777216.0f;
    const float y = std::abs(x[i]) / step;
    const float level = std::floor(y) + (draw < y - std::floor(y) ? 1.0f : 0.0f);
    const auto code = static_cast<std::int8_t>(bytes[4 + i]);
    ASSERT_EQ(static_cast<float>(code), x[i] < 0 ? -level : level) << i;
  }
}

TEST(Qsgd, IsUnbiasedWithTheVarianceOfItsLevels) {
  constexpr std::size_t kN = 200;
  constexpr int kDraws = 4000;
  const auto x = MakeData("laplace", kN, 4);
  const auto qsgd =
      MakeQuantizer("qsgd", {{"levels", std::int64_t{8}}, {"bucket", std::int64_t{64}}});
  std::vector<double> mean(kN, 0.0);
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto sent = Decode(
        *qsgd, Encode(*qsgd, x, {}, static_cast<std::uint64_t>(draw / 2), draw % 2).bytes, kN);
    for (std::size_t i = 0; i < kN; ++i) mean[i] += static_cast<double>(sent[i]) / kDraws;
  }
  for (std::size_t begin = 0; begin < kN; begin += 64) {
    const std::size_t end = std::min(kN, begin + 64);
    double squares = 0;
    for (std::size_t i = begin; i < end; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double step = std::sqrt(squares) / 8;
    for (std::size_t i = begin; i < end; ++i) {
      const double y = std::abs(static_cast<double>(x[i])) / step;
      const double fraction = y - std::floor(y);
      const double sigma = step * std::sqrt(fraction * (1 - fraction) / kDraws);
      EXPECT_NEAR(mean[i], x[i], 6 * sigma + 1e-6 * step) << i;  // 6 sigma: 1 in 10^9 each
    }
  }
}

TEST(Qsgd, RanksAndStepsRoundIndependently) {
  const auto x = MakeData("gaussian", 1000, 1);
  const auto qsgd = MakeQuantizer("qsgd", {{"bucket", std::int64_t{0}}});
  const auto base = Encode(*qsgd, x, {}, 3, 0).bytes;
  EXPECT_EQ(base, Encode(*qsgd, x, {}, 3, 0).bytes);
  EXPECT_NE(base, Encode(*qsgd, x, {}, 3, 1).bytes);
  EXPECT_NE(base, Encode(*qsgd, x, {}, 4, 0).bytes);
  EXPECT_NE(Encode(*qsgd, x, {}, 4, 0).bytes, Encode(*qsgd, x, {}, 3, 1).bytes);
}

TEST(Qsgd, BucketsOfZerosSendZeros) {
  std::vector<float> x(256, 0.0f);
  x[200] = -2.5f;
  const auto qsgd = MakeQuantizer("qsgd", {{"bucket", std::int64_t{64}}});
  EXPECT_EQ(Decode(*qsgd, Encode(*qsgd, x, {}).bytes, x.size()), x);
}

TEST(Qsgd, BucketsArePowersOfTwo) {
  for (const std::int64_t bucket : {1, 63, 100, 1000}) {
    EXPECT_THROW(MakeQuantizer("qsgd", {{"bucket", bucket}}), Error) << bucket;
  }
}

// --- sign

TEST(Sign, SendsSignsAtTheMeanMagnitude) {
  const std::vector<float> x = {1.0f, -2.0f, 0.0f, -0.0f, 5.0f};
  const auto sign = MakeQuantizer("sign");
  const Encoded encoded = Encode(*sign, x, std::vector<float>(5, 0.0f));
  EXPECT_EQ(encoded.bytes.size(), 8u);
  EXPECT_EQ(encoded.bytes[4], std::byte{0b11101});
  EXPECT_EQ(Decode(*sign, encoded.bytes, 5), (std::vector<float>{1.6f, -1.6f, 1.6f, 1.6f, 1.6f}));
  EXPECT_EQ(encoded.residual,
            (std::vector<float>{1.0f - 1.6f, -2.0f + 1.6f, -1.6f, -1.6f, 5.0f - 1.6f}));
}

TEST(SignBytes, SendsAByteASignAndOtherwiseWhatSignSends) {
  for (const std::size_t n : {1, 5, 32, 33, 20'000}) {
    const auto x = MakeData("gaussian", n, 1);
    const auto bits = MakeQuantizer("sign"), bytes = MakeQuantizer("sign-bytes");
    const Encoded packed = Encode(*bits, x, std::vector<float>(n, 0.0f));
    Encoded encoded = Encode(*bytes, x, std::vector<float>(n, 0.0f));
    ASSERT_EQ(encoded.bytes.size(), 4 + (n + 3) / 4 * 4);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(encoded.bytes[4 + i], std::byte{x[i] >= 0}) << n << ", " << i;
    EXPECT_EQ(encoded.residual, packed.residual);
    EXPECT_EQ(Decode(*bytes, encoded.bytes, n), Decode(*bits, packed.bytes, n));
    encoded.bytes[4 + n / 2] = std::byte{2};
    ExpectError(FailureKind::kComm, {"a sign that is neither 0 nor 1"},
                [&] { Decode(*bytes, encoded.bytes, n); });
  }
}

// Karimireddy et al., lemma 8: |x - C(x)|^2 = (1 - |x|_1^2 / (n |x|_2^2)) |x|_2^2.
TEST(Sign, ContractsByTheDensityOfTheVector) {
  for (const std::string& data : DataNames()) {
    if (data == "zeros") continue;
    constexpr std::size_t kN = 20'000;
    const auto x = MakeData(data, kN, 1);
    const Encoded encoded = Encode(*MakeQuantizer("sign"), x, std::vector<float>(kN, 0.0f));
    double l1 = 0, l2 = 0, left = 0;
    for (std::size_t i = 0; i < kN; ++i) {
      l1 += std::abs(static_cast<double>(x[i]));
      l2 += static_cast<double>(x[i]) * x[i];
      left += static_cast<double>(encoded.residual[i]) * encoded.residual[i];
    }
    // Denormal scales are rounded to a multiple of the smallest float: one part in a thousand.
    EXPECT_NEAR(left, l2 - l1 * l1 / kN, (data == "denormal" ? 1e-3 : 1e-6) * l2) << data;
  }
}

}  // namespace
}  // namespace sparfuse::testing
