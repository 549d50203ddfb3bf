// Declares the class Sparsifier of Python, which other bindings take.
#pragma once

#include <memory>
#include <utility>

#include "harness/python/selector.hpp"

namespace sparfuse::python {

struct BoundSparsifier {
  explicit BoundSparsifier(std::shared_ptr<ConfiguredSparsifier> made)
      : configured(std::move(made)), selector(configured) {}

  std::shared_ptr<ConfiguredSparsifier> configured;
  ObjectMutex mutex;  // guards selector
  Selector selector;
};

}  // namespace sparfuse::python
