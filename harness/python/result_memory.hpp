// Provides memory for results that become NumPy arrays. A training step makes the same results
// again and again, and new pages from the system would cost as much as their contents.
#pragma once

#include <cstddef>

namespace sparfuse::python {

// At least `bytes` of 64-byte aligned memory, contents undefined. It comes from ReturnMemory if a
// returned piece fits. Throws std::bad_alloc. Any thread may call it; it does not wait.
void* TakeMemory(std::size_t bytes);

// Keeps the memory for the next results, up to 128 MiB in all, or frees it.
void ReturnMemory(void* memory) noexcept;

}  // namespace sparfuse::python
