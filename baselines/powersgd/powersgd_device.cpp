#include "baselines/powersgd/powersgd_device.hpp"

#include <cassert>

#include "baselines/powersgd/powersgd_kernels.hpp"
#include "core/base/random_stream.hpp"
#include "core/device/launch.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {
namespace {

const float* InputOf(const SelectSource& source) {
  return source.residual.size == 0 ? source.gradient.data : source.residual.data;
}

}  // namespace

PowerSgdOnDevice::PowerSgdOnDevice(std::span<const std::int64_t> shape, int rank,
                                   std::uint64_t seed, Device device, MatrixMultiplier& multiplier)
    : seed_(seed), multiplier_(multiplier) {
  const LowRankShape matrix = LowRankShapeOf(shape, rank);
  rows_ = matrix.rows;
  cols_ = matrix.cols;
  rank_ = matrix.rank;
  p_ = Buffer<float>(rank_ * rows_, device, "PowerSGD's P");
  q_ = Buffer<float>(rank_ * cols_, device, "PowerSGD's Q");
  basis_ = Buffer<double>(rank_ * rows_, device, "PowerSGD's basis");
}

void PowerSgdOnDevice::ComputeP(const Stream& stream, const SelectSource& source,
                                const TensorInfo& info, std::uint32_t* not_finite) {
  CheckLowRankSource(source, rows_ * cols_, info);
  gpu::RedrawColumns redraw{q_.data(), cols_, {}};
  for (std::size_t c = 0; c < rank_; ++c) redraw.keys.of[c] = ColumnStream(seed_, info, c).key();
  gpu::Launch(stream, rank_, redraw);
  if (source.residual.size > 0) AddIntoOnDevice(stream, source.gradient, source.residual);
  // Row by row is column by column of the transpose, so x is [cols x rows].
  multiplier_.Multiply(stream, {.transpose_a = true,
                                .transpose_b = false,
                                .m = rows_,
                                .n = rank_,
                                .k = cols_,
                                .a = InputOf(source),
                                .a_stride = cols_,
                                .b = q_.data(),
                                .b_stride = cols_,
                                .c = p_.data(),
                                .c_stride = rows_});
  gpu::Launch(stream,
              (rank_ * rows_ + gpu::CheckProduct::kThreads - 1) / gpu::CheckProduct::kThreads,
              gpu::CheckProduct{p_.data(), rows_, cols_, rank_, not_finite});
}

void PowerSgdOnDevice::Orthonormalize(const Stream& stream) {
  gpu::Launch(stream, 1,
              gpu::OrthonormalizeColumns{p_.data(), basis_.data(), rows_,
                                         static_cast<std::uint32_t>(rank_), kDependentShare});
}

void PowerSgdOnDevice::ComputeQ(const Stream& stream, const SelectSource& source) {
  multiplier_.Multiply(stream, {.transpose_a = false,
                                .transpose_b = false,
                                .m = cols_,
                                .n = rank_,
                                .k = rows_,
                                .a = InputOf(source),
                                .a_stride = cols_,
                                .b = p_.data(),
                                .b_stride = rows_,
                                .c = q_.data(),
                                .c_stride = cols_});
}

void PowerSgdOnDevice::Reconstruct(const Stream& stream, const SelectSource& source,
                                   DeviceSpan<float> out) const {
  assert(out.size == rows_ * cols_);
  float* const residual = source.residual.size == 0 ? nullptr : source.residual.data;
  const gpu::Quads quads = gpu::QuadsOf(cols_, out.data, residual, q_.data());
  const bool aligned = quads.whole > 0 && quads.skew == 0 && cols_ % 4 == 0;
  const gpu::ReconstructRows kernel{p_.data(),
                                    q_.data(),
                                    rows_,
                                    cols_,
                                    static_cast<std::uint32_t>(rank_),
                                    gpu::Quads(cols_, 0, aligned),
                                    out.data,
                                    residual};
  gpu::Launch(stream, kernel.Blocks(), kernel);
}

}  // namespace sparfuse
