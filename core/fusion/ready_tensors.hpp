// Describes what solvers of published planners read of a model: sizes and times of backward, in
// ready order.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

namespace sparfuse {

struct ReadyTensors {
  std::span<const std::size_t> elements;     // [tensors] at least 1
  std::span<const double> backward_seconds;  // [tensors] since the previous gradient was ready
};

// Seconds that one operation takes on so many elements at once, at least 1. Pure.
using SecondsOfElements = std::function<double(std::size_t elements)>;

// Throws Error{kConfig} naming `solver`, key and value where there is no tensor, one has no
// elements, there are not as many times as tensors, or a time is no finite number of at least 0.
void CheckReadyTensors(const ReadyTensors& tensors, std::string_view solver);

// Throws Error{kConfig} naming `solver`, `key` and the value unless it is finite and at least 0.
void RequireSeconds(std::string_view solver, std::string_view key, double value);

}  // namespace sparfuse
