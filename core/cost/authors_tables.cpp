#include "core/cost/authors_tables.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/cost/cost_model.hpp"

namespace sparfuse {
namespace {

constexpr double kKibibyte = 1024;

double WholeKibibytes(double elements) { return std::trunc(elements * sizeof(float) / kKibibyte); }

// All published selection times are at 10, 100, ..., 1e6 KiB.
PiecewiseLinear Compression(const std::vector<double>& seconds) {
  std::vector<std::pair<double, double>> points;
  double kibibytes = 10;
  for (const double value : seconds) {
    points.emplace_back(kibibytes, value);
    kibibytes *= 10;
  }
  return PiecewiseLinear(std::move(points));
}

}  // namespace

double AuthorsBackwardSeconds(std::string_view model, std::size_t elements, std::size_t total) {
  static const std::map<std::string_view, double> kSeconds = {
      {"resnet50", 0.03523650461313676},   {"resnet101", 0.0543569338564796},
      {"resnet152", 0.057005972278},       {"vgg16", 0.015516927047648},
      {"vgg19", 0.0176436596987194},       {"lstm", 0.06509669449},
      {"transformer", 0.0935338914394378}, {"bert_base", 0.04641398668289}};
  const auto it = kSeconds.find(model);
  if (it == kSeconds.end()) return 0;
  return it->second * static_cast<double>(elements) / static_cast<double>(total);
}

double AuthorsCommunicationSeconds(std::size_t elements, double density) {
  static const PiecewiseLinear kCurve({{0.1, 0.005115201187133789},
                                       {1, 0.005463216590881347},
                                       {10, 0.0055778751373291016},
                                       {100, 0.005975676536560059},
                                       {1000, 0.019652485847473145},
                                       {10000, 0.11236395835876464},
                                       {100000, 1.005709457397461},
                                       {150000, 1.5160596132278443}});
  return kCurve(WholeKibibytes(static_cast<double>(elements) * density));
}

double AuthorsCompressionSeconds(std::string_view sparsifier, std::size_t elements) {
  static const std::map<std::string_view, PiecewiseLinear> kCurves = {
      {"topk",
       Compression({7.677078247070312e-05, 1.761913299560547e-04, 3.170967102050781e-04,
                    2.4127960205078125e-04, 3.452301025390625e-04, 1.5995502471923828e-03})},
      {"dgc", Compression({3.4046e-4, 3.7646e-4, 9.9397e-4, 2.59235e-3, 1.045464e-2, 3.902362e-2})},
      {"gaussiank",
       Compression({5.2776e-4, 5.7387e-4, 8.0037e-4, 9.5844e-4, 2.11954e-3, 1.419806e-2})},
      {"redsync",
       Compression({4.1556e-4, 3.9387e-4, 7.5126e-4, 9.7084e-4, 3.15619e-3, 2.669883e-2})},
      {"randomk",
       Compression({2.5153e-4, 1.3161e-4, 3.5620e-4, 7.8583e-4, 1.91426e-3, 1.343417e-2})},
      {"sidco",
       Compression({3.4332e-4, 2.3341e-4, 4.5180e-4, 4.0671e-4, 1.35994e-3, 1.102853e-2})}};
  const auto it = kCurves.find(sparsifier);
  if (it == kCurves.end()) {
    std::vector<std::string> known;
    for (const auto& [name, curve] : kCurves) known.emplace_back(name);
    SPARFUSE_THROW(kConfig, "no published selection times of sparsifier \"", sparsifier, "\"",
                   Suggestion(sparsifier, known));
  }
  return it->second(std::max(1.0, WholeKibibytes(static_cast<double>(elements))));
}

}  // namespace sparfuse
