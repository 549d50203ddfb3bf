#include "baselines/powersgd/powersgd.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <string>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kPanel = 1024;        // the columns' part of a few rows stays in L1
constexpr std::size_t kPanelFloats = 4096;  // of Q, in ComputeQ: rank rows of a panel
constexpr std::size_t kMaxRows = 64;        // rows that share the sums of ComputeP
constexpr std::size_t kRowsPerSum = 256;    // added up in single precision before they join Q
constexpr std::size_t kTasksPerThread = 4;
// A column of P is dependent if less than this share of it lies outside the span of the others:
// that much is rounding.
constexpr double kDependentShare = 1e-6;

// Returns the part of `size` that a thread takes at once: a multiple of `multiple` up to `largest`.
std::size_t TaskSize(std::size_t size, std::size_t multiple, std::size_t largest, int threads) {
  const std::size_t tasks = threads == 1 ? 1 : static_cast<std::size_t>(threads) * kTasksPerThread;
  const std::size_t share = (size + tasks - 1) / tasks;
  return std::clamp((share + multiple - 1) / multiple * multiple, multiple, largest);
}

// Calls body(begin, end) for parts of [0, size) of at most `task` elements.
template <class Body>
void ForTasks(std::size_t size, std::size_t task, ThreadPool& pool, const Body& body) {
  pool.ParallelFor((size + task - 1) / task,
                   [&](std::size_t t, int) { body(t * task, std::min(size, (t + 1) * task)); });
}

float* ResidualOf(const SelectSource& source) {
  return source.residual.size == 0 ? nullptr : source.residual.data;
}

const float* InputOf(const SelectSource& source) {
  return source.residual.size == 0 ? source.gradient.data : source.residual.data;
}

double Dot(const double* a, const double* b, std::size_t n) {
  double sums[8] = {};
  for (std::size_t i = 0; i < n; ++i) sums[i % 8] += a[i] * b[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// Throws Error{kConfig} unless gradient, and residual if there is one, have n elements.
void CheckSource(const SelectSource& source, std::size_t n, const TensorInfo& info) {
  if (source.gradient.size == n && (source.residual.size == 0 || source.residual.size == n)) return;
  SPARFUSE_THROW(kConfig, "powersgd: tensor \"" + std::string(info.name) + "\": a gradient of " +
                              std::to_string(source.gradient.size) + " and a residual of " +
                              std::to_string(source.residual.size) + " elements; expected " +
                              std::to_string(n));
}

// Returns the stream that column c of Q is drawn from: element j is number j.
RandomStream ColumnStream(std::uint64_t seed, const TensorInfo& info, std::size_t c) {
  return {RandomStream(seed, info.id, info.step).At(c), info.id, info.step};
}

}  // namespace

LowRankShape LowRankShapeOf(std::span<const std::int64_t> shape, int rank) {
  assert(rank >= 1 && rank <= kMaxLowRank);
  if (shape.size() < 2) return {};
  LowRankShape matrix{static_cast<std::size_t>(shape[0]), 1, 0};
  for (const std::int64_t extent : shape.subspan(1))
    matrix.cols *= static_cast<std::size_t>(extent);
  matrix.rank = std::min({static_cast<std::size_t>(rank), matrix.rows, matrix.cols});
  return matrix;
}

bool PowerSgd::Compresses(std::span<const std::int64_t> shape, int rank) {
  const LowRankShape matrix = LowRankShapeOf(shape, rank);
  return matrix.rank > 0 && matrix.rank * (matrix.rows + matrix.cols) < matrix.rows * matrix.cols;
}

PowerSgd::PowerSgd(std::span<const std::int64_t> shape, int rank, std::uint64_t seed)
    : seed_(seed) {
  const LowRankShape matrix = LowRankShapeOf(shape, rank);
  rows_ = matrix.rows;
  cols_ = matrix.cols;
  rank_ = matrix.rank;
  p_ = Buffer<float>(rank_ * rows_);
  q_ = Buffer<float>(rank_ * cols_);
  basis_ = Buffer<double>(rank_ * rows_);
}

// Sums four uniform numbers: close to normal, and the same on every machine. Logarithms and cosines
// differ between libraries.
void PowerSgd::RedrawZeroColumns(const TensorInfo& info) {
  for (std::size_t c = 0; c < rank_; ++c) {
    const std::span<float> column = q().subspan(c * cols_, cols_);
    if (std::any_of(column.begin(), column.end(), [](float v) { return v != 0.0f; })) continue;
    const RandomStream stream = ColumnStream(seed_, info, c);
    for (std::size_t j = 0; j < cols_; ++j) {
      const std::uint64_t number = stream.At(j);
      std::int32_t sum = -2 * 65535;
      for (int part = 0; part < 64; part += 16) {
        sum += static_cast<std::int32_t>((number >> part) & 0xffff);
      }
      column[j] = static_cast<float>(sum) * 0x1p-15f;
    }
  }
}

void PowerSgd::ComputeP(const QuantizeContext& context, const SelectSource& source,
                        const TensorInfo& info) {
  const std::size_t n = rows_ * cols_;
  CheckSource(source, n, info);
  RedrawZeroColumns(info);
  const SelectKernels& select = SelectKernelsFor(ActiveIsa());
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  const float* const gradient = source.gradient.data;
  float* const residual = ResidualOf(source);
  const float* const x = InputOf(source);
  std::atomic<bool> finite{true};
  const std::size_t task = TaskSize(rows_, kLowRankRows, kMaxRows, context.pool->threads());
  ForTasks(rows_, task, *context.pool, [&](std::size_t begin, std::size_t end) {
    double sums[kMaxRows * kMaxLowRank] = {};
    std::uint32_t largest = 0;
    for (std::size_t j = 0; j < cols_; j += kPanel) {
      const std::size_t width = std::min(kPanel, cols_ - j);
      for (std::size_t i = begin; i < end; i += kLowRankRows) {
        const std::size_t height = std::min(kLowRankRows, end - i);
        for (std::size_t row = i; row < i + height; ++row) {
          const std::size_t at = row * cols_ + j;
          largest = std::max(
              largest,
              select.add(gradient + at, residual == nullptr ? nullptr : residual + at, width));
        }
        kernels.row_dots(x + i * cols_ + j, cols_, height, width, q_.data() + j, cols_, rank_,
                         sums + (i - begin) * rank_);
      }
    }
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t c = 0; c < rank_; ++c) {
        const auto sum = static_cast<float>(sums[(i - begin) * rank_ + c]);
        p_[c * rows_ + i] = sum;
        if (!std::isfinite(sum)) largest = kInfinityKey;
      }
    }
    if (largest >= kInfinityKey) finite.store(false, std::memory_order_relaxed);
  });
  if (finite) return;
  if (std::all_of(x, x + n, [](float v) { return std::isfinite(v); })) {
    SPARFUSE_THROW(kNumeric, "powersgd: tensor \"" + std::string(info.name) + "\", step " +
                                 std::to_string(info.step) +
                                 ": the product P = x Q overflows; expected smaller gradients");
  }
  ThrowNotFinite({gradient, residual, n, false}, info);
}

