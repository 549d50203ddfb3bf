#include <utility>
#include <vector>

#include "core/engine/unit_strategy.hpp"
#include "core/fusion/plan_times.hpp"
#include "core/safusion/planner.hpp"

namespace sparfuse {
namespace {

class SafusionNaive final : public Strategy {
 public:
  SafusionNaive(double buffer_bytes, double buffer_fraction)
      : buffer_bytes_(buffer_bytes), buffer_fraction_(buffer_fraction) {}

  void StepBegin(Engine& engine) override {
    if (buffer_fraction_ > 0) buffer_bytes_ = buffer_fraction_ * TargetPayloadBytes(engine);
    selections_.assign(engine.layout().tensors(), 0);
    finished_.assign(engine.layout().tensors(), false);
    prefix_ = first_ = counted_ = end_ = buffers_ = 0;
    open_bytes_ = 0;
    state_ = State::kFilling;
    apply_.StepBegin();
  }

  void GradientReady(Engine& engine, std::size_t tensor) override {
    const auto finished = [this, &engine, tensor] {
      finished_[tensor] = true;
      while (prefix_ < finished_.size() && finished_[prefix_]) ++prefix_;
      Advance(engine);
    };
    selections_[tensor] =
        engine.Sparsify({.range = engine.layout().tensor(tensor).range(),
                         .density = engine.plan().TensorOf(engine.layout(), tensor).density,
                         .order = {.then = finished}});
  }

  void BackwardEnd(Engine& engine) override { apply_.BackwardEnd(engine); }

 private:
  enum class State { kFilling, kNegotiating, kClosing };

  void Advance(Engine& engine) {
    if (state_ == State::kFilling) {
      while (counted_ < prefix_ && open_bytes_ < buffer_bytes_) {
        open_bytes_ += static_cast<double>(engine.PayloadBytes(selections_[counted_++]));
      }
      const bool full = open_bytes_ >= buffer_bytes_ || counted_ == selections_.size();
      if (full && first_ < selections_.size()) AskToClose(engine);
    } else if (state_ == State::kClosing && prefix_ >= end_) {
      Close(engine);
      Advance(engine);
    }
  }

  void AskToClose(Engine& engine) {
    state_ = State::kNegotiating;
    engine.BeginWait(Label());
    engine.Negotiate({.values = {static_cast<std::int64_t>(counted_)},
                      .then = [this, &engine](std::span<const std::int64_t> agreed) {
                        end_ = static_cast<std::size_t>(agreed[0]);
                        state_ = State::kClosing;
                        Advance(engine);
                      }});
  }

  void Close(Engine& engine) {
    engine.EndWait(Label());
    const std::span buffer = std::span(selections_).subspan(first_, end_ - first_);
    apply_.Launched(engine, engine.Exchange({.pattern = SparseSum{{buffer.begin(), buffer.end()}},
                                             .label = Label()}));
    ++buffers_;
    first_ = counted_ = end_;
    open_bytes_ = 0;
    state_ = State::kFilling;
  }

  std::string Label() const { return "buffer " + std::to_string(buffers_); }

  // Returns a rank's payload in a step if every tensor met its target density.
  static double TargetPayloadBytes(const Engine& engine) {
    double bytes = 0;
    for (std::size_t t = 0; t < engine.layout().tensors(); ++t) {
      const double density = engine.plan().TensorOf(engine.layout(), t).density;
      bytes += static_cast<double>(PlannedPayloadBytes(engine.layout(), t, density));
    }
    return bytes;
  }

  double buffer_bytes_;
  const double buffer_fraction_;
  std::vector<Handle> selections_;  // [tensors]
  std::vector<bool> finished_;      // [tensors] sparsified
  std::size_t prefix_ = 0;          // tensors [0, prefix_) are sparsified
  std::size_t first_ = 0;           // first tensor of the open buffer
  std::size_t counted_ = 0;         // tensors [first_, counted_) are in it, as seen by this rank
  double open_bytes_ = 0;           // their payload
  std::size_t end_ = 0;             // agreed end of the buffer being closed
  std::size_t buffers_ = 0;
  State state_ = State::kFilling;
  ApplyAfterBackward apply_;
};

}  // namespace

const StrategyDescriptor kSafusionNaive = {
    "safusion-naive",
    "tensors are sparsified as they are ready and packed into a buffer of fixed size, which ranks "
    "close by agreement",
    "SAFusion, HPDC 2025, section 3.1",
    1,
    "The paper leaves open how ranks agree on a buffer's end; here they take the latest end that a "
    "rank asks for.",
    Sparsified::kAhead,
    {NumberOption("buffer_bytes", 67108864.0, 8, 1e15,
                  "payload bytes (8 an element) that close a buffer"),
     NumberOption("buffer_fraction", 0.0, 0, 1,
                  "if above 0, used instead of buffer_bytes: fraction of the model's payload at "
                  "the target density")},
    [](const Options& options) -> std::unique_ptr<Strategy> {
      return std::make_unique<SafusionNaive>(DoubleOption(options, "buffer_bytes"),
                                             DoubleOption(options, "buffer_fraction"));
    }};

}  // namespace sparfuse
