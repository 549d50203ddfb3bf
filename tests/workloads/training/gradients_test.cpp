// Checks the number of elements that the sparsifiers send of real models' gradients in the first
// steps, with error feedback. Compares it with the requested number and with the selection models.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "tests/support/sparsifier_oracle.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {
namespace {

using testing::MakeSparsifier;
using testing::Selection;

constexpr std::uint64_t kSteps = 12;
constexpr double kDensities[] = {0.1, 0.01, 0.001};
constexpr std::size_t kManyKept = 50;  // from here on 2 % is at least one element

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::vector<float>> gradients;  // by step

  std::size_t n() const { return gradients[0].size(); }
};

// The gradients of a model's parameters during dense training on one rank.
std::vector<Tensor> Record(const std::string& name) {
  WorkloadConfig config;
  config.seed = 3;
  const auto workload = MakeWorkload(name, config);
  std::vector<Tensor> tensors;
  for (const ParameterInfo& parameter : workload->Parameters()) {
    tensors.push_back({name + " " + parameter.name, parameter.shape, {}});
  }
  workload->SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t numel) {
    tensors[parameter].gradients.emplace_back(gradient, gradient + numel);
    workload->SetGradient(parameter, gradient);
  });
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    workload->ClearGradients();
    workload->Forward(step, 0);
    workload->Backward(true);
    workload->Update(step);
  }
  return tensors;
}

const std::vector<Tensor>& Tensors() {
  static const std::vector<Tensor> tensors = [] {
    std::vector<Tensor> all = Record("digits-resnet");
    const std::vector<Tensor> text = Record("text-gpt");
    all.insert(all.end(), text.begin(), text.end());
    return all;
  }();
  return tensors;
}

// Calls each(count) with the counts of the second and all later steps.
template <class Each>
void ForCounts(const Sparsifier& sparsifier, const Tensor& tensor, double density,
               const Each& each) {
  Selection selection(sparsifier, tensor.n(), density, 1, true, tensor.shape);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const std::size_t count = selection.Run(tensor.gradients[step], step).indices.size();
    if (step > 0) each(count);
  }
}

struct Band {
  double low;
  double high;
};

Band Around(double k, double below, double above) { return {k * below, k * above}; }

// The allowed counts of a sparsifier for a tensor: k within 5 %, or, for few elements, k within one
// element. Some methods are defined otherwise.
Band AllowedBand(const SparsifierDescriptor& method, const Sparsifier& sparsifier,
                 const Tensor& tensor, double density) {
  const auto k = static_cast<double>(KeptCount(tensor.n(), density));
  const auto count = static_cast<double>(sparsifier.Count(tensor.n(), tensor.shape, density));
  if (method.exact_count) return {count, count};
  if (method.name == "dgc") {  // K rounded up, and the paper's bounds
    return Around(std::ceil(static_cast<double>(tensor.n()) * density), 0.8, 1.3);
  }
  if (method.name.starts_with("adtopk-")) {  // alternates all-dimension and global top-k
    const auto fibres =
        static_cast<double>(MakeSparsifier("adtopk")->Count(tensor.n(), tensor.shape, density));
    return {std::min(fibres, k), std::max(fibres, k)};
  }
  return k < static_cast<double>(kManyKept) ? Band{k - 1, k + 1} : Around(k, 0.95, 1.05);
}

TEST(WorkloadGradients, AreSentAtTheDensityAskedForFromTheSecondStepOn) {
  struct Method {
    std::string name;
    Options options;
  };
  std::vector<Method> methods = {{"sidco", {{"fit", std::string("pareto")}}},
                                 {"sidco", {{"fit", std::string("gamma")}}},
                                 {"sidco", {{"stages", std::int64_t{3}}}}};
  for (const SparsifierDescriptor& method : Sparsifiers()) {
    // `threshold` follows the scale of the data by definition, and `nonzeros` only the data.
    if (method.name.find('@') == std::string_view::npos && method.name != "threshold" &&
        method.name != "nonzeros") {
      methods.push_back({std::string(method.name), {}});
    }
  }
  for (const Method& method : methods) {
    const SparsifierDescriptor& descriptor = FindSparsifier(method.name);
    const auto sparsifier = MakeSparsifier(method.name, method.options);
    for (const Tensor& tensor : Tensors()) {
      for (const double density : kDensities) {
        const Band band = AllowedBand(descriptor, *sparsifier, tensor, density);
        ForCounts(*sparsifier, tensor, density, [&](std::size_t selected) {
          const auto count = static_cast<double>(selected);
          EXPECT_TRUE(count >= std::floor(band.low) && count <= std::ceil(band.high))
              << method.name << ", " << tensor.name << ", density " << density << ": " << selected
              << " elements; expected " << band.low << " to " << band.high;
        });
      }
    }
  }
}

struct LogRatios {
  double sum = 0;
  double squares = 0;
  double count = 0;

  void Add(double ratio) {
    sum += std::log(ratio);
    squares += std::log(ratio) * std::log(ratio);
    ++count;
  }
  double Mean() const { return sum / count; }
  double Sigma() const { return std::sqrt(std::max(0.0, squares / count - Mean() * Mean())); }
};

// Covers tensors large enough that rounding to whole elements does not matter. The selection models
// are checked at density 0.01; other densities are printed. A model fitted on other data, according
// to its descriptor, must be roughly right. A model fitted on this data must match the measurement,
// as far as the gradients are the same on every machine.
const std::set<std::string_view> kFittedElsewhere = {"dgc", "gaussiank", "sidco",
                                                     "adtopk-interleaved"};

TEST(WorkloadGradients, AreSentAsTheSelectionModelsSay) {
  for (const SparsifierDescriptor& method : Sparsifiers()) {
    if (method.exact_count || method.name == "nonzeros") continue;  // the density gives the count
    const SelectionModel& model = method.selection_model;
    Options options;
    if (method.name == "adtopk-threshold") options["warmup"] = std::int64_t{1};
    const auto sparsifier = MakeSparsifier(std::string(method.name), options);
    std::printf("%-20s model %6.3f %5.3f; real", std::string(method.name).c_str(), model.mean,
                model.sigma);
    for (const double density : kDensities) {
      LogRatios ratios;
      for (const Tensor& tensor : Tensors()) {
        if (KeptCount(tensor.n(), density) < kManyKept) continue;
        const auto expected =
            static_cast<double>(sparsifier->Count(tensor.n(), tensor.shape, density));
        ForCounts(*sparsifier, tensor, density,
                  [&](std::size_t count) { ratios.Add(static_cast<double>(count) / expected); });
      }
      std::printf("  %g: %6.3f %5.3f (%g)", density, ratios.Mean(), ratios.Sigma(), ratios.count);
      if (density != 0.01) continue;
      EXPECT_GT(ratios.count, 50) << "too few large tensors";
      const bool fitted_here = kFittedElsewhere.count(method.name) == 0;
      EXPECT_NEAR(ratios.Mean(), model.mean, fitted_here ? 0.1 : 3 * model.sigma + 0.05)
          << method.name;
      if (fitted_here) {
        EXPECT_NEAR(ratios.Sigma(), model.sigma, 0.1) << method.name;
      }
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace sparfuse::workloads
