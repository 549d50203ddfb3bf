// Holds the one thread pool of the module.
#pragma once

#include <memory>

#include "core/base/thread_pool.hpp"

namespace sparfuse::python {

// Of a Method or a PowerSGD: ranks and workers of one process.
inline constexpr int kMostRanks = 1024;

// What an operation runs on; it keeps its pool alive while SetThreads puts another in place. A
// child of fork() gets a pool of its own.
std::shared_ptr<ThreadPool> ModulePool();

// threads in [1, kMostThreads]: the caller of an operation counts. Throws Error{kConfig}.
void SetThreads(int threads);
// As many as processors may be used, unless set.
int Threads();

}  // namespace sparfuse::python
