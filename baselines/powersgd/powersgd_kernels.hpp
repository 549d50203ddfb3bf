// Holds the kernels of powersgd_device.hpp, beside the two products.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "baselines/powersgd/powersgd.hpp"
#include "core/device/kernel.hpp"
#include "core/device/quads.hpp"
#include "core/payload/accumulate_kernels.hpp"
#include "core/quantize/scalar_codes.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse::gpu {

// Notes the first element of a row whose product is not finite: as x is there, or the product
// overflows.
struct CheckProduct {
  static constexpr const char* kName = "CheckProduct";
  static constexpr int kThreads = 256;
  using Shared = NoShared;
  const float* p;  // [rank * rows]
  std::size_t rows;
  std::size_t cols;
  std::size_t rank;
  std::uint32_t* not_finite;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared&) const {
    const std::size_t i = std::size_t{block.block()} * kThreads + block.thread();
    if (i >= rank * rows || IsFinite(p[i])) return;
    block.AtomicMax(not_finite, NotFiniteCode(static_cast<std::uint32_t>(i % rows * cols)));
  }
};

struct ColumnKeys {
  std::uint64_t of[kMaxLowRank];
};

// A block looks at a column of Q, and draws it anew where it is zero.
struct RedrawColumns {
  static constexpr const char* kName = "RedrawColumns";
  static constexpr int kThreads = 256;
  using Shared = NoShared;
  float* q;  // [rank * cols]
  std::size_t cols;
  ColumnKeys keys;  // of RandomStreams

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared&) const {
    float* const column = q + block.block() * cols;
    std::uint32_t something = 0;
    for (std::size_t j = block.thread(); j < cols; j += kThreads) something |= column[j] != 0.0f;
    if (block.Max(something) != 0) return;
    for (std::size_t j = block.thread(); j < cols; j += kThreads) {
      const std::uint64_t number = RandomAt(keys.of[block.block()], j);
      std::int32_t sum = -2 * 65535;
      for (int part = 0; part < 64; part += 16) {
        sum += static_cast<std::int32_t>((number >> part) & 0xffff);
      }
      column[j] = static_cast<float>(sum) * 0x1p-15f;
    }
  }
};

// One block. Each column gives up what lies along those before it, all at once and then a second
// time for what rounding left. A thread has some rows of its own throughout; only sums are shared.
//
// Some 2 * rank^2 reads of a column from the caches of one multiprocessor, at about 100 GB/s: 10 us
// for 4096 rows of rank 4.
struct OrthonormalizeColumns {
  static constexpr const char* kName = "OrthonormalizeColumns";
  static constexpr int kThreads = 512;
  struct Shared {
    double along[kMaxLowRank];
  };
  float* p;       // [rank * rows]
  double* basis;  // [rank * rows]
  std::size_t rows;
  std::uint32_t rank;
  double dependent;  // share of a column below which what is left is rounding

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    for (std::uint32_t c = 0; c < rank; ++c) {
      double* const column = basis + c * rows;
      float* const out = p + c * rows;
      for (std::size_t i = block.thread(); i < rows; i += kThreads) column[i] = out[i];
      const double before = Dot(block, column, column);
      for (int pass = 0; pass < 2; ++pass) {
        for (std::uint32_t other = 0; other < c; ++other) {
          const double along = Dot(block, basis + other * rows, column);
          if (block.thread() == 0) shared.along[other] = along;
        }
        block.Sync();
        for (std::size_t i = block.thread(); i < rows; i += kThreads) {
          double value = column[i];
          for (std::uint32_t other = 0; other < c; ++other) {
            value -= shared.along[other] * basis[other * rows + i];
          }
          column[i] = value;
        }
        block.Sync();
      }
      const double norm = std::sqrt(Dot(block, column, column));
      const double factor = norm > dependent * std::sqrt(before) ? 1 / norm : 0;
      for (std::size_t i = block.thread(); i < rows; i += kThreads) {
        column[i] *= factor;
        out[i] = static_cast<float>(column[i]);
      }
    }
  }

 private:
  template <class Block>
  SPARFUSE_DEVICE double Dot(Block& block, const double* a, const double* b) const {
    double sum = 0;
    for (std::size_t i = block.thread(); i < rows; i += kThreads) sum += a[i] * b[i];
    return block.Sum(sum);
  }
};

// out = P Q' and residual -= out: three streams, with a residual. A thread has four columns of
// kRows rows.
struct ReconstructRows {
  static constexpr const char* kName = "ReconstructRows";
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kRows = 4;
  using Shared = NoShared;
  const float* p;
  const float* q;
  std::size_t rows;
  std::size_t cols;
  std::uint32_t rank;
  Quads row;  // of all matrices
  float* out;
  float* residual;  // or null

  std::size_t Blocks() const {
    return (std::size_t{row.count()} * ((rows + kRows - 1) / kRows) + kThreads - 1) / kThreads;
  }

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared&) const {
    const std::size_t item = std::size_t{block.block()} * kThreads + block.thread();
    const std::size_t first = item / row.count() * kRows;
    const auto quad = static_cast<std::uint32_t>(item % row.count());
    if (first >= rows) return;
    Float4 kept[kRows] = {};
    Float4 sums[kRows];
    for (std::uint32_t r = 0; r < kRows; ++r) {
      if (residual != nullptr && first + r < rows) {
        kept[r] = row.Load(residual + (first + r) * cols, quad);
      }
    }
    for (std::uint32_t c = 0; c < rank; ++c) {
      const Float4 factors = row.Load(q + c * cols, quad);
      for (std::uint32_t r = 0; r < kRows; ++r) {
        const float factor = first + r < rows ? p[c * rows + first + r] : 0.0f;
        for (int v = 0; v < 4; ++v) {
          const float term = factor * factors.v[v];
          sums[r].v[v] = c == 0 ? term : sums[r].v[v] + term;
        }
      }
    }
    for (std::uint32_t r = 0; r < kRows; ++r) {
      if (first + r >= rows) break;
      row.Store(out + (first + r) * cols, quad, sums[r]);
      if (residual == nullptr) continue;
      for (int v = 0; v < 4; ++v) kept[r].v[v] -= sums[r].v[v];
      row.Store(residual + (first + r) * cols, quad, kept[r]);
    }
  }
};

}  // namespace sparfuse::gpu
