#include "baselines/horovod-fusion/horovod_cycle.hpp"

#include <utility>
#include <vector>

#include "core/engine/unit_strategy.hpp"

namespace sparfuse::baselines {
namespace {

class HorovodCycle final : public Strategy {
 public:
  HorovodCycle(double cycle_seconds, double threshold_bytes)
      : cycle_seconds_(cycle_seconds), threshold_bytes_(threshold_bytes) {}

  void StepBegin(Engine& engine) override {
    packed_.assign(engine.layout().tensors(), false);
    ready_ = launched_ = fused_ = 0;
    apply_.StepBegin();
    WaitForCycle(engine);
  }

  void GradientReady(Engine& engine, std::size_t tensor) override {
    PackRequest request;
    request.tensor = tensor;
    request.order.then = [this, tensor] {
      packed_[tensor] = true;
      while (ready_ < packed_.size() && packed_[ready_]) ++ready_;
    };
    engine.Pack(std::move(request));
  }

  void BackwardEnd(Engine& engine) override { apply_.BackwardEnd(engine); }

 private:
  void WaitForCycle(Engine& engine) {
    engine.StartTimer(cycle_seconds_, [this, &engine] { Cycle(engine); });
  }

  void Cycle(Engine& engine) {
    NegotiateRequest request;
    request.values = {
        -static_cast<std::int64_t>(ready_)};  // the maximum of -ready is -(the minimum)
    request.then = [this, &engine](std::span<const std::int64_t> agreed) {
      Fuse(engine, static_cast<std::size_t>(-agreed[0]));
      if (launched_ < packed_.size()) WaitForCycle(engine);
    };
    engine.Negotiate(std::move(request));
  }

  // Sends tensors [launched_, end). Starts a new exchange if the next tensor would not fit.
  void Fuse(Engine& engine, std::size_t end) {
    while (launched_ < end) {
      std::size_t last = launched_;
      double bytes = 0;
      do {
        bytes += sizeof(float) * static_cast<double>(engine.layout().tensor(last++).numel);
      } while (last < end &&
               bytes + sizeof(float) * static_cast<double>(engine.layout().tensor(last).numel) <=
                   threshold_bytes_);
      const Range fused = engine.layout().RangeOf(launched_, last);
      apply_.Launched(engine, engine.Exchange({.pattern = DenseSum{{fused}},
                                               .label = "fusion " + std::to_string(fused_++)}));
      launched_ = last;
    }
  }

  const double cycle_seconds_;
  const double threshold_bytes_;
  std::vector<bool> packed_;  // [tensors]
  std::size_t ready_ = 0;     // tensors [0, ready_) are packed on this rank
  std::size_t launched_ = 0;  // tensors [0, launched_) are sent
  std::size_t fused_ = 0;
  ApplyAfterBackward apply_;
};

}  // namespace

const StrategyDescriptor kHorovodCycle = {
    "horovod-cycle",
    "every cycle, all-reduce of the gradients that are ready on all ranks, fused up to a threshold",
    "Sergeev and Del Balso, arXiv 1802.05799, section 4",
    1,
    "Readiness is the length of the common prefix of the ready order, agreed on in one round.",
    Sparsified::kNever,
    {NumberOption("cycle_seconds", 0.001, 0.0001, 1, "time between negotiations"),
     NumberOption("threshold_bytes", 67108864.0, 4, 1e15, "dense bytes fused into one all-reduce")},
    [](const Options& options) -> std::unique_ptr<Strategy> {
      return std::make_unique<HorovodCycle>(DoubleOption(options, "cycle_seconds"),
                                            DoubleOption(options, "threshold_bytes"));
    }};

}  // namespace sparfuse::baselines
