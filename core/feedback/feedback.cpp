#include "core/feedback/feedback.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/outside_parts.hpp"

namespace sparfuse {

namespace {

void RequireFraction(const std::string& what, double value) {
  SPARFUSE_REQUIRE(value > 0 && value <= 1, "density warm-up: ", what, " = ", value,
                   ": expected a number in (0, 1]");
}

using Outside = OutsideParts<FeedbackDescriptor>;

constexpr std::string_view kDecoupled = "decoupled";
// In the order of Feedbacks().
constexpr FeedbackKind kKinds[] = {FeedbackKind::kNone, FeedbackKind::kResidual,
                                   FeedbackKind::kMomentum, FeedbackKind::kResidual};

FeedbackKind KindOf(std::string_view name) {
  if (Outside::Find(name) != nullptr) return FeedbackKind::kOwn;
  std::vector<std::string> known;
  for (const FeedbackDescriptor& feedback : Feedbacks()) {
    if (feedback.name == name) return kKinds[known.size()];
    known.emplace_back(feedback.name);
  }
  SPARFUSE_THROW(kConfig, "unknown feedback \"", name, "\"", Suggestion(name, known));
}

}  // namespace

double WarmupDensity(std::size_t epoch, double density, const DensityWarmup& warmup) {
  RequireFraction("density", density);
  if (warmup.factor) RequireFraction("factor", *warmup.factor);
  if (!warmup.schedule.empty()) {
    SPARFUSE_REQUIRE(!warmup.factor, "density warm-up: factor and schedule exclude one another");
    SPARFUSE_REQUIRE(warmup.schedule.size() >= warmup.epochs, "density warm-up: the schedule has ",
                     warmup.schedule.size(), " densities; expected one for each of ", warmup.epochs,
                     " epochs");
    for (std::size_t e = 0; e < warmup.schedule.size(); ++e) {
      RequireFraction("schedule[" + std::to_string(e) + "]", warmup.schedule[e]);
    }
  }
  if (epoch >= warmup.epochs) return density;
  if (!warmup.schedule.empty()) return warmup.schedule[epoch];
  const double factor =
      warmup.factor.value_or(std::pow(density, 1.0 / (static_cast<double>(warmup.epochs) + 1)));
  return std::max(std::pow(factor, static_cast<double>(epoch) + 1), density);
}

std::span<const FeedbackDescriptor> Feedbacks() {
  static const std::vector<FeedbackDescriptor> kFeedbacks = {
      {"none", "elements that are not sent are lost"},
      {"residual", "elements that are not sent are added to the next gradient"},
      {"momentum", "DGC's momentum correction: velocities that are not sent are kept and added"},
      {kDecoupled,
       "DeMo's momentum: elements that are not sent fade, and gradients are added times a rate"}};
  return kFeedbacks;
}

double Feedback::DensityFactor(std::uint64_t step, double density) const {
  if (warmup_epochs == 0 || density >= 1) return 1;
  return WarmupDensity(step / epoch_steps, density, {warmup_epochs, {}, {}}) / density;
}

std::span<const OptionSpec> FeedbackOptions(std::string_view kind) {
  static const std::vector<OptionSpec> kWarmup = {
      WholeOption(
          "warmup_epochs", 0, 0, 1e6,
          "epochs over which the density falls from density^(1 / (epochs + 1)) to its value"),
      WholeOption("epoch_steps", 1, 1, 1e9, "steps of a warm-up epoch")};
  static const std::vector<OptionSpec> kResidual = [] {
    std::vector<OptionSpec> specs = kWarmup;
    specs.push_back(
        NumberOption("decay", 1.0, 0, 0,
                     "x = gradient + decay * residual, in (0, 1]; below 1 the residual fades"));
    return specs;
  }();
  static const std::vector<OptionSpec> kMomentum = [] {
    const MomentumOptions defaults;
    std::vector<OptionSpec> specs = {
        {"momentum", defaults.momentum, 0, 0.999999, {}, "factor m of u = m * u + g"},
        {"nesterov", defaults.nesterov, 0, 0, {}, "u = m * (u + g), and u + g accumulates"},
        {"masking", defaults.masking, 0, 0, {}, "velocities of sent elements become zero"},
        NumberOption("clip", 0.0, 0, 1e30, "largest norm of a gradient before momentum; 0: any")};
    specs.insert(specs.end(), kWarmup.begin(), kWarmup.end());
    return specs;
  }();
  static const std::vector<OptionSpec> kOfDecoupled = {
      NumberOption("decay", 0.999, 0, 0, "x = rate * gradient + decay * momentum, in (0, 1]"),
      NumberOption("rate", 1.0, 0, 0, "the learning rate within the momentum, above 0")};
  if (kind == kDecoupled) return kOfDecoupled;
  switch (KindOf(kind)) {
    case FeedbackKind::kNone:
      return {};
    case FeedbackKind::kResidual:
      return kResidual;
    case FeedbackKind::kMomentum:
      return kMomentum;
    case FeedbackKind::kOwn:
      return Outside::Find(kind)->options;
  }
  return {};
}

Feedback MakeFeedback(std::string_view kind, const Options& resolved) {
  Feedback feedback;
  feedback.kind = KindOf(kind);
  for (const FeedbackDescriptor& each : Feedbacks()) {
    if (each.name == kind) feedback.name = each.name;
  }
  if (feedback.kind == FeedbackKind::kNone) return feedback;
  if (feedback.kind == FeedbackKind::kOwn) {
    feedback.name = Outside::Find(kind)->name;
    feedback.make_rule = [outside = Outside::Find(kind), resolved] {
      return outside->make(resolved);
    };
    return feedback;
  }
  if (kind == kDecoupled) {
    feedback.rate = DoubleOption(resolved, "rate");
    SPARFUSE_REQUIRE(feedback.rate > 0 && std::isfinite(feedback.rate),
                     "feedback decoupled: rate = ", ToString(feedback.rate),
                     ": expected a number above 0");
  } else {
    feedback.warmup_epochs = static_cast<std::size_t>(IntOption(resolved, "warmup_epochs"));
    feedback.epoch_steps = static_cast<std::size_t>(IntOption(resolved, "epoch_steps"));
  }
  if (feedback.kind == FeedbackKind::kResidual) {
    feedback.decay = DoubleOption(resolved, "decay");
    SPARFUSE_REQUIRE(feedback.decay > 0 && feedback.decay <= 1,  // false for NaN
                     "feedback ", kind, ": decay = ", ToString(feedback.decay),
                     ": expected a number in (0, 1]; without a residual it is feedback "
                     "\"none\"");
  }
  if (feedback.kind == FeedbackKind::kMomentum) {
    feedback.momentum = {DoubleOption(resolved, "momentum"), BoolOption(resolved, "nesterov"),
                         BoolOption(resolved, "masking")};
    feedback.clip = DoubleOption(resolved, "clip");
  }
  return feedback;
}

}  // namespace sparfuse
