// Declares the class Quantizer of Python, which other bindings take.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "harness/python/encoder.hpp"
#include "harness/python/made_by_init.hpp"

namespace sparfuse::python {

struct BoundQuantizer : MadeByInit {
  explicit BoundQuantizer(std::shared_ptr<const ConfiguredQuantizer> made)
      : configured(std::move(made)), encoder(configured) {}

  std::shared_ptr<const ConfiguredQuantizer> configured;
  std::mutex mutex;  // guards encoder
  Encoder encoder;
};

}  // namespace sparfuse::python
