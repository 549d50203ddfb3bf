// Strategies that synchronise once in a window of steps, and one that sums gradients beside the
// next step, whose optimizer uses them (delayed parameter updates).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/engine/engine.hpp"

namespace sparfuse {
namespace {

// Applies each rank's own gradients, and sends and receives fragments behind the update.
class LocalStepsStrategy final : public Strategy {
 public:
  explicit LocalStepsStrategy(const LocalSteps& steps) : steps_(steps) {}

  void StepBegin(Engine& engine) override {
    if (units_.empty() || plan_ != engine.plan()) MakeUnits(engine);
    if (steps_.when_idle) AskWhetherOver(engine);
  }

  void GradientReady(Engine&, std::size_t) override {}

  void BackwardEnd(Engine& engine) override {
    engine.Apply({.own = Range{0, engine.layout().numel()}});
  }

  // Sends a fragment before it receives one: the sent difference is from the anchor that the
  // received fragment has not yet moved.
  void Updated(Engine& engine) override {
    const std::uint64_t step = engine.step() + 1;
    if (steps_.when_idle) return GoOn(engine, step);
    std::vector<Handle> packed;
    std::vector<Handle> under_way = std::exchange(sent_, {});
    const auto sent = dates_->SentAt(step);
    const auto received = dates_->ReceivedAt(step);
    if (sent) packed = Send(engine, *sent, under_way);
    if (steps_.delay == 0) {
      if (sent) Receive(engine, std::exchange(sent_, {}), {});
    } else if (received) {
      Receive(engine, under_way, packed);
    } else if (dates_->RestartsAt(step)) {
      engine.Apply({.own = Range{0, engine.layout().numel()},
                    .to = ApplyTo::kAnchor,
                    .order = {.after = packed}});
    } else if (!sent) {
      sent_ = std::move(under_way);
    }
    if (received) RenewInnerState(engine, *received);
  }

  // The state of inner optimizers stays: no update follows.
  void Finish(Engine& engine) override { Receive(engine, std::exchange(sent_, {}), {}); }

 private:
  void MakeUnits(const Engine& engine) {
    plan_ = engine.plan();
    units_.clear();
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      const std::size_t date = plan_.units[u].date;
      if (units_.size() <= date) units_.resize(date + 1);
      units_[date].push_back(u);
    }
    if (!steps_.when_idle) dates_.emplace(steps_, units_.size());
  }

  // Ranks agree whether the exchange was over on all of them when the step began. They learn it
  // beside the step, and all receive at its end: anchors move at equal steps, and no rank waits
  // for another but one that has not begun the step.
  void AskWhetherOver(Engine& engine) {
    over_ = false;
    if (sent_.empty() || engine.step() + 1 < sent_at_ + steps_.delay) return;
    const auto is_busy = [&](Handle exchange) { return !engine.IsOver(exchange); };
    const bool busy = std::ranges::any_of(sent_, is_busy);
    engine.Negotiate({.values = {busy ? 1 : 0}, .then = [this](std::span<const std::int64_t> all) {
                        over_ = all.front() == 0;
                      }});
  }

  // Receives a fragment whose exchange is over, then sends the next one: with one fragment, from
  // the anchor that has just moved.
  void GoOn(Engine& engine, std::uint64_t step) {
    std::vector<Handle> received;
    if (std::exchange(over_, false)) {
      received = Receive(engine, std::exchange(sent_, {}), {});
      RenewInnerState(engine, (next_ + units_.size() - 1) % units_.size());
    }
    if (!sent_.empty()) return;
    Send(engine, next_, received);
    next_ = (next_ + 1) % units_.size();
    sent_at_ = step;
  }

