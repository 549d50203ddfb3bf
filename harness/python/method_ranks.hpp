// Runs the ranks of a method as threads of this process, each with its own LiveEngine.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse::python {

// One thread at a time uses it, without the GIL, because a rank may wait for the GIL in a
// sparsifier that is written in Python. Gradients and their averages are whole arrays, one for each
// tensor in ready order.
class MethodRanks {
 public:
  // configs: one a rank; deadlines are set here. deadline: bounds every wait of a rank for another.
  // threads: of each rank. Throws the errors of LiveEngine.
  MethodRanks(std::vector<LiveConfig> configs, int threads, std::chrono::milliseconds deadline);
  ~MethodRanks();
  MethodRanks(const MethodRanks&) = delete;
  MethodRanks& operator=(const MethodRanks&) = delete;

  // One step of all ranks.
  //
  //   gradients       [ranks][tensors], an empty span if there is no gradient. Not used
  //                   after the return.
  //   density_factor  the factor on densities.
  //   verify          check that selections lose nothing and that all ranks have the same average.
  //
  // Throws the first error, an Error with "rank N: " in front. The other ranks do not wait for a
  // rank that failed. Afterwards no step is possible, and the ranks are gone.
  void Step(std::span<const std::vector<std::span<const float>>> gradients, double density_factor,
            bool verify);

  // With local steps, [ranks][tensors]: the initial values of anchors and outer state.
  void Begin(std::span<const ParameterView> parameters);
  // The same behind an update of each rank's parameters, which are read and written, and not used
  // after the return. verify: check that anchors are equal on all ranks. Throws as Step does.
  void LocalStep(std::span<const ParameterView> parameters, bool verify);
  // Receives the messages that are still under way. Throws as Step.
  void Finish(std::span<const ParameterView> parameters);

  // The next step goes by another plan; throws as Step does.
  void Replan(const Plan& plan);

  std::uint64_t steps() const { return steps_; }
  int ranks() const { return static_cast<int>(loops_.size()); }
  // False in a forked process, which has no threads. There this object must never be destroyed.
  bool InThisProcess() const;
  // Throw Error{kInternal} with the reason after a step that failed, and in a forked process, which
  // has no threads.
  void RequireUsable() const;
  LiveEngine& EngineOf(int rank);
  const StepRecord& RecordOf(int rank) const { return records_[static_cast<std::size_t>(rank)]; }

 private:
  using Job = std::function<void(std::size_t rank)>;

  void RunRank(std::size_t rank);
  // Runs the job on every rank's thread. Throws as Step does.
  void RunOnAll(const Job& job);
  void StepOf(std::size_t rank, std::span<const std::span<const float>> gradients,
              double density_factor, bool verify);
  template <class Same>
  void RequireAlike(const std::string& what, const Same& same);
  template <class Work>
  void OrFail(const Work& work);
  void Stop();

  const pid_t process_;
  SharedProgress progress_;
  std::vector<std::unique_ptr<ProgressLoop>> loops_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;
  std::vector<std::unique_ptr<LiveEngine>> engines_;  // null after a failure
  std::vector<StepRecord> records_;                   // of the last step
  std::uint64_t steps_ = 0;
  std::string failed_;  // why no step can be made

  std::mutex mutex_;  // guards the members below
  std::condition_variable begin_;
  std::condition_variable end_;
  const Job* job_ = nullptr;
  std::uint64_t jobs_ = 0;
  std::size_t running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;  // the first of the job
  std::size_t error_rank_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace sparfuse::python
