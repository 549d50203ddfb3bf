// Runs one rank of a method in this process; the others are processes that are reached by TCP.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/thread_pool.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/live/mass_check.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/tcp/tcp.hpp"

namespace sparfuse::python {

// How a step ended, equal on all ranks.
struct StepVerdict {
  enum class Kind : std::int32_t { kFine, kNonFinite, kRefused };
  Kind kind = Kind::kFine;
  int rank = 0;      // the first one that had something to say
  std::string text;  // of it
};

// Saves what parts remember outside the engine, and goes back to it.
struct Remembers {
  std::function<void()> save, undo;
};

// core's kind of an error of communication is Python's for a payload that is corrupt, which no
// caller of a rank has given: another kind.
Error ErrorOfRanks(const Error& error, const std::string& prefix = "");

// One thread at a time uses it, without the GIL. Calls in the order Begin, Announce...,
// EndBackward, Finish, then CopyAverage. What goes wrong on the way is thrown, as LiveEngine and
// MakeTcpWorld throw it; afterwards the rank takes no more steps and says so.
class MethodRank {
 public:
  // verify: check in each step that nothing is lost and that all ranks have the same averages, bit
  // for bit. while_waiting: LiveConfig's. remembers: for steps that are undone.
  MethodRank(LiveConfig config, TcpListener listener, std::vector<std::string> addresses, int rank,
             int threads, std::chrono::milliseconds deadline, bool verify,
             std::function<void()> while_waiting, std::optional<Remembers> remembers);
  ~MethodRank();
  MethodRank(const MethodRank&) = delete;
  MethodRank& operator=(const MethodRank&) = delete;

  // scale: of the loss, which gradients are divided by before anything else and averages are
  // multiplied with. keep: what to go back to where the step does not count.
  void Begin(double density_factor, float scale, bool keep);
  // A gradient is final. gradient: [numel], the caller's, unchanged until Finish, which writes the
  // average into it unless EndBackward was given a refusal. The engine hears of tensors in the
  // order of the layout, of an early one behind those before it. One that is not finite travels as
  // zeros, and the step does not count.
  void Announce(std::size_t tensor, std::span<float> gradient);
  // What was not announced has no gradient in this step, zeros. refusal: why this rank cannot use
  // the step, which then does not count on any rank; empty: it can. alike: a number that must be
  // the same on all ranks, else the step is refused, too.
  void EndBackward(const std::string& refusal, std::uint32_t alike = 0);
  // Waits for the averages. Where the step does not count, what it left to the next one is undone.
  StepVerdict Finish();
  // Finishes a step whose backward pass ended with an error: its averages are of no use.
  void GiveUp(const std::string& why);

  bool in_step() const { return in_step_; }
  // average * scale, in row-major order. Where `to` is the gradient that was announced and the
  // scale is 1, the average is there already.
  void CopyAverage(std::size_t tensor, float* to);

  void Replan(const Plan& plan);
  // Throws Error{kInternal}, which says what happened, after a step that failed and in a process
  // that was forked off: there this object must never be destroyed.
  void RequireUsable() const;
  bool InThisProcess() const;
  LiveEngine& engine() {
    RequireUsable();
    return *engine_;
  }
  const StepRecord& record() const { return record_; }
  std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  bool usable() const { return failed_.empty(); }

 private:
  struct Note {  // as it travels
    StepVerdict::Kind kind = StepVerdict::Kind::kFine;
    std::uint32_t alike = 0;
    std::array<char, 248> text{};
  };
  template <class Run>
  auto OrFail(const Run& run);
  void AnnounceNext();
  std::span<const float> Checked(std::size_t tensor, std::span<const float> gradient);
  void GatherNotes();
  void Check();
  std::span<const float> Unscaled(std::size_t tensor, std::span<const float> gradient);
  void Write(StepVerdict::Kind kind, const std::string& text);

  const pid_t process_;
  const std::function<void()> while_waiting_;
  const std::optional<Remembers> remembers_;
  ThreadPool pool_;
  const bool verify_;
  std::unique_ptr<ProgressLoop> loop_;
  std::unique_ptr<Communicator> control_;  // communication thread
  std::unique_ptr<LiveEngine> engine_;     // null after a failure
  StepRecord record_;
  std::uint64_t steps_ = 0;
  std::string failed_;
  const std::shared_ptr<std::atomic<bool>> has_failed_ = std::make_shared<std::atomic<bool>>(false);
  // Until when this rank answers after a deadline has passed: others that find out later must not
  // take it for the one that is lost.
  std::chrono::steady_clock::time_point answers_until_{};
  const std::chrono::milliseconds grace_;

  // Of the step.
  bool in_step_ = false;
  bool kept_ = false;
  float scale_ = 1;
  std::size_t next_ = 0;                   // tensor that the engine hears of
  std::vector<std::span<float>> pending_;  // [tensors]
  std::optional<MassCheck> mass_;          // where it is verified
  std::vector<float> unscaled_;
  std::vector<float> zeros_;
  std::mutex noting_;  // guards own_ until the notes are gathered
  Note own_;
  std::vector<Note> all_;
  std::future<void> gathered_;
};

}  // namespace sparfuse::python
