// Tests DeMo: its transform against the definition in double precision, and its tiles. As a
// collective: a step by hand, its bytes, mass, and malformed payloads.
#include "baselines/demo/demo.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "baselines/demo/chunked_dct.hpp"
#include "baselines/registry.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Shape = std::vector<std::int64_t>;

double Norm(std::span<const float> x) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// The definition of the transform for one row.
std::vector<double> DctOf(std::span<const double> x) {
  const auto n = static_cast<double>(x.size());
  std::vector<double> out(x.size());
  for (std::size_t k = 0; k < x.size(); ++k) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      out[k] += x[i] * std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * k) / (2 * n));
    }
    out[k] *= std::sqrt((k == 0 ? 1 : 2) / n);
  }
  return out;
}

// Transforms rows, then columns.
std::vector<double> TileDct(std::vector<double> tile, std::size_t height, std::size_t width) {
  for (std::size_t i = 0; i < height; ++i) {
    const auto row = DctOf(std::span(tile).subspan(i * width, width));
    std::ranges::copy(row, tile.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  std::vector<double> column(height);
  for (std::size_t j = 0; j < width; ++j) {
    for (std::size_t i = 0; i < height; ++i) column[i] = tile[i * width + j];
    const auto transformed = DctOf(column);
    for (std::size_t i = 0; i < height; ++i) tile[i * width + j] = transformed[i];
  }
  return tile;
}

std::vector<float> Transformed(const ChunkedDct& dct, std::span<const float> x) {
  std::vector<float> out(x.size());
  dct.Forward(x, out);
  return out;
}

struct Cut {
  std::size_t begin, size;
};
std::vector<Cut> CutsOf(std::size_t extent, std::size_t target, TileRule rule) {
  const TileCut cut(extent, target, rule);
  std::vector<Cut> cuts;
  for (std::size_t t = 0; t < cut.count(); ++t) cuts.push_back({t * cut.size, cut.SizeOf(t)});
  return cuts;
}

TEST(ChunkedDct, IsTheOrthonormalTransform) {
  const std::vector<Shape> shapes = {{1},     {5},        {64},      {65},      {130},
                                     {1, 1},  {3, 5},     {64, 64},  {65, 130}, {1, 70},
                                     {70, 1}, {67, 7, 3}, {128, 128}};
  for (const Shape& shape : shapes) {
    for (const TileRule rule : {TileRule::kShort, TileRule::kDivisor}) {
      const std::size_t n = ElementsOf(shape);
      const std::size_t rows = shape.size() < 2 ? 1 : static_cast<std::size_t>(shape[0]);
      const std::size_t cols = n / rows;
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
      const ChunkedDct dct(shape, n, 64, rule);
      const std::vector<float> x = Noise(n, static_cast<unsigned>(n));
      const std::vector<float> got = Transformed(dct, x);
      std::size_t at = 0;
      for (const Cut& down : CutsOf(rows, 64, rule)) {
        for (const Cut& across : CutsOf(cols, 64, rule)) {
          std::vector<double> tile;
          for (std::size_t i = 0; i < down.size; ++i) {
            for (std::size_t j = 0; j < across.size; ++j) {
              tile.push_back(x[(down.begin + i) * cols + across.begin + j]);
            }
          }
          double norm = 0;
          for (const double value : tile) norm += value * value;
          norm = std::sqrt(norm);
          const std::vector<double> expected = TileDct(tile, down.size, across.size);
          const auto own = std::span(got).subspan(at, tile.size());
          double error = 0;
          for (std::size_t i = 0; i < tile.size(); ++i) {
            error += (own[i] - expected[i]) * (own[i] - expected[i]);
          }
          EXPECT_LE(std::sqrt(error), 2e-6 * norm);
          EXPECT_NEAR(Norm(own) / norm, 1, 1e-6);  // Parseval
          at += tile.size();
        }
      }
      EXPECT_EQ(at, n);
      std::vector<float> back(n);
      dct.Inverse(got, back);
      for (std::size_t i = 0; i < n; ++i) back[i] -= x[i];
      EXPECT_LE(Norm(back), 2e-6 * Norm(x));
    }
  }
}

TEST(ChunkedDct, GoldenNumbers) {
  const std::vector<float> row = Transformed({{}, 4, 64, TileRule::kShort}, {{1, 2, 3, 4}});
  const std::vector<double> expected = {5, -2.2304424974, 0, -0.1585126678};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(row[i], expected[i], 1e-6);
  const Shape shape = {2, 4};
  const ChunkedDct tiles(shape, 8, 2, TileRule::kShort);
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> got = Transformed(tiles, x);
  const std::vector<double> four = {7, -1, -4, 0, 11, -1, -4, 0};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(got[i], four[i], 2e-6);
}

// Most coefficients are zero and partly skipped; the result must not change.
TEST(ChunkedDct, AFewCoefficientsComeBackAsTheSumOfTheirWaves) {
  const Shape shape = {64, 64};
  const ChunkedDct dct(shape, 4096, 64, TileRule::kShort);
  std::vector<float> few(4096), sum(4096), wave(4096), one(4096);
  for (const std::size_t at : {0, 1, 63, 64, 700, 4095}) {
    few[at] = static_cast<float>(at + 1);
    one.assign(4096, 0);
    one[at] = few[at];
    dct.Inverse(one, wave);
    for (std::size_t i = 0; i < 4096; ++i) sum[i] += wave[i];
  }
  std::vector<float> got(4096);
  dct.Inverse(few, got);
  for (std::size_t i = 0; i < 4096; ++i) EXPECT_NEAR(got[i], sum[i], 2e-6 * 4200);
}

TEST(ChunkedDct, TilesAreShorterAtTheEndOrDivideTheDimension) {
  const TileCut shorter(130, 64, TileRule::kShort);
  EXPECT_EQ(shorter.count(), 3u);
  EXPECT_EQ(shorter.SizeOf(2), 2u);
  for (const auto& [extent, size] : std::vector<std::pair<std::size_t, std::size_t>>{
           {50'257, 29}, {67, 1}, {64, 64}, {768, 64}, {100, 50}, {7, 7}}) {
    const TileCut divides(extent, 64, TileRule::kDivisor);
    EXPECT_EQ(divides.size, size) << extent;
    EXPECT_EQ(divides.whole, extent / size);
    EXPECT_EQ(divides.rest, 0u);
  }
  // 2 x 3 tiles; the last column has tiles of 64 x 2, and the last row tiles of 6 x 64 and 6 x 2.
  const Shape shape = {70, 130};
  const ChunkedDct dct(shape, 70 * 130, 64, TileRule::kShort);
  EXPECT_EQ(dct.tiles(), 6u);
  EXPECT_EQ(dct.Kept(32), 5 * 32u + 12);
  std::size_t tiles = 0, elements = 0;
  dct.ForTiles([&](std::size_t begin, std::size_t size) {
    EXPECT_EQ(begin, elements);
    ++tiles;
    elements += size;
  });
  EXPECT_EQ(tiles, 6u);
  EXPECT_EQ(elements, 70 * 130u);
}

std::unique_ptr<Collective> MakeDemo(Options options) {
  return MakeCollective(FindCollective("demo-coefficients"), options);
}

Sent All(const Vectors& x, std::vector<ExchangedTensor> tensors = {}) {
  return Accumulated(x, x[0].size(), std::move(tensors));
}

TEST(Demo, AStepByHand) {
  // The momenta are 0 and the gradients half their size.
  const Vectors x = {{0.5f, 1, 1.5f, 2}, {2, -1, 0, 1}};
  const std::vector<std::vector<double>> left = {{-0.75, -0.25, 0.25, 0.75}, {1, 0, 1, 0}};
  const std::vector<double> q = {2.25, 0.25, 0.25, 2.25};
  for (const char* combine : {"ranks", "senders"}) {
    SCOPED_TRACE(combine);
    const auto collective = MakeDemo({{"k", std::int64_t{1}}, {"combine", std::string(combine)}});
    const auto outcomes = RunExchanges(*collective, {All(x)})[0];
    // A sum over ranks, which is divided by two.
    const double times = std::string(combine) == "ranks" ? 1 : 2;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(outcomes[rank].applied[i], times * q[i], 1e-6);
        EXPECT_NEAR(x[rank][i] + outcomes[rank].returned[i], left[rank][i], 1e-6);
      }
    }
  }
}

// If all ranks send a coefficient, both means are equal.
TEST(Demo, AMeanOverAllSendersIsThatOverRanks) {
  const Vectors x = {{3, 3, 3, 3}, {1, 1, 1, 1}};
  for (const char* combine : {"ranks", "senders"}) {
    const auto outcomes = RunExchanges(
        *MakeDemo({{"k", std::int64_t{1}}, {"combine", std::string(combine)}}), {All(x)})[0];
    EXPECT_NEAR(outcomes[0].applied[2], 4, 1e-6) << combine;
  }
}

TEST(Demo, KeepsWhatItDoesNotSendAndCountsItsBytes) {
  constexpr std::size_t kRanks = 3;
  const std::vector<Shape> shapes = {{70, 130}, {33}, {8, 3, 3}, {}};
  std::vector<ExchangedTensor> tensors;
  std::size_t n = 0, count = 0;
  for (const Shape& shape : shapes) {
    const auto id = static_cast<std::uint32_t>(tensors.size());
    tensors.push_back({id, n, ElementsOf(shape), shape});
    count += ChunkedDct(shape, ElementsOf(shape), 64, TileRule::kShort).Kept(32);
    n += ElementsOf(shape) + 2;  // a gap
  }
  EXPECT_EQ(count, 5 * 32u + 12 + 32 + 32 + 1);
  EXPECT_EQ(baselines::CoefficientBytes(count), (count * 12 + 31) / 32 * 4 + 4 * count);
  Vectors x;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    x.push_back(Noise(n, static_cast<unsigned>(rank + 1)));
    for (const ExchangedTensor& tensor : tensors) {
      std::fill_n(x.back().begin() + static_cast<std::ptrdiff_t>(tensor.begin + tensor.numel), 2,
                  0.0f);
    }
  }
  const Sent sent = All(x, tensors);
  const auto collective = MakeDemo({});
  const auto outcomes = RunExchanges(*collective, {sent})[0];
  std::vector<float> lost(n);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = outcomes[0].applied[i];
    for (const Outcome& outcome : outcomes) sum += outcome.returned[i];
    lost[i] = static_cast<float>(sum);
  }
  EXPECT_LE(Norm(lost), 2e-6 * Norm(x[0]) * kRanks);
  EXPECT_GT(Norm(outcomes[0].applied), 0.1 * Norm(x[0]));
  ExpectCounted(*collective, sent, 0, outcomes, {kRanks, 1});
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, outcomes[0].applied);
    EXPECT_EQ(outcome.traffic.bytes_sent, (kRanks - 1) * baselines::CoefficientBytes(count));
  }
}

// With all coefficients of every tile, the result is the sum.
TEST(Demo, SendsAllOfATileOfFewerThanK) {
  const Vectors x = Noises(2, 40, 1);
  const auto outcomes = RunExchanges(*MakeDemo({{"k", std::int64_t{64}}}), {All(x)})[0];
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_NEAR(outcomes[1].applied[i], x[0][i] + x[1][i], 1e-5);
    EXPECT_NEAR(x[1][i] + outcomes[1].returned[i], 0, 1e-5);
  }
}

TEST(Demo, RefusesPayloadsOfOtherTiles) {
  ExpectError(FailureKind::kComm, {"payload of rank 1: index 3 in a tile of 2"}, [&] {
    RunUnlike({{1, -1, 1, -1}, {1, -1, 1, -1}}, [](std::int64_t rank) {
      return std::pair(MakeDemo({{"k", rank + 1}, {"tile", 2 * (rank + 1)}}), ExchangeShape{4, 4});
    });
  });
}

TEST(Demo, RefusesWhatOverflows) {
  const std::vector<float> huge(64, 3e38f);
  EXPECT_THROW(RunExchanges(*MakeDemo({}), {All({huge})}), Error);
}

}  // namespace
}  // namespace sparfuse::testing
