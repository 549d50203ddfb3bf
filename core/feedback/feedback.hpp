// Describes what becomes of the part of a gradient that is not sent, and warms the density up: the
// first epochs send more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/feedback/momentum/momentum.hpp"

namespace sparfuse {

struct DensityWarmup {
  std::size_t epochs = 0;            // W; 0: no warm-up
  std::optional<double> factor;      // w in (0, 1]; by default density^(1 / (W + 1))
  std::span<const double> schedule;  // instead of w: the density of each of the W epochs
};

// The density of an epoch, counted from 0: max(w^(epoch + 1), density), or schedule[epoch], for
// epoch < W, then `density`. Throws Error{kConfig} for a density or factor outside (0, 1], a
// schedule shorter than W, and a factor beside a schedule.
double WarmupDensity(std::size_t epoch, double density, const DensityWarmup& warmup);

enum class FeedbackKind : std::uint8_t {
  kNone,      // it is lost
  kResidual,  // it is added to the next gradient
  kMomentum,  // DGC's momentum correction: velocities are what is added
  kOwn,       // by a rule from outside
};

// What a part from outside does with what is not sent, on the host. Of one rank; used by one thread
// at a time for each tensor. Its errors are Error{kConfig} that name it.
class FeedbackRule {
 public:
  virtual ~FeedbackRule() = default;
  // Residual + what is sent stays x, bit for bit.
  virtual bool conserves() const noexcept = 0;
  // x: [n] what is selected from. residual: [n] what Keep left, zeros at first.
  virtual void Compensate(std::string_view name, std::span<const float> gradient,
                          std::span<const float> residual, std::span<float> x) const = 0;
  // indices: of x, increasing; what is sent of it. Overwrites the residual.
  virtual void Keep(std::string_view name, std::span<const float> x,
                    std::span<const std::uint32_t> indices, std::span<float> residual) const = 0;
};

struct Feedback {
  FeedbackKind kind = FeedbackKind::kNone;
  MomentumOptions momentum = {};  // kMomentum
  // kResidual: what a residual is multiplied with where the next gradient is added, in (0, 1].
  // Below 1 what is not sent fades, so that residuals and what is applied do not add up to the
  // gradients.
  double decay = 1;
  // kResidual: what the gradient is multiplied with first. 1 but for what a collective selects
  // from.
  double rate = 1;
  // kMomentum: largest norm of what is selected from (a tensor's gradient, or a fused unit's)
  // before momentum; 0: any. For a limit c on the average of P ranks pass c / sqrt(P), as DGC does.
  double clip = 0;

  // Density warm-up: `warmup_epochs` epochs of `epoch_steps` steps, in which more is sent.
  std::size_t warmup_epochs = 0;
  std::size_t epoch_steps = 1;

  // kOwn: makes a rank's rule, and the rule, where this is a rank's.
  std::function<std::shared_ptr<const FeedbackRule>()> make_rule = {};
  std::shared_ptr<const FeedbackRule> rule = {};

  std::string_view name = "none";  // of its descriptor

  // What densities are multiplied with in a step, for a method of this density.
  double DensityFactor(std::uint64_t step, double density) const;
};

struct FeedbackDescriptor {
  std::string_view name, summary;
  // Of one from outside.
  std::vector<OptionSpec> options = {};
  std::function<std::shared_ptr<const FeedbackRule>(const Options& resolved)> make = {};
};
// "none", "residual", "momentum", and "decoupled": a residual as a momentum that each rank has of
// its own, which fades, and from which the collective selects.
std::span<const FeedbackDescriptor> Feedbacks();

// `kind`: one of their names, or of one from outside (core/base/outside_parts.hpp). Throws
// Error{kConfig} naming the nearest known name, and for a decay outside (0, 1].
std::span<const OptionSpec> FeedbackOptions(std::string_view kind);
Feedback MakeFeedback(std::string_view kind, const Options& resolved);

}  // namespace sparfuse
