// Makes batches in parallel with the training: while a step runs, a thread makes the next one's
// batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>

#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {

struct LoadedBatch {
  Batch batch;  // in host memory
  std::uint64_t dropout_seed = 0;
};

class Loader {
 public:
  using Make = std::function<LoadedBatch(std::uint64_t step, int micro_step)>;

  // `make` is called on one thread at a time, this one's or the loader's.
  Loader(Make make, int micro_steps);

  // Returns the batch of a step, and begins the next. A batch out of order is made here and now.
  // Exceptions of `make` are thrown here.
  LoadedBatch Take(std::uint64_t step, int micro_step);

  // For how long Take has waited since the last call, in seconds.
  double TakeWaited();

 private:
  void Begin(std::uint64_t step, int micro_step);

  Make make_;
  int micro_steps_;
  std::uint64_t step_ = 0;
  int micro_step_ = 0;
  std::future<LoadedBatch> next_;  // of these
  double waited_seconds_ = 0;
};

}  // namespace sparfuse::workloads
