// Tests exact top-k in small cases by hand, and its errors.
#include <gtest/gtest.h>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

TEST(TopK, KeepsTheLargestMagnitudesWithTheirSigns) {
  Selection selection(MakeSparsifier("topk"), 6, 0.5, 1, false);
  const Selected selected = selection.Run({0.1f, -5.0f, 2.0f, -0.2f, 3.0f, 0.0f}, 0);
  EXPECT_EQ(selected.indices, (std::vector<std::uint32_t>{1, 2, 4}));
  EXPECT_EQ(selected.values, (std::vector<float>{-5.0f, 2.0f, 3.0f}));
}

TEST(TopK, GivesTiesToTheLowestIndex) {
  Selection selection(MakeSparsifier("topk"), 8, 0.5, 1, false);
  const Selected selected = selection.Run({1, -2, 2, -2, 3, 2, -2, 2}, 0);
  EXPECT_EQ(selected.indices, (std::vector<std::uint32_t>{1, 2, 3, 4}));
}

TEST(TopK, TruncatesTheCountInDouble) {
  const auto topk = MakeSparsifier("topk");
  // 0.29 * 100 is 28.999999999999996 in double.
  Selection selection(*topk, 100, 0.29, 1, false);
  EXPECT_EQ(selection.Run(MakeData("gaussian", 100, 1), 0).indices.size(), 28u);
  Selection tiny(*topk, 10, 0.001, 1, false);
  EXPECT_EQ(tiny.Run(MakeData("gaussian", 10, 1), 0).indices.size(), 1u);
}

TEST(TopK, AllZerosStillSendsKElementsOfLowestIndex) {
  const auto topk = MakeSparsifier("topk");
  for (const std::size_t n : {1000, 100'000, 5'000'000}) {
    Selection selection(*topk, n, 0.01, 2, true);
    const Selected selected = selection.Run(std::vector<float>(n, 0.0f), 0);
    ASSERT_EQ(selected.indices.size(), n / 100);
    EXPECT_EQ(selected.indices.back(), n / 100 - 1);
  }
}

TEST(TopK, WarmStartChangesTheTimeAndNeverTheResult) {
  constexpr std::size_t kN = 300'000;
  Selection warm(MakeSparsifier("topk"), kN, 0.01, 2, false);
  // The scale creeps, halves (bound too high), and grows a hundredfold (bound far too low).
  const std::vector<float> scales{1.0f,  1.01f, 0.99f,  0.5f,  0.5f,
                                  50.0f, 50.0f, 1e-30f, 1e30f, 1.0f};
  ExpectWarmTopKIsExact(warm, kN, scales, 3);
  EXPECT_EQ(warm.counters().selections, scales.size());
}

TEST(TopK, NamesTheTensorTheStepAndTheElementThatIsNotFinite) {
  const auto topk = MakeSparsifier("topk");
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {5, 9000, 600'000}) {
      for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        for (const bool feedback : {false, true}) {
          auto gradient = MakeData("gaussian", n, 3);
          gradient[n - 2] = bad;
          Selection selection(*topk, n, 0.2, 2, feedback);
          ExpectError(FailureKind::kNumeric,
                      {"conv1.weight", "step 41", "element " + std::to_string(n - 2)},
                      [&] { selection.Run(gradient, 41); });
        }
      }
    }
  }
}

TEST(TopK, NoticesASumThatOverflows) {
  Selection selection(MakeSparsifier("topk"), 4, 0.25, 1, true);
  selection.residual() = {0, 3e38f, 0, 0};
  ExpectError(FailureKind::kNumeric, {}, [&] { selection.Run({1, 3e38f, 1, 1}, 0); });
}

TEST(TopK, ATensorOfNaNsIsAnError) {
  const auto topk = MakeSparsifier("topk");
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0x7f800000u}) {
      Selection selection(*topk, 500'000, 0.01, 2, false);
      const std::vector<float> gradient(500'000, std::bit_cast<float>(bits));
      ExpectError(FailureKind::kNumeric, {}, [&] { selection.Run(gradient, 0); });
    }
  }
}

