#include "workloads/parameter_set.hpp"

#include <utility>

namespace sparfuse {
namespace {

constexpr std::size_t kAlignment = 16;  // elements

}  // namespace

ParameterSet::ParameterSet(std::uint64_t seed)
    : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

at::Tensor ParameterSet::Normal(std::string name, std::vector<std::int64_t> shape,
                                double standard_deviation) {
  at::Tensor values = at::empty(shape, at::kFloat);
  values.normal_(0.0, standard_deviation, generator_);
  return Add(std::move(name), std::move(shape), std::move(values));
}

at::Tensor ParameterSet::Constant(std::string name, std::vector<std::int64_t> shape, double value) {
  at::Tensor values = at::full(shape, value, at::kFloat);
  return Add(std::move(name), std::move(shape), std::move(values));
}

at::Tensor ParameterSet::Add(std::string name, std::vector<std::int64_t> shape, at::Tensor values) {
  ParameterInfo info;
  info.name = std::move(name);
  info.shape = std::move(shape);
  info.numel = static_cast<std::size_t>(values.numel());
  if (!infos_.empty()) {
    const std::size_t end = infos_.back().offset + infos_.back().numel;
    info.offset = (end + kAlignment - 1) / kAlignment * kAlignment;
  }
  infos_.push_back(std::move(info));
  tensors_.push_back(values);
  return values;
}

void ParameterSet::Flatten() {
  const std::size_t end = infos_.back().offset + infos_.back().numel;
  flat_ = at::zeros({static_cast<std::int64_t>(end)}, at::kFloat);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor view = flat_
                                .narrow(0, static_cast<std::int64_t>(infos_[i].offset),
                                        static_cast<std::int64_t>(infos_[i].numel))
                                .view(infos_[i].shape);
    view.copy_(tensors_[i]);
    tensors_[i].set_data(view);
    tensors_[i].set_requires_grad(true);
  }
}

std::span<float> ParameterSet::flat() {
  return {flat_.mutable_data_ptr<float>(), static_cast<std::size_t>(flat_.numel())};
}

}  // namespace sparfuse
