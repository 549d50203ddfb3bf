// Runs the checks that need training: the virtual iterate, steps on a quadratic, and xi.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/adtopk/proofs/proof_tensor.hpp"
#include "core/base/random_stream.hpp"

namespace sparfuse {
namespace {

std::string Percent(double density) {
  return std::to_string(static_cast<int>(std::lround(density * 100))) + " %";
}

// A sum of squares with a different gradient on each rank: rank p's is lambda * x + b_p, and the
// b_p add up to zero.
struct Problem {
  static constexpr std::size_t kRanks = 4;
  ProofShape shape = {32, 64};
  std::vector<double> lambda;  // in [0.1, 1]
  std::vector<ProofVector> offsets;
  std::vector<double> x;

  Problem() {
    const std::size_t n = ElementsOf(shape);
    const RandomStream stream(5, 0, 0);
    for (std::size_t i = 0; i < n; ++i) {
      lambda.push_back(0.1 + 0.9 * static_cast<double>(stream.At(i) >> 11) * 0x1p-53);
    }
    lambda.front() = 0.1;
    lambda.back() = 1;
    for (std::size_t p = 0; p < kRanks; p += 2) {
      offsets.push_back(NormalNumbers(n, 21, p));
      offsets.push_back(offsets.back());
      for (float& v : offsets.back()) v = -v;
    }
    const ProofVector start = NormalNumbers(n, 22, 0);
    x.assign(start.begin(), start.end());
  }

  double Value() const {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += lambda[i] * x[i] * x[i] / 2;
    return sum;
  }

  ProofVector GradientOf(std::size_t rank) const {
    ProofVector g(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      g[i] = static_cast<float>(lambda[i] * x[i]) + offsets[rank][i];
    }
    return g;
  }

  std::vector<std::unique_ptr<ProofTensor>> Ranks(const ProofVariant& variant,
                                                  double density) const {
    std::vector<std::unique_ptr<ProofTensor>> ranks;
    for (std::size_t p = 0; p < kRanks; ++p) {
      ranks.push_back(
          std::make_unique<ProofTensor>(variant.sparsifier, shape, density, variant.axis));
    }
    return ranks;
  }

  // Computes x -= rate * mean of the ranks' payloads. Returns the mean of their gradients.
  std::vector<double> Advance(std::span<const std::unique_ptr<ProofTensor>> ranks, double rate) {
    std::vector<double> mean(x.size(), 0.0);
    std::vector<ProofVector> gradients;
    for (std::size_t p = 0; p < kRanks; ++p) gradients.push_back(GradientOf(p));
    for (std::size_t p = 0; p < kRanks; ++p) {
      ranks[p]->Step(gradients[p]);
      for (std::size_t j = 0; j < ranks[p]->indices().size(); ++j) {
        x[ranks[p]->indices()[j]] -= rate / kRanks * static_cast<double>(ranks[p]->values()[j]);
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        mean[i] += static_cast<double>(gradients[p][i]) / kRanks;
      }
    }
    return mean;
  }
};

// Classification by a network with one hidden layer, on four ranks with a quarter of the data each.
class Training {
 public:
  static constexpr std::size_t kRanks = 4;
  static constexpr std::size_t kIn = 24;
  static constexpr std::size_t kHidden = 40;
  static constexpr std::size_t kClasses = 6;
  static constexpr std::size_t kBatch = 16;
  static constexpr std::size_t kBatches = 10;  // per epoch and rank
  static constexpr double kRate = 0.1;

  Training() {
    weights_[0] = NormalNumbers(kHidden * kIn, 31, 0);
    weights_[1] = NormalNumbers(kClasses * kHidden, 31, 1);
    for (float& w : weights_[0]) w *= 0.2f;
    for (float& w : weights_[1]) w *= 0.15f;
    const ProofVector centres = NormalNumbers(kClasses * kIn, 32, 0);
    const std::size_t samples = kRanks * kBatches * kBatch;
    inputs_ = NormalNumbers(samples * kIn, 33, 0);
    const RandomStream labels(34, 0, 0);
    for (std::size_t s = 0; s < samples; ++s) {
      const std::size_t centre = s % kClasses;
      for (std::size_t i = 0; i < kIn; ++i) inputs_[s * kIn + i] += centres[centre * kIn + i] / 2;
      // One label in five is wrong, so that gradients do not fade once all are learnt.
      labels_.push_back(labels.Below(5, s) == 0 ? labels.Below(kClasses, samples + s) : centre);
    }
  }

  const ProofVector& weights(std::size_t layer) const { return weights_[layer]; }
  ProofVector& weights(std::size_t layer) { return weights_[layer]; }