void PowerSgd::Orthonormalize() {
  std::copy(p().begin(), p().end(), basis_.data());
  for (std::size_t c = 0; c < rank_; ++c) {
    double* const column = basis_.data() + c * rows_;
    const double before = std::sqrt(Dot(column, column, rows_));
    // The second pass removes the rounding errors of the first.
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t other = 0; other < c; ++other) {
        const double* const unit = basis_.data() + other * rows_;
        const double along = Dot(unit, column, rows_);
        for (std::size_t i = 0; i < rows_; ++i) column[i] -= along * unit[i];
      }
    }
    const double norm = std::sqrt(Dot(column, column, rows_));
    const double factor = norm > kDependentShare * before ? 1 / norm : 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      column[i] *= factor;
      p_[c * rows_ + i] = static_cast<float>(column[i]);
    }
  }
}

void PowerSgd::ComputeQ(const QuantizeContext& context, const SelectSource& source) {
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  const float* const x = InputOf(source);
  const std::size_t widest = kPanelFloats / rank_;
  const std::size_t task = TaskSize(cols_, 16, widest / 16 * 16, context.pool->threads());
  ForTasks(cols_, task, *context.pool, [&](std::size_t begin, std::size_t end) {
    const std::size_t width = end - begin;
    float sums[kPanelFloats];
    for (std::size_t first = 0; first < rows_; first += kRowsPerSum) {
      const std::size_t last = std::min(rows_, first + kRowsPerSum);
      std::fill(sums, sums + rank_ * width, 0.0f);
      for (std::size_t i = first; i < last; i += kLowRankRows) {
        kernels.add_rows(x + i * cols_ + begin, cols_, std::min(kLowRankRows, last - i), width,
                         p_.data() + i, rows_, rank_, sums, width);
      }
      for (std::size_t c = 0; c < rank_; ++c) {
        float* const column = q_.data() + c * cols_ + begin;
        for (std::size_t j = 0; j < width; ++j) {
          column[j] = (first == 0 ? 0.0f : column[j]) + sums[c * width + j];
        }
      }
    }
  });
}

void PowerSgd::Reconstruct(const QuantizeContext& context, const SelectSource& source,
                           std::span<float> out) const {
  assert(out.size() == rows_ * cols_);
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  float* const residual = ResidualOf(source);
  const std::size_t task = TaskSize(rows_, 1, kMaxRows, context.pool->threads());
  ForTasks(rows_, task, *context.pool, [&](std::size_t begin, std::size_t end) {
    for (std::size_t j = 0; j < cols_; j += kPanel) {
      const std::size_t width = std::min(kPanel, cols_ - j);
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t at = i * cols_ + j;
        kernels.combine_rows(p_.data() + i, rows_, q_.data() + j, cols_, rank_, width,
                             out.data() + at, residual == nullptr ? nullptr : residual + at);
      }
    }
  });
}

const LowRankDescriptor& PowerSgdDescriptor() {
  static const LowRankDescriptor descriptor = {
      .name = "powersgd",
      .paper = "Vogels et al., NeurIPS 2019",
      .revision = 1,
      .deviations =
          "Matrices that are no larger than their factors are sent dense. Q starts from sums of "
          "four uniform numbers instead of normal ones. Columns of Q that became zero are drawn "
          "anew. A column of P that depends on those before it counts as zero.",
      .options = {WholeOption("rank", 4, 1, kMaxLowRank, "columns of the factors")}};
  return descriptor;
}

}  // namespace sparfuse
