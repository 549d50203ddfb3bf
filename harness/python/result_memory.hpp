// Memory of results that become NumPy arrays. A training step makes the same results again and
// again; new pages from the system would cost it as much as their contents.
#pragma once

#include <cstddef>

namespace sparfuse::python {

// At least `bytes` of 64-byte aligned memory, contents undefined: what ReturnMemory was given
// before, where something fits. Throws std::bad_alloc. Any thread; waits for none.
void* TakeMemory(std::size_t bytes);

// Keeps the memory for the next results, up to 128 MiB in all, or frees it.
void ReturnMemory(void* memory) noexcept;

}  // namespace sparfuse::python
