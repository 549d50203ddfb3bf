// Tests the sum of ranks' payloads, and the passes over dense payloads.
#include "core/payload/accumulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "core/base/cpu.hpp"
#include "tests/support/bits.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

struct OwnedPayload {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  SparsePayload view() const { return {indices, values}; }
};

std::vector<OwnedPayload> RandomPayloads(std::size_t n, std::size_t ranks, double density) {
  std::mt19937 random(static_cast<std::uint32_t>(n * 31 + ranks));
  std::bernoulli_distribution kept(density);
  std::normal_distribution<float> normal;
  std::vector<OwnedPayload> payloads(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      if (r % 3 == 2 || !kept(random)) continue;  // every third rank sends nothing
      payloads[r].indices.push_back(static_cast<std::uint32_t>(i));
      payloads[r].values.push_back(normal(random));
    }
  }
  return payloads;
}

std::vector<SparsePayload> Views(const std::vector<OwnedPayload>& payloads) {
  std::vector<SparsePayload> views;
  for (const auto& payload : payloads) views.push_back(payload.view());
  return views;
}

TEST(AccumulateSparse, AddsInRankOrderAndScalesWhateverThePool) {
  for (const std::size_t n : {1, 4095, 4097, 600'001, 4'200'003}) {
    for (const std::size_t ranks : {0, 1, 2, 5, 65, 130}) {
      if (n > 10'000 && ranks > 5) continue;
      if (n > 1'000'000 && ranks > 2) continue;
      const auto payloads = RandomPayloads(n, ranks, ranks > 5 ? 0.5 : ranks == 1 ? 0.01 : 0.06);
      const float scale = 1.0f / 3.0f;
      std::vector<float> expected(n, 0.0f);
      for (const auto& payload : payloads) {
        for (std::size_t i = 0; i < payload.indices.size(); ++i) {
          expected[payload.indices[i]] += payload.values[i];
        }
      }
      for (float& e : expected) e *= scale;
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        std::vector<float> out(n, std::numeric_limits<float>::quiet_NaN());
        AccumulateSparse(Views(payloads), scale, out, pool);
        ASSERT_EQ(testing::Bits(out), testing::Bits(expected)) << "n=" << n << " ranks=" << ranks;
      }
    }
  }
}

// A large output is written line by line past the caches, wherever it begins and on every
// instruction set.
TEST(AccumulateSparse, StreamsFromAnyElementOn) {
  constexpr std::size_t kN = 4'200'003;
  const auto payloads = RandomPayloads(kN, 2, 0.03);
  ThreadPool pool(2);
  std::vector<float> expected(kN);
  {
    const ScopedIsa portable(Isa::kPortable);
    AccumulateSparse(Views(payloads), 0.5f, expected, pool);
  }
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scoped(isa);
    for (const std::size_t first : {0, 1, 3, 8, 15}) {
      std::vector<float> room(first + kN + 16, -7.0f);
      AccumulateSparse(Views(payloads), 0.5f, std::span(room).subspan(first, kN), pool);
      const std::vector<float> out(room.begin() + static_cast<std::ptrdiff_t>(first),
                                   room.begin() + static_cast<std::ptrdiff_t>(first + kN));
      ASSERT_EQ(testing::Bits(out), testing::Bits(expected)) << IsaName(isa) << ", from " << first;
      EXPECT_EQ(std::count(room.begin(), room.end(), -7.0f),
                static_cast<std::ptrdiff_t>(first + 16));
    }
  }
}

// One sum overflows, wherever it lies, in cache and past the caches, on every instruction set.
TEST(AccumulateSparse, SaysThatASumIsNotFinite) {
  ThreadPool pool(2);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scoped(isa);
    for (const std::size_t n : {std::size_t{5000}, std::size_t{4'200'003}}) {
      std::vector<float> room(n + 3);
      const std::span<float> out = std::span(room).subspan(3);
      for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, n / 2, n - 1}) {
        const OwnedPayload large{{static_cast<std::uint32_t>(at)}, {3e38f}};
        const OwnedPayload small{{static_cast<std::uint32_t>(at)}, {-2e38f}};
        const std::vector<SparsePayload> overflows{large.view(), large.view()};
        const std::vector<SparsePayload> fits{large.view(), small.view()};
        for (const float scale : {1.0f, 0.5f}) {
          EXPECT_FALSE(AccumulateSparse(overflows, scale, out, pool)) << at << " of " << n;
          EXPECT_TRUE(AccumulateSparse(fits, scale, out, pool)) << at << " of " << n;
        }
      }
    }
  }
}