  // Sends each fragment from the memory of the previous one, which must have been received.
  std::vector<Handle> Send(Engine& engine, std::size_t fragment,
                           const std::vector<Handle>& under_way) {
    std::vector<Handle> all;
    const PackSource source = steps_.outer == OuterRule::kAverage   ? PackSource::kParameters
                              : steps_.outer == OuterRule::kElastic ? PackSource::kElastic
                                                                    : PackSource::kDifference;
    for (const std::size_t u : units_[fragment]) {
      const Unit& unit = plan_.units[u];
      std::vector<Handle> packed;
      DenseSum sum;
      SparseSum selected;
      for (std::size_t t = unit.first; t < unit.last; ++t) {
        const TensorEntry& tensor = engine.layout().tensor(t);
        if (tensor.numel == 0) continue;
        const Handle pack =
            engine.Pack({.tensor = t, .source = source, .order = {.after = under_way}});
        all.push_back(pack);
        if (unit.sparsified == Sparsified::kNever || tensor.dense) {
          packed.push_back(pack);
          sum.ranges.push_back(tensor.range());
          continue;
        }
        selected.selections.push_back(
            engine.Sparsify({.range = tensor.range(),
                             .density = plan_.TensorOf(engine.layout(), t).density,
                             .order = {.after = {pack}}}));
        all.push_back(selected.selections.back());
      }
      const bool background = steps_.delay > 0;
      ExchangeRequest exchange{
          .pattern = {},
          .channel = background ? Channel::kBackground : Channel::kData,
          .label = Concat("fragment ", fragment, ", unit ", u, " of step ", engine.step() + 1),
          .background = background};
      if (!sum.ranges.empty()) {
        std::ranges::sort(sum.ranges, {}, &Range::begin);
        exchange.pattern = std::move(sum);
        exchange.order.after = std::move(packed);
        sent_.push_back(engine.Exchange(exchange));
      }
      if (!selected.selections.empty()) {
        exchange.pattern = std::move(selected);
        exchange.order.after.clear();
        sent_.push_back(engine.Exchange(std::move(exchange)));
      }
    }
    return all;
  }

  // One after another, if they are clipped together.
  std::vector<Handle> Receive(Engine& engine, const std::vector<Handle>& exchanges,
                              std::vector<Handle> after) {
    std::vector<Handle> all;
    for (std::size_t i = 0; i < exchanges.size(); ++i) {
      const Handle applied = engine.Apply({.exchange = exchanges[i],
                                           .to = ApplyTo::kAnchor,
                                           .last = i + 1 == exchanges.size(),
                                           .order = {.after = after}});
      all.push_back(applied);
      if (steps_.outer_clip > 0) after = {applied};
    }
    return all;
  }

  // Begins the inner optimizer's state of a fragment anew, or averages it over ranks: array by
  // array, which is not hidden beside training.
  void RenewInnerState(Engine& engine, std::size_t fragment) {
    if (steps_.inner == InnerState::kKeep) return;
    const GradientLayout& layout = engine.layout();
    for (const std::size_t u : units_[fragment]) {
      std::vector<Range> ranges;
      for (std::size_t t = plan_.units[u].first; t < plan_.units[u].last; ++t) {
        if (layout.tensor(t).numel > 0) ranges.push_back(layout.tensor(t).range());
      }
      if (ranges.empty()) continue;
      std::ranges::sort(ranges, {}, &Range::begin);
      if (steps_.inner == InnerState::kReset) {
        for (const Range& range : ranges) engine.Apply({.own = range, .to = ApplyTo::kInnerState});
        continue;
      }
      for (std::size_t array = 1; array <= engine.inner_arrays(); ++array) {
        std::vector<Handle> packed;
        for (std::size_t t = plan_.units[u].first; t < plan_.units[u].last; ++t) {
          if (layout.tensor(t).numel == 0) continue;
          packed.push_back(
              engine.Pack({.tensor = t, .source = PackSource::kInnerState, .array = array}));
        }
        const Handle sum =
            engine.Exchange({.pattern = DenseSum{.ranges = ranges, .array = array},
                             .counts = 0,  // none of the method's elements
                             .label = Concat("inner state ", array, ", fragment ", fragment,
                                             ", unit ", u, " of step ", engine.step() + 1),
                             .order = {.after = std::move(packed)}});
        engine.Apply({.exchange = sum, .to = ApplyTo::kInnerState});
      }
    }
  }

  LocalSteps steps_;
  Plan plan_;                                    // the plan that the units were made for
  std::vector<std::vector<std::size_t>> units_;  // [fragments] of the plan
  std::optional<FragmentDates> dates_;
  std::vector<Handle> sent_;  // exchanges not yet received

