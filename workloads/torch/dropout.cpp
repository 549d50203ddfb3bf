#include "workloads/torch/dropout.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/torch/placement.hpp"

namespace sparfuse::workloads {

Dropout::Dropout(std::uint64_t seed, at::Device device, std::vector<DroppedFrom> ahead)
    : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)),
      seed_(seed),
      device_(device),
      asked_(std::move(ahead)) {
  for (const DroppedFrom& from : asked_) ahead_.push_back(Draw(from));
}

at::Tensor Dropout::Draw(const DroppedFrom& from) {
  const double kept = 1 - from.probability;
  const at::Tensor factors = at::empty_strided(from.shape, from.strides, at::kFloat);
  return CopyTo(device_, factors.bernoulli_(kept, generator_).div_(kept));
}

at::Tensor Dropout::operator()(const at::Tensor& x, double probability) {
  if (!generator_.defined() || probability == 0) return x;
  const DroppedFrom from{x.sizes().vec(),
                         at::empty_like(x, x.options().device(at::kMeta)).strides().vec(),
                         probability};
  at::Tensor factors;
  if (ahead_.empty()) {
    asked_.push_back(from);
    factors = Draw(from);
  } else {
    if (used_ == ahead_.size() || asked_[used_] != from) {
      SPARFUSE_THROW(kInternal, "a forward pass has other dropouts than the pass before it");
    }
    factors = std::exchange(ahead_[used_++], at::Tensor());
  }
  return (x * factors).to(x.scalar_type());
}

at::Tensor Dropout::OfMany(const at::Tensor& x, double probability) {
  if (!training() || probability == 0) return x;
  // Hashes the position and 32 bits of this call with lowbias32 (C. Wellons), in 64-bit integers.
  constexpr std::int64_t kLow = 0xffffffff;
  const auto key = static_cast<std::int64_t>(RandomBits(seed_, ++many_) & kLow);
  at::Tensor bits = at::arange(x.numel(), at::TensorOptions(at::kLong).device(device_));
  bits = (bits * 0x9e3779b9 + key).bitwise_and_(kLow);
  bits = (bits.bitwise_xor(bits.bitwise_right_shift(16)) * 0x7feb352d).bitwise_and_(kLow);
  bits = (bits.bitwise_xor(bits.bitwise_right_shift(15)) * 0x846ca68b).bitwise_and_(kLow);
  bits.bitwise_xor_(bits.bitwise_right_shift(16));
  const auto dropped = static_cast<std::int64_t>(probability * 4294967296.0);
  const at::Tensor factors = bits.ge(dropped).to(x.scalar_type()).div_(1 - probability);
  return x * factors.view(x.sizes());
}

}  // namespace sparfuse::workloads
