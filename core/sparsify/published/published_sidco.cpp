// Selects by SIDCo as published code does: fits a distribution to the magnitudes, then to those
// above its threshold, stage by stage. Each stage keeps a fraction of the survivors of the one
// before.
//
// Source: A. M. Abdelmoniem et al., "An efficient statistical-based gradient compression technique
// for distributed training systems", MLSys 2021.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "core/sparsify/published/published.hpp"
#include "core/sparsify/scan/quantiles.hpp"

namespace sparfuse {
namespace {

constexpr double kFirstDensity = 0.25;  // target of the first of several stages
constexpr double kNoThreshold = std::numeric_limits<double>::quiet_NaN();

enum class PublishedFit { kExponential, kPareto, kGamma, kNormal };

PublishedFit PublishedFitOf(const std::string& name) {
  if (name == "exponential") return PublishedFit::kExponential;
  if (name == "pareto") return PublishedFit::kPareto;
  return name == "gamma" ? PublishedFit::kGamma : PublishedFit::kNormal;
}

double ExponentialQuantile(const Moments& y, double density) { return -y.mean * std::log(density); }

// Returns the quantile of the two-sided normal distribution, defined up to a density of 2.
double NormalQuantile(const Moments& y, double density) {
  const double deviation = std::sqrt(y.variance);
  if (density <= 1) return y.mean + TwoSidedNormalQuantile(density) * deviation;
  return density < 2 ? y.mean - TwoSidedNormalQuantile(2 - density) * deviation : kNoThreshold;
}

// Returns Q(shape, x), the fraction of a gamma distribution of scale 1 above x > 0.
double GammaTail(double shape, double x) {
  constexpr double kEpsilon = 1e-16;
  const double log_factor = shape * std::log(x) - x - LogGamma(shape);
  if (x < shape + 1) {  // 1 - the power series of P
    double term = 1 / shape;
    double sum = term;
    for (double a = shape + 1; term > sum * kEpsilon; ++a) {
      term *= x / a;
      sum += term;
    }
    return 1 - sum * std::exp(log_factor);
  }
  // Lentz's method for the continued fraction.
  double b = x + 1 - shape;
  double c = std::numeric_limits<double>::max();
  double d = 1 / b;
  double fraction = d;
  for (double i = 1; i < 1e6; ++i) {
    const double a = -i * (i - shape);
    b += 2;
    d = 1 / (a * d + b);
    c = b + a / c;
    fraction *= d * c;
    if (std::abs(d * c - 1) < kEpsilon) break;
  }
  return fraction * std::exp(log_factor);
}

// Returns the x with Q(shape, x) = density. density in (0, 1).
double GammaQuantile(double shape, double density) {
  constexpr double kNormalFrom = 1e5;  // from here on Wilson and Hilferty are exact to 1e-8
  if (shape > kNormalFrom) {
    const double z = NormalQuantile({0, 1}, 2 * density);
    const double root = 1 - 1 / (9 * shape) + z / std::sqrt(9 * shape);
    return shape * root * root * root;
  }
  double low = -700;  // bounds of log(x)
  double high = std::log(shape + 100 + 100 * std::sqrt(shape));
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (GammaTail(shape, std::exp(middle)) > density ? low : high) = middle;
  }
  return std::exp(low);
}

// Fits a gamma distribution to |x| / norm(x) by its maximum-likelihood estimate in closed form.
double GammaThreshold(const PublishedCall& call, const Moments& x, double density,
                      bool approximate) {
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();  // gives zeros a logarithm
  const auto n = static_cast<double>(call.input.n);
  const double norm = std::sqrt(n * x.mean * x.mean + (n - 1) * x.variance);
  const double logs =
      SumOver(call, [&](double value) { return std::log(std::abs(value) / norm + kEpsilon); });
  const double mean = x.mean / norm;
  const double s = std::log(mean) - logs / n;
  if (!(s > 0)) return kNoThreshold;  // all magnitudes are equal, up to rounding
  const double shape = GammaShape(s);
  const double scale = norm * mean / shape;
  if (approximate) return SmallGammaQuantile(shape, scale, density);
  return scale * GammaQuantile(shape, density);
}

// The values above a threshold, and their moments less the smallest value.
struct Survivors {
  std::size_t count = 0;
  double smallest = 0;
  Moments above;
};

Survivors SurvivorsOf(const PublishedCall& call, double threshold) {
  struct Part {
    std::size_t count;
    std::uint32_t smallest;
    double sum;
    double squares;
  };
  const std::uint32_t lo = KeyFrom(Comparison::kAbove, threshold);
  const double origin = std::max(threshold, 0.0);  // near the values: squares do not cancel
  const auto add = [&](Part& part, std::size_t begin, std::size_t end) {
    part.smallest = kInfinityKey;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t key = KeyOf(call.input.x()[i]);
      if (key < lo) continue;
      const double above = static_cast<double>(std::bit_cast<float>(key)) - origin;
      ++part.count;
      part.smallest = std::min(part.smallest, key);
      part.sum += above;
      part.squares += above * above;
    }
  };
  Part total{0, kInfinityKey, 0, 0};
  for (const Part& part : ForChunks<Part>(call, add)) {
    total.count += part.count;
    total.smallest = std::min(total.smallest, part.smallest);
    total.sum += part.sum;
    total.squares += part.squares;
  }
  Survivors survivors{total.count, static_cast<double>(std::bit_cast<float>(total.smallest)), {}};
  survivors.above.mean =
      total.sum / static_cast<double>(total.count) - (survivors.smallest - origin);
  survivors.above.variance = SampleVariance(total.count, total.sum, total.squares);
  return survivors;
}

