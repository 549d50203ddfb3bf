// Holds what an object that quantizes works with: quantizer, workspace, tensors and their lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/python/arrays.hpp"
#include "harness/python/catalog.hpp"

namespace sparfuse::python {

// A quantizer that counts the steps of tensors, by name. Not thread-safe; needs no GIL.
class Encoder {
 public:
  explicit Encoder(std::shared_ptr<const ConfiguredQuantizer> configured)
      : configured_(std::move(configured)) {}

  // Arguments and step as in Selector::Select. Throws what Quantizer::Encode does; Error{kConfig}
  // if the tensor had another shape before. After an error the step is not counted.
  ArrayMemory<std::uint8_t> Encode(const std::string& tensor, std::span<const std::int64_t> shape,
                                   std::span<const float> gradient, std::span<float> residual,
                                   std::optional<std::uint64_t> step);

  // The step that Encode would be given.
  std::uint64_t StepOf(const std::string& tensor, std::optional<std::uint64_t> step) const;

 private:
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::uint64_t next_step = 0;
  };

  std::shared_ptr<const ConfiguredQuantizer> configured_;
  Workspace workspace_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace sparfuse::python
