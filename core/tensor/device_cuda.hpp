// The CUDA side of device.hpp; only device.cpp and device.cu include it.
#pragma once

#include <cstddef>

#include "core/tensor/device.hpp"

namespace sparfuse::cuda {

// Throws Error{kOutOfMemory} when the device has no room, else Error{kInternal} naming the call.
void* Allocate(std::size_t bytes, int device_index);
void Free(void* pointer, int device_index) noexcept;
void FillZero(void* pointer, std::size_t bytes, Stream stream);

}  // namespace sparfuse::cuda
