// Declares the class Quantizer of Python, which other bindings take.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "harness/python/encoder.hpp"

namespace sparfuse::python {

struct BoundQuantizer {
  explicit BoundQuantizer(std::shared_ptr<const ConfiguredQuantizer> made)
      : configured(std::move(made)), encoder(configured) {}

  std::shared_ptr<const ConfiguredQuantizer> configured;
  std::mutex mutex;  // guards encoder
  Encoder encoder;
};

}  // namespace sparfuse::python
