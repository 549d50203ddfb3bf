#include "workloads/torch/parameter_set.hpp"

#include <cmath>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kAlignment = 16;  // elements

}  // namespace

ParameterSet::ParameterSet(const ModelDescription& model, std::uint64_t seed, at::Device device)
    : has_published_values_(model.has_published_values) {
  std::size_t end = 0;
  for (const ParameterDescription& parameter : model.parameters()) {
    const std::size_t offset = (end + kAlignment - 1) / kAlignment * kAlignment;
    infos_.push_back({parameter.name, parameter.shape, parameter.numel(), offset});
    end = offset + parameter.numel();
  }
  flat_ = at::zeros({static_cast<std::int64_t>(end)}, at::kFloat);
  const auto view = [&](std::size_t i) {
    return flat_
        .narrow(0, static_cast<std::int64_t>(infos_[i].offset),
                static_cast<std::int64_t>(infos_[i].numel))
        .view(infos_[i].shape);
  };
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (std::size_t i = 0; i < infos_.size(); ++i) {
    const ParameterDescription& parameter = model.parameters()[i];
    if (parameter.deviation > 0 && parameter.uniform) {
      const double bound = std::sqrt(3.0) * parameter.deviation;
      view(i).uniform_(parameter.mean - bound, parameter.mean + bound, generator);
    } else if (parameter.deviation > 0) {
      view(i).normal_(parameter.mean, parameter.deviation, generator);
    } else {
      view(i).fill_(parameter.mean);
    }
  }
  flat_ = flat_.to(device);
  for (std::size_t i = 0; i < infos_.size(); ++i) {
    at::Tensor tensor = at::empty({0}, flat_.options());  // a leaf; a view is none
    tensor.set_data(view(i));
    tensor.set_requires_grad(true);
    tensors_.push_back(std::move(tensor));
  }
  std::int64_t kept = 0;
  for (const RunningStatistics& norm : model.statistics()) kept += 2 * norm.width;
  statistics_ = at::zeros({kept}, flat_.options());
  kept = 0;
  for (const RunningStatistics& norm : model.statistics()) {
    const at::Tensor both = statistics_.narrow(0, kept, 2 * norm.width).view({2, norm.width});
    both[1].fill_(1);
    running_.push_back({norm.name, {both[0], both[1]}});
    kept += 2 * norm.width;
  }
}

void ParameterSet::Fill(const WeightMap& map, const std::vector<StoredTensor>& tensors) {
  const at::NoGradGuard no_graph;
  for (const WeightMap::Filled& filled : map.filled) {
    const StoredTensor& stored = tensors[filled.tensor];
    std::vector<float> values = ValuesOf(stored);
    at::Tensor value = at::from_blob(values.data(), stored.shape, at::kFloat);
    if (filled.transposed) value = value.t();
    const std::string& name = filled.parameter;
    at::Tensor to;
    if (filled.statistic) {
      const std::size_t dot = name.rfind('.');
      const Running running = RunningOf(std::string_view(name).substr(0, dot));
      to = name.substr(dot) == ".running_mean" ? running.mean : running.variance;
    } else {
      to = (*this)[name];
    }
    if (filled.padded) {
      to.zero_();
      to = to.narrow(0, 0, value.size(0));
    }
    to.copy_(value);
  }
}

ParameterSet::Running ParameterSet::RunningOf(std::string_view batch_norm) const {
  for (const auto& [name, running] : running_) {
    if (name == batch_norm) return running;
  }
  SPARFUSE_THROW(kInternal,
                 "the model has no batch normalisation \"" + std::string(batch_norm) + "\"");
}

const at::Tensor& ParameterSet::operator[](std::string_view name) const {
  for (std::size_t i = 0; i < infos_.size(); ++i) {
    if (infos_[i].name == name) return tensors_[i];
  }
  SPARFUSE_THROW(kInternal, "the model has no parameter \"" + std::string(name) + "\"");
}

}  // namespace sparfuse::workloads
