// Transforms the tiles of a tensor by the orthonormal cosine transform (DCT-II), and back.
//
// Source:      B. Peng, J. Quesnelle & D. P. Kingma, DeMo: Decoupled Momentum Optimization, arXiv
//              2411.19870, section 3.
// Deviations:  the last tile of a dimension may be shorter than the others.
//
// X_k = s_k sum over i of x_i cos(pi (2 i + 1) k / 2 N), s_0 = sqrt(1 / N), else sqrt(2 / N). Of a
// tile of two dimensions first the rows, then the columns. The inverse is the transpose, so that
// tiles keep their norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sparfuse {

inline constexpr std::size_t kMostOfTileSide = 64;  // 12 bits tell the coefficients of a tile apart

// How dimensions are cut into tiles of a target's size.
enum class TileRule : std::uint8_t {
  kShort,    // the last one is shorter
  kDivisor,  // of the largest size up to the target that divides the dimension
};

// Along one dimension: `whole` of `size`, then one of `rest`, unless that is 0.
struct TileCut {
  TileCut(std::size_t extent, std::size_t target, TileRule rule);

  std::size_t size = 0;
  std::size_t whole = 0;
  std::size_t rest = 0;

  std::size_t count() const { return whole + (rest > 0 ? 1 : 0); }
  std::size_t SizeOf(std::size_t tile) const { return tile < whole ? size : rest; }
};

class ChunkedDct {
 public:
  // A tensor as a matrix of its first dimension times the rest, row-major; of fewer than two
  // dimensions a row. target: in [1, kMostOfTileSide], of both sides of a tile.
  ChunkedDct(std::span<const std::int64_t> shape, std::size_t elements, std::size_t target,
             TileRule rule);

  std::size_t elements() const { return rows_ * cols_; }
  std::size_t tiles() const { return down_.count() * across_.count(); }
  // Elements of the largest tile.
  std::size_t largest_tile() const { return down_.size * across_.size; }
  // sum over tiles of min(most, elements of the tile)
  std::size_t Kept(std::size_t most) const;
  // Multiplications of a transform of all tiles.
  std::size_t Products() const;

  // Calls visit(begin, size) for each tile, in the order of coefficients: of a tile of w columns,
  // coefficient (k, l) is at begin + k w + l.
  template <class Visit>
  void ForTiles(const Visit& visit) const {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < down_.count(); ++i) {
      for (std::size_t j = 0; j < across_.count(); ++j) {
        const std::size_t size = down_.SizeOf(i) * across_.SizeOf(j);
        visit(begin, size);
        begin += size;
      }
    }
  }

  // x, coefficients: [elements()], must not overlap. Deterministic, the same bits with every
  // instruction set. The error is below 2e-6 of the norm of a tile.
  void Forward(std::span<const float> x, std::span<float> coefficients) const;
  // Takes less time if most coefficients are zero.
  void Inverse(std::span<const float> coefficients, std::span<float> x) const;

 private:
  // The transform of one size as a matrix, and its transpose.
  struct Basis {
    explicit Basis(std::size_t size);
    std::vector<float> matrix, transposed;
  };
  // Made once for all tensors, since thousands of them have tiles of few sizes.
  static const Basis& BasisOf(std::size_t size);
  struct Place {
    std::size_t row, col, height, width, begin;
  };
  template <class Work>
  void ForPlaces(const Work& work) const;

  std::size_t rows_ = 1;
  std::size_t cols_ = 0;
  TileCut down_, across_;
};

}  // namespace sparfuse