struct SidcoForm {
  PublishedFit fit;
  int stages;            // 0: as many as stage_density asks for
  double stage_density;  // if stages = 0: the fraction that a later stage keeps
  bool approximate_gamma;
};

double FirstThreshold(const PublishedCall& call, const SidcoForm& form, double density) {
  const Moments x = call.Magnitudes();
  switch (form.fit) {
    case PublishedFit::kExponential:
      return ExponentialQuantile(x, density);
    case PublishedFit::kPareto:
      return ParetoQuantile(x.mean, x.variance, density);
    case PublishedFit::kGamma:
      return GammaThreshold(call, x, density, form.approximate_gamma);
    case PublishedFit::kNormal:
      return NormalQuantile(x, density);
  }
  return kNoThreshold;
}

// Returns a NaN if a stage has nothing to fit.
double Threshold(const PublishedCall& call, const SidcoForm& form) {
  const bool at_once = form.stages == 1 || call.density >= kFirstDensity;
  double threshold = FirstThreshold(call, form, at_once ? call.density : kFirstDensity);
  if (form.stages == 1) return threshold;
  const double rest = call.density / kFirstDensity;
  const int later = form.stages == 0
                        ? static_cast<int>(std::ceil(std::log(rest) / std::log(form.stage_density)))
                        : form.stages - 1;
  for (int stage = 1; stage <= later; ++stage) {
    double ratio = std::pow(rest, 1.0 / later);
    if (form.stages == 0) {
      ratio = stage < later ? form.stage_density : rest / std::pow(form.stage_density, later - 1);
    }
    const Survivors survivors = SurvivorsOf(call, threshold);
    if (survivors.count == 0) return kNoThreshold;
    const Moments& y = survivors.above;
    threshold = survivors.smallest +
                (form.fit == PublishedFit::kExponential ? ExponentialQuantile(y, ratio)
                 : form.fit == PublishedFit::kNormal    ? NormalQuantile(y, ratio)
                                                     : ParetoQuantile(y.mean, y.variance, ratio));
  }
  return threshold;
}

// Adapts the number of stages to the counts of all tensors together, in the order of selections.
class StageControl {
 public:
  explicit StageControl(int mode) : mode_(mode) {}

  int stages() {
    const std::lock_guard lock(mutex_);
    return stages_;
  }

  // `achieved`: count / (n * density).
  void Learn(double achieved, double density) {
    constexpr int kPeriod = 5;  // selections
    const std::lock_guard lock(mutex_);
    sum_ += achieved;
    if (++selections_ < kPeriod) return;
    const double mean = sum_ / kPeriod;
    sum_ = 0;
    selections_ = 0;
    const double error = std::abs(mean - 1);
    if ((mode_ == -2 && error > last_error_) || (mode_ == -3 && error >= last_error_)) {
      direction_ = -direction_;
    }
    last_error_ = error;
    if (mean > 1.2) stages_ -= direction_;
    if (mean < 0.8) stages_ += direction_;
    const int most = static_cast<int>(std::ceil(std::log2(1 / density)));
    stages_ = std::clamp(stages_, 1, std::max(most, 1));
  }