TEST(AccumulateSparse, FullPayloadsEqualTheDenseSum) {
  constexpr std::size_t kN = 9001;
  const auto payloads = RandomPayloads(kN, 2, 1.0);
  ThreadPool pool(2);
  std::vector<float> out(kN);
  AccumulateSparse(Views(payloads), 1.0f, out, pool);
  for (std::size_t i = 0; i < kN; ++i) {
    ASSERT_EQ(out[i], payloads[0].values[i] + payloads[1].values[i]);
  }
}

void ExpectCorrupt(std::size_t n, const OwnedPayload& bad, const std::string& text) {
  const OwnedPayload good{{0}, {1.0f}};
  ThreadPool pool(2);
  std::vector<float> out(n);
  testing::ExpectError(FailureKind::kComm, {"payload 1", text}, [&] {
    AccumulateSparse(std::vector<SparsePayload>{good.view(), bad.view()}, 1.0f, out, pool);
  });
}

TEST(AccumulateSparse, RefusesCorruptPayloads) {
  ExpectCorrupt(10, {{3, 10}, {1, 1}}, "index 10, expected below 10");
  ExpectCorrupt(10, {{3, 0xffffffff}, {1, 1}}, "index 4294967295");
  ExpectCorrupt(10, {{3, 5}, {1}}, "2 indices, 1 values");
  ExpectCorrupt(10, {{5, 999'999'999, 6}, {1, 1, 1}}, "index 999999999 at position 1");
  ExpectCorrupt(600'000, {{5, 999'999'999, 6}, {1, 1, 1}}, "index 999999999 at position 1");
  ExpectCorrupt(600'000, {{400'000, 5, 500'000}, {1, 1, 1}}, "expected increasing");
  ExpectCorrupt(20'000, {{9000, 5, 9001}, {1, 1, 1}}, "index 5 at position 1");
  // Wherever two indices of a block are equal, fall, or jump out of it and back.
  for (std::size_t at = 1; at < 40; ++at) {
    OwnedPayload bad;
    for (std::uint32_t i = 0; i < 40; ++i) bad.indices.push_back(5000 + 3 * i);
    bad.values.assign(40, 1.0f);
    for (const std::uint32_t wrong : {bad.indices[at - 1], 4999u, 0u, 6000u, 9000u, 0xffffffffu}) {
      if (at == 39 && (wrong == 6000 || wrong == 9000)) continue;  // in order
      bad.indices[at] = wrong;
      ExpectCorrupt(20'000, bad, "index");
    }
  }
}

TEST(ScaleDense, ScalesInPlaceAndAcross) {
  for (const std::size_t n : {1, 33, 600'001}) {
    ThreadPool pool(3);
    std::vector<float> in(n);
    for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<float>(i % 1000) - 500.0f;
    std::vector<float> out(n, -1.0f);
    ScaleDense(in, 1.0f / 3.0f, out, pool);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], in[i] * (1.0f / 3.0f));
    ScaleDense(in, 1.0f / 3.0f, in, pool);
    ASSERT_EQ(in, out);
  }
}

TEST(AddInto, AddsElementByElement) {
  std::vector<float> to = {1, 2, 3};
  AddInto(std::vector<float>{10, 20, 30}, to);
  EXPECT_EQ(to, (std::vector<float>{11, 22, 33}));
}

TEST(FirstNotFinite, IsFoundAtAnyPosition) {
  using testing::kInfinity;
  using testing::kNan;
  for (const std::size_t n : {0u, 1u, 4095u, 4096u, 4097u, 10'000u}) {
    std::vector<float> values(n, std::numeric_limits<float>::max());
    EXPECT_EQ(FirstNotFinite(values), n);
    for (std::size_t at = 0; at < n; at += at < 4090 || at > 4100 ? 97 : 1) {
      for (const float bad : {kInfinity, -kInfinity, kNan}) {
        values[at] = bad;
        values[n - 1] = at == n - 1 ? bad : kNan;
        ASSERT_EQ(FirstNotFinite(values), at) << n;
        values[at] = values[n - 1] = -0.0f;
      }
    }
  }
}

TEST(CopyFinite, CopiesAllAndNoticesWhatIsNotFinite) {
  ThreadPool pool(2);
  for (const std::size_t n : {1, 37, 600'001}) {
    std::vector<float> from(n, std::numeric_limits<float>::max());
    from[0] = -std::numeric_limits<float>::denorm_min();
    std::vector<float> to(n, 0.0f);
    EXPECT_TRUE(CopyFinite(from, to, pool));
    EXPECT_EQ(from, to);
    for (const float bad :
         {testing::kNan, -testing::kNan, testing::kInfinity, -testing::kInfinity}) {
      from[n - 1] = bad;
      EXPECT_FALSE(CopyFinite(from, to, pool));
      EXPECT_EQ(testing::Bits(from), testing::Bits(to));
    }
  }
}

}  // namespace
}  // namespace sparfuse
