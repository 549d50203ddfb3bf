#include "harness/profile_data.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;

constexpr std::size_t kMostShapes = 16;

PiecewiseLinear CurveOf(const json& points) {
  std::map<double, std::pair<double, int>> sums;
  for (const json& point : points) {
    auto& [seconds, count] = sums[point.at(0).get<double>()];
    seconds += point.at(1).get<double>();
    ++count;
  }
  std::vector<std::pair<double, double>> pairs;
  for (const auto& [x, sum] : sums) pairs.emplace_back(x, sum.first / sum.second);
  return PiecewiseLinear(std::move(pairs));
}

std::map<std::string, SelectionCost, std::less<>> SelectionsOf(const json& by_sparsifier) {
  std::map<std::string, SelectionCost, std::less<>> costs;
  for (const auto& [name, curves] : by_sparsifier.items()) {
    for (const json& curve : curves)
      costs[name].Add(curve.at("density"), CurveOf(curve.at("seconds")));
  }
  return costs;
}

}  // namespace

std::vector<TensorShape> TensorsOf(const json& profile) {
  std::vector<TensorShape> tensors;
  for (const json& tensor : profile.at("backward").at("tensors")) {
    tensors.push_back({tensor.at("name"), tensor.at("shape"), tensor.at("numel")});
  }
  return tensors;
}

BackwardProfile BackwardOf(const json& profile, const GradientLayout& layout) {
  const json& measured = profile.at("backward");
  const json& tensors = measured.at("tensors");
  BackwardProfile backward;
  backward.begin_seconds = measured.at("begin_seconds");
  backward.forward_seconds = measured.at("forward_seconds");
  backward.tail_seconds = measured.at("tail_seconds");
  backward.update_seconds = measured.at("update_seconds");
  for (std::size_t t = 0; t < std::max(tensors.size(), layout.tensors()); ++t) {
    const std::string name = t < tensors.size() ? tensors[t].at("name") : "none";
    const std::string expected = t < layout.tensors() ? layout.tensor(t).name : "none";
    if (t >= tensors.size() || t >= layout.tensors() || name != expected) {
      SPARFUSE_THROW(kData, "the profile's tensor " + std::to_string(t) + " in ready order is " +
                                name + "; expected " + expected);
    }
    backward.backward_seconds.push_back(tensors[t].at("seconds"));
  }
  return backward;
}

CostModel KernelCosts(const json& profile) {
  CostModel cost;
  cost.pack_seconds = CurveOf(profile.at("pack"));
  cost.scale_seconds = CurveOf(profile.at("scale"));
  cost.clear_seconds = CurveOf(profile.at("clear"));
  cost.seconds_per_entry = profile.at("seconds_per_entry");
  cost.seconds_per_reduced_element = profile.at("seconds_per_reduced_element");
  cost.dispatch_seconds = profile.at("dispatch_seconds");
  cost.exchange_dispatch_seconds = profile.at("exchange_dispatch_seconds");
  cost.exchange_seconds_per_element = profile.value("exchange_seconds_per_element", 0.0);
  cost.selection = SelectionsOf(profile.at("selection"));
  // Profiles from before these were measured lack them.
  if (profile.contains("host_selection")) {
    cost.host_selection = SelectionsOf(profile.at("host_selection"));
  }
  if (profile.contains("encode")) {
    for (const auto& [name, points] : profile.at("encode").items())
      cost.encode_seconds[name] = CurveOf(points);
  }
  return cost;
}

void AddLink(CostModel& cost, const json& profile) {
  const json& measured = profile.at("link");
  LinkCost link;
  link.round_seconds = CurveOf(measured.at("round_seconds"));
  link.seconds_per_extra_message = measured.at("seconds_per_extra_message");
  cost.links.fill(link);
  cost.exchange_cpu_seconds = measured.at("cpu_seconds");
  cost.round_cpu_seconds = measured.at("round_cpu_seconds");
  cost.exchange_cpu_fraction = measured.at("cpu_fraction");
  if (profile.contains("native_all_reduce")) {
    cost.native_all_reduce_seconds = CurveOf(profile.at("native_all_reduce"));
  }
}

void AddDeclaredLinks(CostModel& cost, const json& profile) {
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    const json& declared = profile.at("links").at(std::string(LinkClassName(link)));
    cost.links[static_cast<std::size_t>(link)] =
        LinkCost::FromAlphaBeta(declared.at("alpha_seconds"), declared.at("seconds_per_byte"));
  }
}

std::vector<TimedShape> ShapesToTime(const GradientLayout& layout) {
  std::vector<TimedShape> distinct;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    distinct.push_back({layout.tensor(t).numel, layout.tensor(t).shape});
  }
  std::sort(distinct.begin(), distinct.end(), [](const TimedShape& a, const TimedShape& b) {
    return std::tie(a.numel, a.shape) < std::tie(b.numel, b.shape);
  });
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());

  std::vector<TimedShape> shapes = distinct;
  if (distinct.size() > kMostShapes) {
    shapes.clear();
    for (std::size_t i = 0; i < kMostShapes; ++i) {
      shapes.push_back(distinct[i * (distinct.size() - 1) / (kMostShapes - 1)]);
    }
  }
  if (shapes.empty()) return shapes;
  const std::size_t largest = shapes.back().numel;
  for (std::size_t n = 8 * largest; n < layout.numel(); n *= 8) shapes.push_back({n, {}});
  if (layout.numel() > largest) shapes.push_back({layout.numel(), {}});
  return shapes;
}

}  // namespace sparfuse
