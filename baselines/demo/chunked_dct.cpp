#include "baselines/demo/chunked_dct.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <mutex>
#include <numbers>

#include "core/coding/quantizers/matrix_product.hpp"

namespace sparfuse {
namespace {

std::size_t LargestDivisor(std::size_t extent, std::size_t most) {
  for (std::size_t size = std::min(extent, most); size > 1; --size) {
    if (extent % size == 0) return size;
  }
  return 1;
}

}  // namespace

TileCut::TileCut(std::size_t extent, std::size_t target, TileRule rule)
    : size(rule == TileRule::kDivisor ? LargestDivisor(extent, target) : std::min(extent, target)) {
  if (extent == 0) return;
  whole = extent / size;
  rest = extent % size;
}

ChunkedDct::Basis::Basis(std::size_t size) : matrix(size * size), transposed(size * size) {
  const auto n = static_cast<double>(size);
  for (std::size_t k = 0; k < size; ++k) {
    const double scale = std::sqrt((k == 0 ? 1 : 2) / n);
    for (std::size_t i = 0; i < size; ++i) {
      const auto angle = static_cast<double>((2 * i + 1) * k) / (2 * n);
      const auto value = static_cast<float>(scale * std::cos(std::numbers::pi * angle));
      matrix[k * size + i] = transposed[i * size + k] = value;
    }
  }
}

ChunkedDct::ChunkedDct(std::span<const std::int64_t> shape, std::size_t elements,
                       std::size_t target, TileRule rule)
    : rows_(shape.size() < 2 ? 1 : static_cast<std::size_t>(shape[0])),
      cols_(rows_ == 0 ? 0 : elements / rows_),
      down_(rows_, target, rule),
      across_(cols_, target, rule) {
  assert(target >= 1 && target <= kMostOfTileSide);
}

std::size_t ChunkedDct::Kept(std::size_t most) const {
  const auto kept = [&](std::size_t height, std::size_t width) {
    return std::min(most, height * width);
  };
  return down_.whole *
             (across_.whole * kept(down_.size, across_.size) + kept(down_.size, across_.rest)) +
         across_.whole * kept(down_.rest, across_.size) + kept(down_.rest, across_.rest);
}

std::size_t ChunkedDct::Products() const {
  const auto of = [](const TileCut& cut) {
    return cut.whole * cut.size * cut.size + cut.rest * cut.rest;
  };
  return rows_ * of(across_) + (rows_ > 1 ? cols_ * of(down_) : 0);
}

const ChunkedDct::Basis& ChunkedDct::BasisOf(std::size_t size) {
  static std::array<std::once_flag, kMostOfTileSide + 1> made;
  // Never destroyed, because threads may be at work when the process ends.
  static std::array<const Basis*, kMostOfTileSide + 1> bases;
  std::call_once(made[size], [size] { bases[size] = new Basis(size); });
  return *bases[size];
}

template <class Work>
void ChunkedDct::ForPlaces(const Work& work) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < down_.count(); ++i) {
    for (std::size_t j = 0; j < across_.count(); ++j) {
      const Place place{i * down_.size, j * across_.size, down_.SizeOf(i), across_.SizeOf(j),
                        begin};
      work(place);
      begin += place.height * place.width;
    }
  }
}

void ChunkedDct::Forward(std::span<const float> x, std::span<float> coefficients) const {
  assert(x.size() == elements() && coefficients.size() == elements());
  std::array<float, kMostOfTileSide * kMostOfTileSide> half;
  ForPlaces([&](const Place& at) {
    const MatrixIn tile{x.data() + at.row * cols_ + at.col, cols_};
    float* const out = coefficients.data() + at.begin;
    const Basis& across = BasisOf(at.width);
    float* const rows = rows_ == 1 ? out : half.data();
    Multiply(tile, {across.transposed.data(), at.width}, at.height, at.width, at.width,
             {rows, at.width});
    if (rows_ == 1) return;
    const Basis& down = BasisOf(at.height);
    Multiply({down.matrix.data(), at.height}, {rows, at.width}, at.height, at.height, at.width,
             {out, at.width});
  });
}

void ChunkedDct::Inverse(std::span<const float> coefficients, std::span<float> x) const {
  assert(x.size() == elements() && coefficients.size() == elements());
  std::array<float, kMostOfTileSide * kMostOfTileSide> half;
  ForPlaces([&](const Place& at) {
    const float* const tile = coefficients.data() + at.begin;
    const MatrixOut out{x.data() + at.row * cols_ + at.col, cols_};
    const Basis& across = BasisOf(at.width);
    const MatrixIn back{across.matrix.data(), at.width};
    if (rows_ == 1) return Multiply({tile, at.width}, back, 1, at.width, at.width, out);
    for (std::size_t k = 0; k < at.height; ++k) {
      Multiply({tile + k * at.width, at.width}, back, 1, at.width, at.width,
               {half.data() + k * at.width, at.width});
    }
    const Basis& down = BasisOf(at.height);
    Multiply({down.transposed.data(), at.height}, {half.data(), at.width}, at.height, at.height,
             at.width, out);
  });
}

}  // namespace sparfuse
