// Describes error feedback, which decides the fate of unsent gradients. Warms the density up: the
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
  kNone,      // unsent values are lost
  kResidual,  // unsent values are added to the next gradient
  kMomentum,  // DGC's momentum correction: velocities accumulate instead of gradients
  kOwn,       // a rule from outside decides
};

// An outside part's rule for unsent values, on the host. It belongs to one rank; one thread at a
// time uses it for a tensor. Its errors are Error{kConfig} that name it.
class FeedbackRule {
 public:
  virtual ~FeedbackRule() = default;
  // Whether residual + sent values equals x, bit for bit.
  virtual bool conserves() const noexcept = 0;
  // Computes x, [n], the input of the selection. residual: [n] as Keep left it, zeros at first.
  virtual void Compensate(std::string_view name, std::span<const float> gradient,
                          std::span<const float> residual, std::span<float> x) const = 0;
  // Overwrites the residual. indices: of the sent elements of x, increasing.
  virtual void Keep(std::string_view name, std::span<const float> x,
                    std::span<const std::uint32_t> indices, std::span<float> residual) const = 0;
};

struct Feedback {
  FeedbackKind kind = FeedbackKind::kNone;
  MomentumOptions momentum = {};  // kMomentum
  // kResidual: the factor on a residual when the next gradient is added, in (0, 1]. Below 1 unsent
  // values fade, so that residuals and applied values do not sum to the gradients.
  double decay = 1;
  // kResidual: the factor on the gradient before it is added. 1 unless a collective selects from
  // the residual.
  double rate = 1;
  // kMomentum: the largest norm, before momentum, of the gradient of a tensor or a fused unit; 0:
  // no limit. For a limit c on the average of P ranks pass c / sqrt(P), as DGC does.
  double clip = 0;

  // Density warm-up: `warmup_epochs` epochs of `epoch_steps` steps, in which densities are higher.
  std::size_t warmup_epochs = 0;
  std::size_t epoch_steps = 1;

  // kOwn: make_rule makes a rank's rule; `rule` is set if this Feedback belongs to a rank.
  std::function<std::shared_ptr<const FeedbackRule>()> make_rule = {};
  std::shared_ptr<const FeedbackRule> rule = {};

  std::string_view name = "none";  // of its descriptor

  // The factor on densities in a step, for a method of this density.
  double DensityFactor(std::uint64_t step, double density) const;
};

struct FeedbackDescriptor {
  std::string_view name, summary;
  // For a feedback from outside.
  std::vector<OptionSpec> options = {};
  std::function<std::shared_ptr<const FeedbackRule>(const Options& resolved)> make = {};
};
// "none", "residual", "momentum" and "decoupled". The last is a residual that serves as each rank's
// own momentum: it fades, and the collective selects from it.
std::span<const FeedbackDescriptor> Feedbacks();

// `kind`: one of these names, or the name of a part from outside (core/base/outside_parts.hpp).
// Throws Error{kConfig} naming the nearest known name, and for a decay outside (0, 1].
std::span<const OptionSpec> FeedbackOptions(std::string_view kind);
Feedback MakeFeedback(std::string_view kind, const Options& resolved);

}  // namespace sparfuse
