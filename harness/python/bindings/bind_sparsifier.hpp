// Declares the class Sparsifier of Python, which other bindings take.
#pragma once

#include <memory>
#include <utility>

#include "harness/python/made_by_init.hpp"
#include "harness/python/selector.hpp"

namespace sparfuse::python {

struct BoundSparsifier : MadeByInit {
  explicit BoundSparsifier(std::shared_ptr<ConfiguredSparsifier> made)
      : configured(std::move(made)), selector(configured) {}

  std::shared_ptr<ConfiguredSparsifier> configured;
  ObjectMutex mutex;  // guards selector
  Selector selector;
};

}  // namespace sparfuse::python