TEST(TopK, RefusesArgumentsThatMakeNoSense) {
  const auto topk = MakeSparsifier("topk");
  ThreadPool pool(1);
  Workspace workspace;
  SelectCounters counters;
  const SelectContext context{&pool, &workspace, &counters, {}};
  std::vector<float> gradient(10, 1.0f);
  std::vector<float> residual(9, 0.0f);
  std::vector<std::uint32_t> indices(10);
  std::vector<float> values(10);
  const auto select = [&](std::size_t n, double density, std::size_t residual_size,
                          std::size_t capacity) {
    return ErrorOf([&] {
      Slot slot{{indices.data(), 10, {}}, {values.data(), 10, {}}, capacity, 0};
      topk->Select(context, {{gradient.data(), n, {}}, {residual.data(), residual_size, {}}},
                   density, {0, "fc.bias", {}, 0}, nullptr, slot);
    });
  };
  EXPECT_SAYS(select(0, 0.5, 0, 10), "empty");
  EXPECT_SAYS(select(std::size_t{1} << 32, 0.5, 0, 10), "4294967296");
  EXPECT_SAYS(select(10, 0.0, 0, 10), "density");
  EXPECT_SAYS(select(10, 1.5, 0, 10), "density");
  EXPECT_SAYS(select(10, std::nan(""), 0, 10), "density");
  EXPECT_SAYS(select(10, 0.5, 9, 10), "residual");
  EXPECT_SAYS(select(10, 0.5, 0, 4), "room for 4");
}

TEST(TopK, RefusesMemoryOnADevice) {
  const auto topk = MakeSparsifier("topk");
  ThreadPool pool(1);
  Workspace workspace;
  SelectCounters counters;
  Slot slot{{}, {}, 10, 0};
  float x[4] = {};
  const Stream cuda{{DeviceKind::kCuda, 0}, nullptr};
  ExpectError(FailureKind::kUnsupported, {}, [&] {
    topk->Select({&pool, &workspace, &counters, {}}, {{x, 4, cuda}, {}}, 0.5, {}, nullptr, slot);
  });
}

// Past 2^24 a float cannot count: an index or a count that passed through a float would show.
TEST(TopK, IsExactPast16777216Elements) {
  constexpr std::size_t kN = (std::size_t{1} << 24) + 1;
  std::vector<float> gradient(kN);
  for (std::size_t i = 0; i < kN; ++i) {
    gradient[i] = static_cast<float>((i * 2654435761u) & 0xffffff) + 1.0f;
  }
  gradient[kN - 1] = -1e9f;
  gradient[kN - 2] = 1e9f;
  Selection selection(MakeSparsifier("topk"), kN, 0.001, 2, false);
  const Selected selected = selection.Run(gradient, 0);
  const Selected expected = LargestByDefinition(gradient, kN / 1000);
  EXPECT_EQ(selected.indices, expected.indices);
  EXPECT_EQ(selected.indices.back(), kN - 1);
}

TEST(FindSparsifier, SuggestsTheNearestName) {
  EXPECT_EQ(FindSparsifier("topk").name, "topk");
  EXPECT_SAYS(ErrorOf([] { FindSparsifier("tokp"); }), "did you mean \"topk\"");
}

TEST(Workspace, KeepsAndGrowsAlignedBuffers) {
  Workspace workspace;
  const auto small = workspace.Get(kUseHistograms, 100);
  EXPECT_EQ(small.size(), 100u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data()) % 64, 0u);
  small[0] = std::byte{42};
  EXPECT_EQ(workspace.Get(kUseHistograms, 50).data(), small.data());
  EXPECT_EQ(workspace.Get(kUseHistograms, 50)[0], std::byte{42});
  EXPECT_NE(workspace.Get(kUseOffsets, 50).data(), small.data());
  EXPECT_EQ(workspace.Get(kUseHistograms, 100'000).size(), 100'000u);
}

}  // namespace
}  // namespace sparfuse::testing
