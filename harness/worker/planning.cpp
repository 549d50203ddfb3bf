#include "harness/worker/planning.hpp"

#include <string>
#include <unordered_map>

#include "core/base/options.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/worker/profiling/profiler.hpp"
#include "harness/worker/rank/replica.hpp"

namespace sparfuse::harness {
namespace {

// SAFusion's code times 50 passes after 5. Here as many run as two seconds allow.
constexpr ProfileEffort kEffort{
    .backward = {.warmup_steps = 5, .steps = 5, .seconds = 2}, .repeats = 5, .elements = 0};

}  // namespace

Planning::Planning(const Rank& rank, const Composition& composition, const Topology& topology,
                   const GradientLayout& layout, std::span<const std::size_t> ready_order)
    : rank_(rank),
      composition_(composition),
      topology_(topology),
      layout_(layout),
      warmup_steps_(static_cast<std::uint64_t>(rank.config.warmup_steps)),
      replan_every_(static_cast<std::uint64_t>(IntOption(composition.sending, "replan_every"))),
      observed_(layout.tensors()) {
  if (composition.needs_profile()) MeasureProfile(ready_order);
}

void Planning::MeasureProfile(std::span<const std::size_t> ready_order) {
  const auto workload = MakeTrialWorkload(rank_);
  ProfileSubject subject{*workload, {ready_order.begin(), ready_order.end()}, {}, {}};
  const std::uint64_t seed = rank_.seed;
  if (composition_.sparsifier != nullptr) {
    subject.sparsifiers.push_back(
        {composition_.sparsifier, composition_.MakeSparsifier(seed), {composition_.density}});
  }
  if (auto quantizer = composition_.MakeDenseQuantizer(seed)) {
    subject.quantizers.push_back(std::move(quantizer));
  }
  profile_ = harness::MeasureProfile(rank_, subject, kEffort);
  backward_ = BackwardOf(*profile_, layout_);
  cost_ = KernelCosts(*profile_);
  if (rank_.size() > 1) AddLink(cost_, *profile_);
  cost_.exchange_host_seconds = rank_.config.exchange_host_seconds();
}

std::optional<Plan> Planning::At(std::uint64_t step) {
  const bool replans = replan_every_ > 0 && step > warmup_steps_ &&
                       (step - warmup_steps_) % replan_every_ == 0 && !IsDense(step);
  const bool dense_no_more = step > 0 && step == composition_.dense_warmup_steps;
  if (!replans && !dense_no_more) return std::nullopt;
  if (replans && rank_.rank() == 0) {
    for (std::size_t t = 0; t < observed_.size(); ++t) {
      backward_.backward_seconds[t] = Median(observed_[t]);
      observed_[t].clear();
    }
  }
  return Make(step);
}

void Planning::Observe(std::uint64_t step, const Timeline& timeline) {
  if (replan_every_ == 0 || step < warmup_steps_ || rank_.rank() != 0) return;
  std::unordered_map<std::string, double> seconds;
  for (const Span& span : timeline.Sorted()) {
    if (span.kind == SpanKind::kBackward) {
      seconds[span.label] += span.end_seconds - span.begin_seconds;
    }
  }
  // A tensor without a gradient took no time.
  for (std::size_t t = 0; t < observed_.size(); ++t)
    observed_[t].push_back(seconds[layout_.tensor(t).name]);
}

Plan Planning::Make(std::uint64_t step) {
  const bool profiled = profile_.has_value();
  Plan plan;
  if (rank_.rank() == 0) {
    plan = MakePlan(composition_, layout_, topology_, profiled ? &backward_ : nullptr,
                    profiled ? &cost_ : nullptr);
    if (IsDense(step)) plan = DensePlan(plan);
  }
  plan = SharePlan(rank_.loop, plan, layout_);
  plans_.push_back(SummaryOf(plan, layout_, step));
  return plan;
}

void Planning::Describe(Outcome& outcome) const {
  outcome.plans = nlohmann::json::array();
  for (const PlanSummary& plan : plans_) outcome.plans.push_back(ToJson(plan));
  if (profile_) outcome.profile = ToJson(*profile_);
}

}  // namespace sparfuse::harness