  // Sets both gradients to the mean over the batch, without adding. Returns the loss.
  double Gradients(std::size_t rank, std::size_t batch,
                   std::array<ProofVector, 2>& gradients) const {
    gradients[0].assign(kHidden * kIn, 0.0f);
    gradients[1].assign(kClasses * kHidden, 0.0f);
    double loss = 0;
    for (std::size_t b = 0; b < kBatch; ++b) {
      const std::size_t sample = (rank * kBatches + batch) * kBatch + b;
      const float* const in = inputs_.data() + sample * kIn;
      std::array<float, kHidden> hidden;
      for (std::size_t h = 0; h < kHidden; ++h) {
        hidden[h] = std::max(
            0.0f, std::inner_product(in, in + kIn, weights_[0].begin() + static_cast<long>(h * kIn),
                                     0.0f));
      }
      std::array<float, kClasses> out;
      float sum = 0;
      for (std::size_t c = 0; c < kClasses; ++c) {
        out[c] = std::exp(std::inner_product(hidden.begin(), hidden.end(),
                                             weights_[1].begin() + static_cast<long>(c * kHidden),
                                             0.0f));
        sum += out[c];
      }
      loss -= std::log(static_cast<double>(out[labels_[sample]] / sum)) / kBatch;
      std::array<float, kHidden> back{};
      for (std::size_t c = 0; c < kClasses; ++c) {
        const float d = (out[c] / sum - (c == labels_[sample] ? 1.0f : 0.0f)) / kBatch;
        for (std::size_t h = 0; h < kHidden; ++h) {
          gradients[1][c * kHidden + h] += d * hidden[h];
          back[h] += d * weights_[1][c * kHidden + h];
        }
      }
      for (std::size_t h = 0; h < kHidden; ++h) {
        if (hidden[h] == 0) continue;
        for (std::size_t i = 0; i < kIn; ++i) gradients[0][h * kIn + i] += back[h] * in[i];
      }
    }
    return loss;
  }

