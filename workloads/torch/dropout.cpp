#include "workloads/torch/dropout.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "workloads/torch/placement.hpp"

namespace sparfuse::workloads {

Dropout::Dropout(std::uint64_t seed, at::Device device, std::vector<DroppedFrom> ahead)
    : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)),
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
      SPARFUSE_THROW(kInternal, "a forward pass drops otherwise than the one before it");
    }
    factors = std::exchange(ahead_[used_++], at::Tensor());
  }
  return (x * factors).to(x.scalar_type());
}

}  // namespace sparfuse::workloads
