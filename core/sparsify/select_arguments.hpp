// Checks the arguments of a selection, on the host and on a device, and words their errors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// For errors: the tensor's name, id and step.
std::string Describe(const TensorInfo& info);

// Checks what is selected from. Throws Error{kConfig}.
void CheckSelectArguments(std::string_view sparsifier, const SelectSource& source, double density,
                          const TensorInfo& info);

// Throws Error{kConfig} where the slot has no room for k elements.
void RequireRoom(std::string_view sparsifier, const TensorInfo& info, const Slot& slot,
                 std::size_t k);
void RequireRoom(std::string_view sparsifier, const TensorInfo& info, std::size_t capacity,
                 std::size_t k);

}  // namespace sparfuse
