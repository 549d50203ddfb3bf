#include "core/fusion/ready_tensors.hpp"

#include <cmath>
#include <string>

#include "core/base/error.hpp"
#include "core/base/options.hpp"

namespace sparfuse {

void CheckReadyTensors(const ReadyTensors& tensors, std::string_view solver) {
  const std::string owner(solver);
  const std::size_t count = tensors.elements.size();
  SPARFUSE_REQUIRE(count > 0, owner + ": elements is empty: expected those of a tensor or more");
  SPARFUSE_REQUIRE(tensors.backward_seconds.size() == count,
                   owner + ": backward_seconds has " +
                       std::to_string(tensors.backward_seconds.size()) +
                       " numbers; expected one a tensor, " + std::to_string(count));
  for (std::size_t t = 0; t < count; ++t) {
    const std::string at = std::string("[") + std::to_string(t) + "]";
    SPARFUSE_REQUIRE(tensors.elements[t] > 0,
                     owner + ": elements" + at + " = 0: expected at least 1");
    RequireSeconds(solver, "backward_seconds" + at, tensors.backward_seconds[t]);
  }
}

void RequireSeconds(std::string_view solver, std::string_view key, double value) {
  SPARFUSE_REQUIRE(std::isfinite(value) && value >= 0,
                   std::string(solver) + ": " + std::string(key) + " = " + ToString(value) +
                       ": expected a finite number of at least 0");
}

}  // namespace sparfuse