  // With when_idle.
  std::size_t next_ = 0;       // fragment
  std::uint64_t sent_at_ = 0;  // step
  bool over_ = false;          // the exchange of the step that begins
};

std::vector<OptionSpec> LocalStepsOptions() {
  return {
      WholeOption("every", 32, 1, 1e6, "steps of a window: H"),
      WholeOption("delay", 0, 0, 1e6,
                  "steps from the send of a fragment to its receipt, during which its exchange "
                  "overlaps with training; below every / fragments, or `every` with one fragment"),
      NumberOption("mix", 0.0, 0, 1,
                   "weight of the rank's own parameters when the anchor is received: 0 takes the "
                   "anchor, 1 ignores it"),
      ChoiceOption("outer", "average", {"average", "sgd", "momentum", "nesterov", "elastic"},
                   "how the anchor moves: to the average of the parameters, by an optimizer that "
                   "gets the average of the differences, or by an elastic force"),
      NumberOption("outer_rate", 1.0, 0, 1e3,
                   "learning rate of the outer optimizer; with elastic the strength of the force, "
                   "at most 1 / workers"),
      NumberOption("outer_momentum", 0.0, 0, 1, "momentum of the outer optimizer"),
      ChoiceOption(
          "first", "short", {"short", "long"},
          "length of a fragment's first window: until its first date, or one window longer"),
      NumberOption("penalty", 1.0, 1, 1e6,
                   "divisor of the average of differences before the outer rule, for averages that "
                   "come late; 1: none"),
      ChoiceOption("inner_state", "keep", {"keep", "reset", "average"},
                   "the treatment of the optimizer's state of received parameters: it stays, "
                   "begins anew, or is averaged over ranks, which wait"),
      NumberOption(
          "outer_clip", 0.0, 0, 1e9,
          "largest norm of the outer momentum over the tensors that are received together, "
          "which is scaled down to it; 0: any"),
      ChoiceOption("trigger", "steps", {"steps", "idle"},
                   "when an exchange begins: at set steps, or as soon as the one before is "
                   "received; idle receives it at the end of the first step that all ranks begin "
                   "with its result, `delay` steps or more after its send, so that results depend "
                   "on times; windows of `every` steps then serve measurements only")};
}

std::vector<OptionSpec> SparseLocalStepsOptions() {
  std::vector<OptionSpec> options = LocalStepsOptions();
  options.push_back(ChoiceOption(
      "combine", "ranks", {"ranks", "senders"},
      "divisor of an element's sum: all ranks, or those that sent it, as published code has it"));
  options.push_back(ChoiceOption(
      "clip", "none", {"none", "median"},
      "median: a rank's values of a tensor are scaled down to the median norm over ranks, the "
      "lower one of an even number"));
  return options;
}

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

std::unique_ptr<Strategy> Make(const Options& options) {
  return std::make_unique<LocalStepsStrategy>(LocalStepsOf(options));
}

}  // namespace

const StrategyDescriptor kLocalSteps = {
    .name = "local-steps",
    .summary =
        "ranks train by themselves for a window of steps; then fragments of their parameters, or "
        "of the parameters' changes, are averaged",
    .source =
        "Stich, ICLR 2019; Douillard et al., DiLoCo, arXiv 2311.08105, and Streaming DiLoCo, "
        "arXiv 2501.18512",
    .revision = 2,
    .deviations =
        "A lost rank is an error; there is no quorum. Exchanges beside training are received at a "
        "fixed step, not on arrival; with trigger = idle at a step that the ranks agree on.",
    .sparsified = Sparsified::kNever,
    .options = LocalStepsOptions(),
    .make = Make,
    .dense_units = true,
    .local_steps = LocalStepsOf};

const StrategyDescriptor kSparseLocalSteps = {
    .name = "sparse-local-steps",
    .summary = "like local-steps, but averages selections of each tensor's differences",
    .source = "Sarfi et al., SparseLoCo, arXiv 2508.15706",
    .revision = 2,
    .deviations = "The same as of local-steps.",
    .sparsified = Sparsified::kAhead,
    .options = SparseLocalStepsOptions(),
    .make = Make,
    .dense_units = true,
    .local_steps = LocalStepsOf};

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
    .make = [](const Options&) -> std::unique_ptr<Strategy> {
      return std::make_unique<DelayedGradients>();
    },
    .dense_units = true,
    .delays = true};

}  // namespace sparfuse