 private:
  const int mode_;
  std::mutex mutex_;
  int stages_ = 1;
  int direction_ = 1;
  int selections_ = 0;
  double sum_ = 0;
  double last_error_ = std::numeric_limits<double>::infinity();
};

std::unique_ptr<Sparsifier> MakeSaf(const Options& resolved, std::uint64_t /*seed*/) {
  const SidcoForm form{PublishedFitOf(StringOption(resolved, "fit")), 1, 1, true};
  return MakePublished("sidco@saf", [form](const PublishedCall& call) {
    call.Take(Comparison::kAbove, Threshold(call, form));
  });
}

std::unique_ptr<Sparsifier> MakeRepo(const Options& resolved, std::uint64_t /*seed*/) {
  const int stages = static_cast<int>(IntOption(resolved, "stages"));
  const SidcoForm form{PublishedFitOf(StringOption(resolved, "fit")), stages,
                       DoubleOption(resolved, "stage_density"),
                       BoolOption(resolved, "approximate_gamma")};
  // Only the copies of the rule share it.
  const auto control = std::make_shared<StageControl>(stages);
  return MakePublished("sidco@repo", [form, control](const PublishedCall& call) {
    SidcoForm now = form;
    if (form.stages < 0) now.stages = control->stages();
    const std::size_t count = call.Take(Comparison::kAbove, Threshold(call, now));
    if (form.stages < 0) control->Learn(static_cast<double>(count) / call.Target(), call.density);
  });
}

OptionSpec FitOption(std::vector<std::string> choices) {
  return ChoiceOption("fit", "exponential", std::move(choices),
                      "distribution that is fitted to the magnitudes");
}

}  // namespace

std::vector<SparsifierDescriptor> PublishedSidcoDescriptors() {
  SparsifierDescriptor saf{
      .name = "sidco@saf",
      .paper = "Abdelmoniem et al., MLSys 2021",
      .selection_model = {-0.868, 1.698},
      .contraction = OneElement,
      .deviations =
          "In the code of SAFusion, SSFusion, WFBP and ADTopk: one stage, never adapted. With "
          "fit = exponential it sends 0.02 / 1.0 / 1.5 times k of Gaussian / Laplace / Student t "
          "(3) data, pareto 1.6 / 1.0 / 0.8, gamma 0.5 / 1.0 / 1.6.",
      .options = {FitOption({"exponential", "pareto", "gamma"})},
      .make = MakeSaf,
      .aliases = {"sidco@ssf", "sidco@wfbp", "sidco@adtopk"},
      .unbounded_count = true,
      .reusable_threshold = true};
  SparsifierDescriptor repo = saf;
  repo.name = "sidco@repo";
  repo.deviations =
      "In SIDCo's own code: the number of stages of all tensors is adapted together, from the "
      "mean density of five selections in a row, so that it depends on their order; that state "
      "is the sparsifier's, one for a rank, not the tensor's. One stage by default: exponential "
      "sends 0.02 / 1.0 / 1.5 times k of Gaussian / Laplace / Student t (3) data, two stages 0.6 "
      "/ 1.0 / 1.2, three 1.1 / 1.0 / 0.7. The changes of direction of stages -2 and -3 are this "
      "project's reading.";
  repo.options = {
      FitOption({"exponential", "pareto", "gamma", "normal"}),
      WholeOption("stages", 1, -3, 64,
                  "number of fits; 0: as stage_density asks for; -1, -2, -3: adapted to the "
                  "counts, the last two with changes of direction"),
      NumberOption("stage_density", 0.25, 0.001, 0.999,
                   "with stages = 0: fraction of a stage that the next stage keeps"),
      FlagOption("approximate_gamma", false,
                 "fit = gamma: an asymptotic form of the quantile, which the code without error "
                 "feedback uses, instead of the exact one")};
  repo.make = MakeRepo;
  repo.aliases = {};
  return {std::move(saf), std::move(repo)};
}

}  // namespace sparfuse
