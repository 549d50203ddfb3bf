#include "workloads/tasks/loader.hpp"

#include <chrono>
#include <utility>

namespace sparfuse::workloads {

Loader::Loader(Make make, int micro_steps) : make_(std::move(make)), micro_steps_(micro_steps) {}

LoadedBatch Loader::Take(std::uint64_t step, int micro_step) {
  const auto begun = std::chrono::steady_clock::now();
  LoadedBatch taken;
  if (next_.valid() && step_ == step && micro_step_ == micro_step) {
    taken = next_.get();
  } else {
    if (next_.valid()) next_.wait();
    taken = make_(step, micro_step);
  }
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const bool last = micro_step + 1 == micro_steps_;
  Begin(last ? step + 1 : step, last ? 0 : micro_step + 1);
  return taken;
}

void Loader::Begin(std::uint64_t step, int micro_step) {
  step_ = step;
  micro_step_ = micro_step;
  next_ = std::async(std::launch::async, make_, step, micro_step);
}

double Loader::TakeWaited() { return std::exchange(waited_seconds_, 0); }

}  // namespace sparfuse::workloads