 private:
  std::array<ProofVector, 2> weights_;
  ProofVector inputs_;
  std::vector<std::size_t> labels_;
};

}  // namespace

// Checks that x_t - rate * mean of e_t is the iterate of plain SGD with the same gradients.
void ProveVirtualIterate(ProofRows& rows) {
  constexpr double kRate = 0.1;
  for (const ProofVariant& variant : kProofVariants) {
    Problem problem;
    std::vector<double> dense = problem.x;
    const auto ranks = problem.Ranks(variant, 0.05);
    double worst = 0;
    for (int step = 0; step < 100; ++step) {
      const std::vector<double> mean = problem.Advance(ranks, kRate);
      for (std::size_t i = 0; i < dense.size(); ++i) {
        dense[i] -= kRate * mean[i];
        double residual = 0;
        for (const auto& rank : ranks) residual += static_cast<double>(rank->residual()[i]);
        const double iterate = problem.x[i] - kRate * residual / Problem::kRanks;
        worst = std::max(worst, std::abs(iterate - dense[i]));
      }
    }
    rows.Add("C6",
             "largest distance of x_t - rate mean(e_t) from SGD, 100 steps, " +
                 std::string(variant.label),
             kDelayed, worst, Relation::kAtMost, 1e-4);
  }
}

// Checks that with rate delta / 2L the value falls to 1 % within (1 / delta) (L / mu) ln 100 steps.
void ProveQuadratic(ProofRows& rows) {
  constexpr double kTarget = 1e-2;
  constexpr double kSmallest = 0.1;  // eigenvalue; the largest is 1
  const auto steps_to_target = [&](const ProofVariant& variant, double density, double rate,
                                   int limit) {
    Problem problem;
    const auto ranks = problem.Ranks(variant, density);
    const double first = problem.Value();
    int steps = 0;
    while (problem.Value() > kTarget * first && steps <= limit) {
      problem.Advance(ranks, rate);
      ++steps;
    }
    return steps;
  };
  for (const ProofVariant& variant : kProofVariants) {
    for (const double density : {0.05, 0.1, 0.25}) {
      const double delta = ProofDelta(variant.sparsifier, Problem().shape, density, variant.axis);
      const double bound = 1 / delta / kSmallest * std::log(1 / kTarget);
      const int steps = steps_to_target(variant, density, delta / 2, static_cast<int>(bound) + 1);
      rows.Add("C7",
               "steps to 1 % of the value at density " + Percent(density) + ", rate delta / 2L, " +
                   variant.label,
               kDelayed, steps, Relation::kAtMost, bound);
    }
  }
}

// Checks |T(mean a) - mean T(a)| <= xi |mean g|, and the same for the residual of the mean, |mean a
// - mean T(a)|. Both are measured on the second batch of every epoch, as in the published code.
// That code flattens the mean before it selects from it. It thus measures the residual under the
// name of the difference.
void ProveXi(ProofRows& rows) {
  const std::array<ProofShape, 2> shapes = {
      ProofShape{static_cast<std::int64_t>(Training::kHidden),
                 static_cast<std::int64_t>(Training::kIn)},
      ProofShape{static_cast<std::int64_t>(Training::kClasses),
                 static_cast<std::int64_t>(Training::kHidden)}};
  constexpr double kDensity = 0.05;
  constexpr int kEpochs = 20;
  Training training;
  std::vector<std::array<std::unique_ptr<ProofTensor>, 2>> ranks(Training::kRanks);
  std::vector<std::array<ProofVector, 2>> gradients(Training::kRanks);
  for (auto& rank : ranks) {
    for (std::size_t l = 0; l < 2; ++l) {
      rank[l] = std::make_unique<ProofTensor>("adtopk", shapes[l], kDensity, "longest");
    }
  }
  std::vector<double> intended_by_epoch;
  std::vector<double> residual_by_epoch;
  std::vector<double> bound_by_epoch;  // bound of the residual, from that of C4
  std::array<double, 2> largest_gradient{};
  double first_loss = 0;
  double loss = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double intended = 0;
    double residual = 0;
    double bound = 0;
    loss = 0;
    for (std::size_t batch = 0; batch < Training::kBatches; ++batch) {
      for (std::size_t p = 0; p < Training::kRanks; ++p) {
        loss += training.Gradients(p, batch, gradients[p]) / Training::kRanks / Training::kBatches;
      }
      for (std::size_t l = 0; l < 2; ++l) {
        const std::size_t n = ElementsOf(shapes[l]);
        ProofVector mean_g(n, 0.0f);
        ProofVector mean_a(n, 0.0f);
        ProofVector mean_sent(n, 0.0f);
        constexpr float kShare = 1.0f / Training::kRanks;
        for (std::size_t p = 0; p < Training::kRanks; ++p) {
          ProofTensor& tensor = *ranks[p][l];
          for (std::size_t i = 0; i < n; ++i) {
            mean_g[i] += kShare * gradients[p][l][i];
            mean_a[i] += kShare * (gradients[p][l][i] + tensor.residual()[i]);
          }
          largest_gradient[l] = std::max(largest_gradient[l], std::sqrt(SquareOf(gradients[p][l])));
          tensor.Step(gradients[p][l]);
          for (std::size_t j = 0; j < tensor.indices().size(); ++j) {
            mean_sent[tensor.indices()[j]] += kShare * tensor.values()[j];
          }
        }
        if (batch == 1) {
          ProofTensor of_mean("adtopk", shapes[l], kDensity, "longest");
          of_mean.Choose(mean_a);
          const ProofVector kept = of_mean.Dense();
          ProofVector difference(n);
          ProofVector left(n);
          for (std::size_t i = 0; i < n; ++i) {
            difference[i] = kept[i] - mean_sent[i];
            left[i] = mean_a[i] - mean_sent[i];
          }
          intended += std::sqrt(SquareOf(difference) / SquareOf(mean_g)) / 2;
          residual += std::sqrt(SquareOf(left) / SquareOf(mean_g)) / 2;
          const double root = std::sqrt(1 - ProofDelta("adtopk", shapes[l], kDensity, "longest"));
          bound += largest_gradient[l] * root / (1 - root) / std::sqrt(SquareOf(mean_g)) / 2;
        }
        for (std::size_t i = 0; i < n; ++i) {
          training.weights(l)[i] -= static_cast<float>(Training::kRate) * mean_sent[i];
        }
      }
    }
    if (epoch == 0) first_loss = loss;
    intended_by_epoch.push_back(intended);
    residual_by_epoch.push_back(residual);
    bound_by_epoch.push_back(bound);
  }
  rows.Add("C10", "largest xi = |T(mean a) - mean T(a)| / |mean g| of 20 epochs at 5 %", kAlistarh,
           *std::ranges::max_element(intended_by_epoch), Relation::kAtMost, 2);
  const auto largest = std::ranges::max_element(residual_by_epoch);
  rows.Add("C10",
           "largest |mean a - mean T(a)| / |mean g| of 20 epochs at 5 %; the bound follows from C4",
           kAdTopK, *largest, Relation::kAtMost,
           bound_by_epoch[static_cast<std::size_t>(largest - residual_by_epoch.begin())]);
  const auto half = residual_by_epoch.begin() + kEpochs / 2;
  rows.Add("C10",
           "largest |mean a - mean T(a)| / |mean g| of epochs 11 to 20 over the largest of 1 to "
           "10: no growth",
           kAdTopK,
           *std::max_element(half, residual_by_epoch.end()) /
               *std::max_element(residual_by_epoch.begin(), half),
           Relation::kAtMost, 1.25);
  rows.Add("C10", "loss of the last of these epochs over the loss of the first (the model trains)",
           kAdTopK, loss / first_loss, Relation::kAtMost, 0.75);
}

}  // namespace sparfuse
