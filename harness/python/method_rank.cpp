#include "harness/python/method_rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/collective/collective.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "core/transport/sleep.hpp"
#include "harness/python/parts/part_call.hpp"

namespace sparfuse::python {
namespace {

constexpr std::size_t kChunk = 1 << 16;
constexpr std::chrono::milliseconds kLongCall{1000};  // of a part in Python

// Runs make(stop) on another thread, and meanwhile `look`, several times a second. If `look`
// throws, it asks `make` to stop.
template <class Make>
auto WhileWaiting(const std::function<void()>& look, const Make& make) {
  std::stop_source stop;
  auto made = std::async(std::launch::async, [&] { return make(stop.get_token()); });
  try {
    while (made.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout)
      if (look) look();
  } catch (...) {
    stop.request_stop();
    made.wait();
    throw;
  }
  return made.get();
}

}  // namespace

Error ErrorOfRanks(const Error& error, const std::string& prefix) {
  const bool lost = error.kind() == FailureKind::kComm;
  return Error(lost ? FailureKind::kInternal : error.kind(), prefix + error.what());
}

MethodRank::MethodRank(LiveConfig config, TcpListener listener, std::vector<std::string> addresses,
                       int rank, int threads, std::chrono::milliseconds deadline, bool verify,
                       std::function<void()> while_waiting, std::optional<Remembers> remembers)
    : process_(getpid()),
      while_waiting_(std::move(while_waiting)),
      remembers_(std::move(remembers)),
      pool_(threads),
      verify_(verify),
      grace_(std::min(std::chrono::milliseconds(2000), deadline / 3)) {
  // This rank's own threads only. The caller's computation fills the cores, and a thread that waits
  // for a time slice of it lets the link lie idle for milliseconds.
  PreferCommunication();
  const int ranks_per_node = config.topology.ranks_per_node;
  all_.resize(addresses.size());
  const auto connect = [&](const std::stop_token& stop) {
    return MakeTcpWorld(std::move(listener), addresses, rank, ranks_per_node, deadline,
                        {stop, failure_});
  };
  loop_ = WhileWaiting(while_waiting_, [&](const std::stop_token& stop) {
    return std::make_unique<ProgressLoop>([&] { return connect(stop); }, deadline);
  });
  loop_->RunBlocking([&](Communicator& world) {
    control_ = world.Split(0, world.rank(), deadline);
    return Task();
  });
  // The deadline exceeds any single wait, so that the wait that names a rank ends first.
  config.deadline = 2 * deadline + std::chrono::seconds(5);
  config.while_waiting = while_waiting_;
  config.averages_at_end = true;
  config.on_nonfinite = [this](const std::string& text) {
    Write(StepVerdict::Kind::kNonFinite, text);
  };
  const GradientLayout& layout = config.layout;
  pending_.resize(layout.tensors());
  zeros_.resize(layout.largest_tensor());
  engine_ = std::make_unique<LiveEngine>(std::move(config), *loop_, pool_);
}

MethodRank::~MethodRank() {
  engine_.reset();
  std::this_thread::sleep_until(answers_until_);
  Leave();
}

// Waits for the engine's threads, but not long for one that is in a call which may never return.
void MethodRank::EndEngine() {
  if (LatePartCall(kLongCall).empty()) return engine_.reset();
  auto ended = std::make_shared<std::promise<void>>();
  const std::future<void> future = ended->get_future();
  std::thread([engine = std::shared_ptr<LiveEngine>(std::move(engine_)), ended]() mutable {
    engine.reset();
    ended->set_value();
  }).detach();
  abandoned_ = future.wait_for(kLongCall) == std::future_status::timeout;
}

// Ends the connections. Other ranks that wait for this one find out at once.
void MethodRank::Leave() {
  if (!loop_) return;
  mass_.reset();
  if (gathered_.valid()) {  // it uses our buffers
    loop_->Cancel();
    gathered_.wait();
  }
  try {
    loop_->RunBlocking([this](Communicator&) {
      control_.reset();
      return Task();
    });
  } catch (...) {
    // The loop ends after an error that the user already has.
  }
  loop_.reset();
}

bool MethodRank::InThisProcess() const { return getpid() == process_; }

void MethodRank::RequireUsable() const {
  if (!InThisProcess()) {
    SPARFUSE_THROW(kInternal,
                   "this process was forked after sparfuse.torch.distribute, whose threads and "
                   "connections belong to the other process: call distribute in this process, or "
                   "train in the other one only");
  }
  if (!failed_.empty()) SPARFUSE_THROW(kInternal, failed_);
}

// Returns the result of `run`. After an error it destroys the engine, which may still be reading
// the caller's gradients.
template <class Run>
auto MethodRank::OrFail(const Run& run) {
  RequireUsable();
  const auto fail = [this](const std::string& what, bool late = false) {
    // Who finds out that another rank is late does not know which one is to blame.
    failure_->why = what.substr(0, what.find('\n'));
    failure_->known = !late;
    failed_ = "step " + std::to_string(steps_) + " failed, and the residuals are lost: " +
              "call sparfuse.torch.detach and distribute again, and load a state (" + what + ")";
    in_step_ = false;
    EndEngine();
    if (!late && !checking_ && !abandoned_) Leave();
  };
  try {
    return run();
  } catch (const Error& error) {
    const bool timeout = error.kind() == FailureKind::kTimeout;
    const std::string late = timeout ? LatePartCall(kLongCall) : "";
    const std::string prefix = late.empty() ? "" : late + ": ";
    fail(prefix + error.what(), timeout);
    if (timeout) answers_until_ = std::chrono::steady_clock::now() + grace_;
    throw ErrorOfRanks(error, prefix);
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
}

void MethodRank::Begin(double density_factor, float scale, bool keep) {
  OrFail([&] {
    scale_ = scale;
    kept_ = keep;
    next_ = 0;
    own_ = {};
    std::ranges::fill(pending_, std::span<float>());
    engine_->SetDensity(density_factor);
    if (verify_) mass_.emplace(*loop_);
    if (mass_ && engine_->KeepsMass()) mass_->Begin(*engine_);
    if (keep && remembers_) remembers_->save();
    if (keep) engine_->BeginUndoable();
    engine_->BeginStep(steps_, verify_);
    in_step_ = true;
  });
}

void MethodRank::Write(StepVerdict::Kind kind, const std::string& text) {
  std::lock_guard lock(noting_);
  if (own_.kind == StepVerdict::Kind::kRefused) return;  // a refusal says more than NaN
  if (own_.kind == kind) return;
  own_.kind = kind;
  own_.text = {};
  std::copy_n(text.begin(), std::min(text.size(), own_.text.size() - 1), own_.text.begin());
}

std::span<const float> MethodRank::Unscaled(std::size_t tensor, std::span<const float> gradient) {
  if (scale_ == 1) return gradient;
  const Range range = engine_->layout().tensor(tensor).range();
  if (unscaled_.empty()) unscaled_.resize(engine_->layout().numel());
  const std::span<float> to = std::span(unscaled_).subspan(range.begin, range.size());
  ScaleDense(gradient, 1 / scale_, to, pool_);
  return to;
}

// The engine looks at gradients while it reads them anyway. The check of mass adds them up before.
std::span<const float> MethodRank::Checked(std::size_t t, std::span<const float> gradient) {
  const TensorEntry& tensor = engine_->layout().tensor(t);
  try {
    RequireFinite(pool_, gradient,
                  {static_cast<std::uint32_t>(t), tensor.name, tensor.shape, steps_});
  } catch (const Error& error) {
    Write(StepVerdict::Kind::kNonFinite, error.what());
    return std::span<const float>(zeros_).first(tensor.numel);
  }
  return gradient;
}

void MethodRank::AnnounceNext() {
  const std::size_t t = next_++;
  const TensorEntry& tensor = engine_->layout().tensor(t);
  std::span<const float> gradient = pending_[t];
  if (gradient.data() != nullptr) engine_->AverageInto(t, pending_[t]);
  const auto zeros = std::span<const float>(zeros_).first(tensor.numel);
  if (gradient.data() == nullptr) {
    gradient = zeros;
  } else {
    gradient = Unscaled(t, gradient);
    if (verify_) gradient = Checked(t, gradient);
  }
  if (mass_ && mass_->active()) mass_->Announce(*engine_, t, gradient);
  engine_->AnnounceGradient(t, gradient);
}

// Checks a step that has ended.
void MethodRank::Check() {
  const std::string step = "step " + std::to_string(steps_);
  if (mass_->active() && mass_->Violations(*engine_) > 0)
    SPARFUSE_THROW(kInternal, "an exchange of " + step + " lost mass");
  if (engine_->mass_violations() > 0)
    SPARFUSE_THROW(kInternal, "a selection of " + step + " lost mass");
  const GradientLayout& layout = engine_->layout();
  std::vector<std::uint64_t> own, all(layout.tensors() * all_.size());
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const auto average = std::as_bytes(engine_->Averaged(t));
    own.push_back(FnvOf({reinterpret_cast<const char*>(average.data()), average.size()}));
  }
  loop_->RunBlocking([&](Communicator&) {
    return AllGather(*control_, std::as_bytes(std::span(own)),
                     std::as_writable_bytes(std::span(all)), 1);
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t t = i % layout.tensors();
    if (all[i] == all[t]) continue;
    SPARFUSE_THROW(kInternal, "rank " + std::to_string(i / layout.tensors()) +
                                  " has another average of " + layout.tensor(t).name +
                                  " than rank 0 at " + step);
  }
}

void MethodRank::Announce(std::size_t tensor, std::span<float> gradient) {
  OrFail([&] {
    pending_[tensor] = gradient;
    while (next_ < pending_.size() && pending_[next_].data() != nullptr) AnnounceNext();
  });
}

void MethodRank::EndBackward(const std::string& refusal, std::uint32_t alike) {
  OrFail([&] {
    {
      const std::lock_guard lock(noting_);
      own_.alike = alike;
    }
    while (next_ < pending_.size()) AnnounceNext();
    if (!refusal.empty()) {
      Write(StepVerdict::Kind::kRefused, refusal);
      // The caller may have given the gradients' memory away, and keeps what is in it.
      for (std::size_t t = 0; t < pending_.size(); ++t) engine_->AverageInto(t, {});
    }
    engine_->EndBackward();
    // Runs beside the step's exchanges, so that it takes no additional time.
    if (engine_->CheckedAll()) GatherNotes();
  });
}

void MethodRank::GatherNotes() {
  auto ended = std::make_shared<std::promise<void>>();
  gathered_ = ended->get_future();
  loop_->Start(
      [this](Communicator&) {
        return AllGather(*control_, std::as_bytes(std::span(&own_, 1)),
                         std::as_writable_bytes(std::span(all_)), 0);
      },
      [ended](std::exception_ptr error) {
        error ? ended->set_exception(error) : ended->set_value();
      });
}

StepVerdict MethodRank::Finish() {
  return OrFail([&] {
    engine_->FinishStep();
    if (!gathered_.valid()) GatherNotes();
    checking_ = verify_;
    if (verify_) Check();
    checking_ = false;
    engine_->BeginUpdate();
    record_ = engine_->EndStep();
    while (gathered_.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout)
      if (while_waiting_) while_waiting_();
    gathered_.get();
    in_step_ = false;
    StepVerdict verdict;
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      const Note& note = all_[rank];
      if (note.kind <= verdict.kind) continue;
      verdict = {note.kind, static_cast<int>(rank), note.text.data()};
    }
    for (std::size_t rank = 0; verdict.kind != StepVerdict::Kind::kRefused && rank < all_.size();
         ++rank) {
      if (all_[rank].alike != all_[0].alike)
        verdict = {StepVerdict::Kind::kRefused, static_cast<int>(rank), ""};
    }
    if (verdict.kind == StepVerdict::Kind::kFine) {
      ++steps_;
    } else if (kept_) {
      engine_->Undo();
      if (remembers_) remembers_->undo();
    }
    return verdict;
  });
}

void MethodRank::GiveUp(const std::string& why) {
  EndBackward(why);
  (void)Finish();
}

void MethodRank::CopyAverage(std::size_t tensor, float* to) {
  const std::span<const float> average = engine_->Averaged(tensor);
  if (scale_ == 1 && average.data() == to) return;
  if (scale_ == 1) {
    pool_.ParallelFor((average.size() + kChunk - 1) / kChunk, [&](std::size_t chunk, int) {
      const std::size_t begin = chunk * kChunk;
      const std::size_t count = std::min(kChunk, average.size() - begin);
      std::memcpy(to + begin, average.data() + begin, count * sizeof(float));
    });
  } else {
    ScaleDense(average, scale_, {to, average.size()}, pool_);
  }
}

void MethodRank::Replan(const Plan& plan) {
  OrFail([&] { engine_->Replan(plan); });
}

}  // namespace sparfuse::python
