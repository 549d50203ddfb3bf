#include "harness/python/method_ranks.hpp"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/engine/live/mass_check.hpp"
#include "core/transport/threads.hpp"
#include "harness/python/method_rank.hpp"

namespace sparfuse::python {
namespace {

// The interval at which ranks are told of another's failure until they notice it.
constexpr std::chrono::milliseconds kCancelEvery{1};

// Throws an Error that names the rank. It comes from this process, so no payload of the caller is
// corrupt.
[[noreturn]] void RethrowOf(std::size_t rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    throw ErrorOfRanks(known, "rank " + std::to_string(rank) + ": ");
  }
}

std::string TextOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

bool SameBits(std::span<const float> one, std::span<const float> other) {
  return std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

}  // namespace

MethodRanks::MethodRanks(std::vector<LiveConfig> configs, int threads,
                         std::chrono::milliseconds deadline)
    : process_(getpid()),
      progress_(static_cast<int>(configs.size()), Processors()),
      engines_(configs.size()),
      records_(configs.size()) {
  auto worlds = MakeThreadsWorld(static_cast<int>(configs.size()),
                                 configs.front().topology.ranks_per_node, progress_.bells());
  for (auto& world : worlds) {
    loops_.push_back(std::make_unique<ProgressLoop>(std::move(world), deadline, progress_));
    pools_.push_back(std::make_unique<ThreadPool>(threads));
  }
  try {
    for (std::size_t rank = 0; rank < configs.size(); ++rank) {
      threads_.emplace_back([this, rank] { RunRank(rank); });
    }
    RunOnAll([&](std::size_t rank) {
      // The deadline exceeds any single wait, so that the wait that names a rank ends first.
      configs[rank].deadline = 2 * deadline + std::chrono::seconds(5);
      engines_[rank] =
          std::make_unique<LiveEngine>(std::move(configs[rank]), *loops_[rank], *pools_[rank]);
    });
  } catch (...) {
    Stop();
    throw;
  }
}

MethodRanks::~MethodRanks() { Stop(); }

// Destroys the engines, and the last step's data that their lanes read, on their ranks' threads.
void MethodRanks::Stop() {
  if (threads_.size() == loops_.size()) {
    RunOnAll([this](std::size_t rank) { engines_[rank].reset(); });
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void MethodRanks::RunRank(std::size_t rank) {
  std::uint64_t done = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    begin_.wait(lock, [&] { return stop_ || jobs_ != done; });
    if (stop_) return;
    done = jobs_;
    const Job& job = *job_;
    lock.unlock();
    std::exception_ptr error;
    try {
      job(rank);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) {
      error_ = std::move(error);
      error_rank_ = rank;
    }
    --running_;
    end_.notify_all();
  }
}

void MethodRanks::RunOnAll(const Job& job) {
  std::unique_lock lock(mutex_);
  job_ = &job;
  ++jobs_;
  running_ = threads_.size();
  error_ = nullptr;
  begin_.notify_all();
  end_.wait(lock, [&] { return running_ == 0 || error_; });
  while (running_ > 0) {  // a rank may begin to wait after the call
    lock.unlock();
    for (const auto& loop : loops_) loop->Cancel();
    lock.lock();
    end_.wait_for(lock, kCancelEvery, [&] { return running_ == 0; });
  }
  if (error_) RethrowOf(error_rank_, std::exchange(error_, nullptr));
}

bool MethodRanks::InThisProcess() const { return getpid() == process_; }

void MethodRanks::RequireUsable() const {
  if (!failed_.empty()) SPARFUSE_THROW(kInternal, failed_);
  if (!InThisProcess()) {
    SPARFUSE_THROW(kInternal,
                   "this Method was made before the process was forked, and its ranks "
                   "are threads of the other process: make one here");
  }
}

LiveEngine& MethodRanks::EngineOf(int rank) {
  RequireUsable();
  return *engines_[static_cast<std::size_t>(rank)];
}

void MethodRanks::Step(std::span<const std::vector<std::span<const float>>> gradients,
                       double density_factor, bool verify) {
  OrFail([&] {
    RunOnAll([&](std::size_t rank) { StepOf(rank, gradients[rank], density_factor, verify); });
    if (!verify) return;
    RequireAlike("average", [](LiveEngine& one, LiveEngine& other, std::size_t t) {
      return SameBits(one.Averaged(t), other.Averaged(t));
    });
  });
  ++steps_;
}

// Throws if a rank's engine has another `what` of a tensor than the first one's.
template <class Same>
void MethodRanks::RequireAlike(const std::string& what, const Same& same) {
  const GradientLayout& layout = engines_.front()->layout();
  for (std::size_t rank = 1; rank < engines_.size(); ++rank) {
    for (std::size_t t = 0; t < layout.tensors(); ++t) {
      if (same(*engines_.front(), *engines_[rank], t)) continue;
      SPARFUSE_THROW(kInternal, "rank " + std::to_string(rank) + " has another " + what + " of " +
                                    layout.tensor(t).name + " than rank 0 at step " +
                                    std::to_string(steps_));
    }
  }
}

template <class Work>
void MethodRanks::OrFail(const Work& work) {
  RequireUsable();
  try {
    work();
  } catch (...) {
    failed_ = "step " + std::to_string(steps_) + " of this Method failed, and its residuals are " +
              "lost: make a new one (" + TextOf(std::current_exception()) + ")";
    Stop();  // lanes may still read the caller's gradients
    throw;
  }
}

void MethodRanks::Begin(std::span<const ParameterView> parameters) {
  OrFail(
      [&] { RunOnAll([&](std::size_t rank) { engines_[rank]->BeginWindows(parameters[rank]); }); });
}

void MethodRanks::LocalStep(std::span<const ParameterView> parameters, bool verify) {
  OrFail([&] {
    RunOnAll([&](std::size_t rank) {
      LiveEngine& engine = *engines_[rank];
      engine.MoveParameters(parameters[rank]);
      engine.BeginStep(steps_, verify);
      engine.EndBackward();
      engine.FinishStep();
      engine.BeginUpdate();
      engine.Synchronise();
      records_[rank] = engine.EndStep();
    });
    if (!verify) return;
    RequireAlike("anchor", [](LiveEngine& one, LiveEngine& other, std::size_t t) {
      const Range range = one.layout().tensor(t).range();
      return SameBits(one.Anchor(range), other.Anchor(range)) &&
             SameBits(one.OuterState(range), other.OuterState(range));
    });
  });
  ++steps_;
}

void MethodRanks::Finish(std::span<const ParameterView> parameters) {
  OrFail([&] {
    RunOnAll([&](std::size_t rank) {
      engines_[rank]->MoveParameters(parameters[rank]);
      records_[rank] = engines_[rank]->FinishWindows();
    });
  });
}

void MethodRanks::Replan(const Plan& plan) {
  RequireUsable();
  RunOnAll([&](std::size_t rank) { engines_[rank]->Replan(plan); });
}

void MethodRanks::StepOf(std::size_t rank, std::span<const std::span<const float>> gradients,
                         double density_factor, bool verify) {
  LiveEngine& engine = *engines_[rank];
  MassCheck mass(*loops_[rank]);
  engine.SetDensity(density_factor);
  if (verify && engine.KeepsMass()) mass.Begin(engine);
  engine.BeginStep(steps_, verify);
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    if (gradients[t].data() == nullptr) continue;
    if (mass.active()) mass.Announce(engine, t, gradients[t]);
    engine.AnnounceGradient(t, gradients[t]);
  }
  engine.EndBackward();
  engine.FinishStep();
  if (mass.active() && mass.Violations(engine) > 0) {
    SPARFUSE_THROW(kInternal, "an exchange of step " + std::to_string(steps_) + " lost mass");
  }
  engine.BeginUpdate();
  records_[rank] = engine.EndStep();
  if (engine.mass_violations() > 0) {
    SPARFUSE_THROW(kInternal, "a selection of step " + std::to_string(steps_) + " lost mass");
  }
}

}  // namespace sparfuse::python
