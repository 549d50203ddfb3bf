// Holds the one thread pool of the module.
#pragma once

#include <memory>

#include "core/base/thread_pool.hpp"

namespace sparfuse::python {

// What an operation runs on; it keeps its pool alive while SetThreads puts another in place. A
// child of fork() gets a pool of its own.
std::shared_ptr<ThreadPool> ModulePool();

// threads >= 1: the caller of an operation counts. Throws Error{kConfig}.
void SetThreads(int threads);
// As many as processors may be used, unless set.
int Threads();

}  // namespace sparfuse::python
