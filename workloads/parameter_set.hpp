// The parameters of a model, declared one by one and then laid out as one flat array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workloads/pch.hpp"
#include "workloads/workload.hpp"

namespace sparfuse {

class ParameterSet {
 public:
  // Initial values come from `seed` alone, in the order of declaration.
  explicit ParameterSet(std::uint64_t seed);

  // Declare a parameter: zero-mean normal values, or one value everywhere. The handle that is
  // returned stays good after Flatten.
  at::Tensor Normal(std::string name, std::vector<std::int64_t> shape, double standard_deviation);
  at::Tensor Constant(std::string name, std::vector<std::int64_t> shape, double value);

  // Moves all values into one array, each parameter starting at a multiple of 64 bytes, and makes
  // the parameters views of it that require gradients. Once, after the last declaration.
  void Flatten();

  const std::vector<ParameterInfo>& infos() const noexcept { return infos_; }
  const at::Tensor& tensor(std::size_t parameter) const { return tensors_[parameter]; }
  // The flat array with its padding; after Flatten.
  std::span<float> flat();

 private:
  at::Tensor Add(std::string name, std::vector<std::int64_t> shape, at::Tensor values);

  at::Generator generator_;
  std::vector<ParameterInfo> infos_;
  std::vector<at::Tensor> tensors_;
  at::Tensor flat_;
};

}  // namespace sparfuse
