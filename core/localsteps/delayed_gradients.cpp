// Sums gradients beside the next step, whose optimizer uses them: delayed parameter updates.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/localsteps/strategies.hpp"

namespace sparfuse {
namespace {

// A unit is sent after backward, and averaged at the end of the next step. An exchange thus has a
// whole step: it reads the flat gradient when it begins, and the gradient is packed anew only after
// the exchange has ended.
class DelayedGradients final : public Strategy {
 public:
  void StepBegin(Engine& engine) override { packed_.assign(engine.layout().tensors(), 0); }

  void GradientReady(Engine& engine, std::size_t tensor) override {
    if (engine.layout().tensor(tensor).numel == 0) return;
    packed_[tensor] = engine.Pack({.tensor = tensor, .order = {.after = sent_}});
  }

  void BackwardEnd(Engine& engine) override {
    const std::vector<Handle> came = std::exchange(sent_, {});
    for (std::size_t u = 0; u < engine.plan().units.size(); ++u) Send(engine, u);
    if (came.empty()) {  // in the first step nothing is updated
      engine.Apply({.own = Range{0, engine.layout().numel()}});
      return;
    }
    Take(engine, came);
  }

  // No update uses the sums of the last step.
  void Finish(Engine& engine) override { Take(engine, std::exchange(sent_, {})); }

 private:
  static void Take(Engine& engine, const std::vector<Handle>& came) {
    for (const Handle exchange : came) engine.Apply({.exchange = exchange});
  }

  void Send(Engine& engine, std::size_t u) {
    const Unit& unit = engine.plan().units[u];
    DenseSum sum;
    std::vector<Handle> packed;
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      if (packed_[t] == 0) continue;
      packed.push_back(packed_[t]);
      sum.ranges.push_back(engine.layout().tensor(t).range());
    }
    if (packed.empty()) return;
    std::ranges::sort(sum.ranges, {}, &Range::begin);
    sent_.push_back(engine.Exchange(
        {.pattern = std::move(sum),
         .channel = Channel::kBackground,
         .label = "unit " + std::to_string(u) + " of step " + std::to_string(engine.step() + 1),
         .background = true,
         .order = {.after = std::move(packed)}}));
  }

  std::vector<Handle> packed_;  // [tensors] of this step
  std::vector<Handle> sent_;    // exchanges not yet taken
};

}  // namespace

const StrategyDescriptor kDelayedGradients = {
    .name = "delayed-units",
    .summary =
        "units are all-reduced during the next step and enter its update; the first step updates "
        "nothing",
    .source =
        "Ren et al., ZeRO-Offload, USENIX ATC 2021, section 4.3 (one-step delayed parameter "
        "update)",
    .revision = 3,
    .deviations = "The delay begins with the first step, not after some steps without delay.",
    .sparsified = Sparsified::kNever,
    .options = {},
    .make = [](const Options&) -> std::unique_ptr<Strategy> {
      return std::make_unique<DelayedGradients>();
    },
    .dense_units = true,
    .delays = true};

}  // namespace sparfuse
