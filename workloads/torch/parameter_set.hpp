// Holds the parameters of a model, made from its description and laid out as one flat array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/models/description.hpp"
#include "workloads/torch/pch.hpp"
#include "workloads/weights/weights.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {

class ParameterSet {
 public:
  // All parameters of `model` in registration order. They are views of one array, start at
  // multiples of 64 bytes and require gradients. Initial values come from `seed` alone, in that
  // order, drawn on the host and copied to the device.
  ParameterSet(const ModelDescription& model, std::uint64_t seed, at::Device device);

  const std::vector<ParameterInfo>& infos() const noexcept { return infos_; }
  const at::Tensor& tensor(std::size_t parameter) const { return tensors_[parameter]; }
  // Copies weights of a file into the parameters and statistics that `map` fills with them. Throws
  // Error{kData} for values that are none.
  void Fill(const WeightMap& map, const std::vector<StoredTensor>& tensors);
  // By name. Throws Error{kInternal} if the model has none of that name.
  const at::Tensor& operator[](std::string_view name) const;
  // The flat array with its padding, which is 0.
  const at::Tensor& flat() const noexcept { return flat_; }
  // See ModelDescription.
  bool has_published_values() const noexcept { return has_published_values_; }

  // Running means, [width] and first 0, and variances, first 1, of a batch normalisation.
  struct Running {
    at::Tensor mean, variance;
  };
  Running RunningOf(std::string_view batch_norm) const;
  // All of them, one after the other; empty if the model has none.
  const at::Tensor& statistics() const noexcept { return statistics_; }

 private:
  std::vector<ParameterInfo> infos_;
  std::vector<at::Tensor> tensors_;
  at::Tensor flat_;
  std::vector<std::pair<std::string, Running>> running_;  // views of statistics_
  at::Tensor statistics_;
  bool has_published_values_ = false;
};

}  // namespace sparfuse::workloads
