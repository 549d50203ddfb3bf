// Runs one rank of a method in this process; the others are processes that are reached by TCP.
#pragma once

#include <sys/types.h>

#include <array>
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

// Saves and restores the state that parts keep outside the engine.
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

  // scale: the loss's; gradients are divided by it first, and averages are multiplied by it. keep:
  // whether the state is saved, to return to it if the step does not count.
  void Begin(double density_factor, float scale, bool keep);
  // Announces that a gradient is final. gradient: [numel], the caller's, unchanged until Finish,
  // which writes the average into it unless EndBackward was given a refusal. The engine gets
  // tensors in the order of the layout; a tensor that comes early waits for those before it. A
  // gradient that is not finite travels as zeros, and the step does not count.
  void Announce(std::size_t tensor, std::span<float> gradient);
  // A tensor that was not announced has zeros as its gradient in this step. refusal: the reason why
  // this rank cannot use the step, which then does not count on any rank; empty: it can. alike: a
  // number that must be the same on all ranks; if it is not, the step is refused, too.
  void EndBackward(const std::string& refusal, std::uint32_t alike = 0);
  // Waits for the averages. If the step does not count, its effects on the next step are undone.
  StepVerdict Finish();
  // Finishes a step whose backward pass ended with an error. Its averages are not used.
  void GiveUp(const std::string& why);

  bool in_step() const { return in_step_; }
  // Whether a call of a part in Python does not return, so that threads still use this object and
  // the gradients: neither may be destroyed.
  bool abandoned() const { return abandoned_; }
  // Writes average * scale, in row-major order. If `to` is the announced gradient and the scale is
  // 1, the average is there already.
  void CopyAverage(std::size_t tensor, float* to);

  void Replan(const Plan& plan);
  // Throws Error{kInternal} with the reason after a step that failed, and in a forked process,
  // where this object must never be destroyed.
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
  void EndEngine();
  void Leave();
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
  const std::shared_ptr<TcpFailure> failure_ = std::make_shared<TcpFailure>();
  // The time until which this rank still answers after a deadline has passed. Other ranks may find
  // out later, and must not take it for the lost one.
  std::chrono::steady_clock::time_point answers_until_{};
  const std::chrono::milliseconds grace_;

  // The state of the step.
  bool in_step_ = false;
  bool abandoned_ = false;
  bool checking_ = false;  // all ranks find the same, and have a message of their own
  bool kept_ = false;
  float scale_ = 1;
  std::size_t next_ = 0;                   // tensor that the engine hears of
  std::vector<std::span<float>> pending_;  // [tensors]
  std::optional<MassCheck> mass_;          // if it is verified
  std::vector<float> unscaled_;
  std::vector<float> zeros_;
  std::mutex noting_;  // guards own_ until the notes are gathered
  Note own_;
  std::vector<Note> all_;
  std::future<void> gathered_;
};

}  // namespace sparfuse::python
