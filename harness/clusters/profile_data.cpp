#include "harness/clusters/profile_data.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "harness/files/range.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using nlohmann::operator""_json_pointer;

constexpr std::size_t kMostShapes = 16;
constexpr Range kElements{1, 4'294'967'295};  // of a tensor: indices are 32 bits

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

// Profiles from before processors were measured on links within nodes take `cpu` of the others; and
// from before messages were, one at once costs what a round costs.
LinkCost LinkOf(const json& measured, const json& cpu) {
  return {.round_seconds = CurveOf(measured.at("round_seconds")),
          .seconds_per_extra_message = measured.at("seconds_per_extra_message"),
          .round_cpu_seconds = cpu.at("round_cpu_seconds"),
          .message_cpu_seconds = cpu.value("message_cpu_seconds", 0.0),
          .cpu_fraction = cpu.at("cpu_fraction")};
}

// What values are multiplied by. std::normal_distribution differs between standard libraries.
class RandomFactors {
 public:
  explicit RandomFactors(std::uint64_t seed) : stream_(seed, 0, 0) {}

  double Factor(const json& relative_error) {
    return std::max(0.0, 1 + relative_error.get<double>() * Normal());
  }

 private:
  // Source: G. E. P. Box, M. E. Muller, "A note on the generation of random normal deviates",
  // Annals of Mathematical Statistics 29, 1958.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

  double Uniform() {  // in (0, 1]
    return (static_cast<double>(stream_.At(drawn_++) >> 11) + 1) * 0x1p-53;
  }

  RandomStream stream_;
  std::uint64_t drawn_ = 0;
};

void Multiply(json& seconds, double factor) { seconds = seconds.get<double>() * factor; }

// Of a point of a curve, or of a tensor.
void MultiplyElement(json& element, double factor) {
  Multiply(element.is_object() ? element.at("seconds") : element.at(1), factor);
}

// errors: a number for the value or the whole curve, or one for each element.
void PerturbPlace(json& place, const json& errors, RandomFactors& random) {
  if (!errors.is_array()) {
    const double factor = random.Factor(errors);
    if (place.is_number()) return Multiply(place, factor);
    for (json& point : place) MultiplyElement(point, factor);
    return;
  }
  if (errors.size() != place.size()) {
    SPARFUSE_THROW(kData, "it has " + std::to_string(errors.size()) + " entries for " +
                              std::to_string(place.size()) + " elements");
  }
  for (std::size_t i = 0; i < place.size(); ++i) {
    MultiplyElement(place[i], random.Factor(errors[i]));
  }
}

// Tensors and tail together take the total that was measured without hooks.
void ScaleToTotal(json& backward) {
  double sum = backward.at("tail_seconds");
  for (const json& tensor : backward.at("tensors")) sum += tensor.at("seconds").get<double>();
  if (sum <= 0) return;
  const double factor = backward.at("unhooked_seconds").get<double>() / sum;
  for (json& tensor : backward.at("tensors")) MultiplyElement(tensor, factor);
  Multiply(backward.at("tail_seconds"), factor);
}

}  // namespace

std::vector<TensorShape> TensorsOf(const json& profile) {
  std::vector<TensorShape> tensors;
  for (const json& tensor : profile.at("backward").at("tensors")) {
    if (const std::string wrong = WhatIsWrongWithInteger(tensor.at("numel"), kElements);
        !wrong.empty()) {
      SPARFUSE_THROW(kData, "the profile's tensor " + tensor.at("name").get<std::string>() +
                                " has numel = " + tensor.at("numel").dump() + ": expected " +
                                wrong);
    }
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

namespace {

// Of profiles from before these were measured: an entry is read and added as in decompression, an
// element looked at as when it is added; and nothing is copied.
WorkSeconds WorkOf(const json& work, double add, double entry) {
  WorkSeconds seconds;
  seconds[Work::kAdd] = add;
  seconds[Work::kMerge] = work.value("merge", entry);
  seconds[Work::kHash] = work.value("hash", entry);
  seconds[Work::kSelect] = work.value("select", add);
  seconds[Work::kMultiply] = work.value("multiply", add);
  seconds[Work::kToHost] = work.value("to_host", 0.0);
  seconds[Work::kToDevice] = work.value("to_device", 0.0);
  return seconds;
}

// Of profiles from before these were measured: a look-up, which is of two bits on average, is as
// an entry that is hashed, a bit that is set as half of it, and a value as an element that is
// looked at for the largest.
SelectionCodingCost CodingOf(const json& coding, const WorkSeconds& work) {
  WorkSeconds instead = work;
  const double hash = instead[Work::kHash];
  const double look = instead[Work::kSelect];
  return {coding.value("query", hash), coding.value("insert", hash / 2), coding.value("fit", look),
          coding.value("restore", look)};
}

}  // namespace

CostModel KernelCosts(const json& profile) {
  CostModel cost;
  cost.pack_seconds = CurveOf(profile.at("pack"));
  cost.scale_seconds = CurveOf(profile.at("scale"));
  cost.clear_seconds = CurveOf(profile.at("clear"));
  cost.seconds_per_entry = profile.at("seconds_per_entry");
  cost.work_seconds = WorkOf(profile.value("collective_work", json::object()),
                             profile.at("seconds_per_reduced_element"), cost.seconds_per_entry);
  cost.selection_coding =
      CodingOf(profile.value("selection_coding", json::object()), cost.work_seconds);
  const json host = profile.value("host_work", json::object());
  cost.host_work_seconds =
      host.empty() ? cost.work_seconds : WorkOf(host, host.at("add"), host.at("merge"));
  cost.dispatch_seconds = profile.at("dispatch_seconds");
  cost.exchange_dispatch_seconds = profile.at("exchange_dispatch_seconds");
  cost.exchange_host_seconds = profile.value("exchange_host_seconds", 0.0);
  cost.exchange_host_seconds_per_rank = profile.value("exchange_host_seconds_per_rank", 0.0);
  cost.overlap = profile.value("overlap", 1.0);
  cost.compute_slowdown = profile.value("compute_slowdown", 1.0);
  if (profile.contains("decode")) {
    for (const auto& [coder, seconds] : profile.at("decode").items()) {
      cost.decode[coder] = {seconds.at("per_call"), seconds.at("per_call_and_rank"),
                            seconds.at("per_element"), seconds.at("per_element_and_rank"),
                            seconds.at("per_entry")};
    }
  }
  cost.exchange_seconds_per_element = profile.value("exchange_seconds_per_element", 0.0);
  cost.selection = SelectionsOf(profile.at("selection"));
  // Profiles from before these were measured lack them.
  if (profile.contains("host_selection")) {
    cost.host_selection = SelectionsOf(profile.at("host_selection"));
  }
  cost.side_slowdown = profile.value("side_slowdown", 1.0);
  if (profile.value("side_lane", "") == "host") cost.side_selection = cost.host_selection;
  if (profile.contains("encode")) {
    for (const auto& [name, points] : profile.at("encode").items())
      cost.encode_seconds[name] = CurveOf(points);
  }
  return cost;
}

std::vector<std::string> AssumedWork(const json& profile, PayloadCoding coding) {
  const json work = profile.value("collective_work", json::object());
  std::vector<std::string> assumed;
  for (const auto& [kind, as] : {std::pair{"merge", "seconds_per_entry"},
                                 {"hash", "seconds_per_entry"},
                                 {"select", "seconds_per_reduced_element"},
                                 {"multiply", "seconds_per_reduced_element"}}) {
    if (work.contains(kind)) continue;
    assumed.push_back(std::string("collective_work/") + kind + " is not in the profile: " + as +
                      " is taken");
  }
  if (coding.of_selections() && !profile.contains("selection_coding")) {
    assumed.push_back(
        "selection_coding is not in the profile: collective_work/hash and select are taken");
  }
  return assumed;
}

void AddLink(CostModel& cost, const json& profile) {
  const json& measured = profile.at("link");
  cost.links.fill(LinkOf(measured, measured));
  if (profile.contains("node_link")) {
    const json& within = profile.at("node_link");
    cost.links[static_cast<std::size_t>(LinkClass::kIntraNode)] =
        LinkOf(within, within.contains("cpu_fraction") ? within : measured);
  }
  cost.exchange_cpu_seconds = measured.at("cpu_seconds");
  if (profile.contains("native_all_reduce")) {
    cost.native_all_reduce_seconds = CurveOf(profile.at("native_all_reduce"));
  }
}

void AddDeclaredLinks(CostModel& cost, const json& profile) {
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    const json& declared = profile.at("links").at(std::string(LinkClassName(link)));
    cost.links[static_cast<std::size_t>(link)] =
        LinkCost::FromAlphaBeta(declared.at("alpha_seconds"), declared.at("seconds_per_byte"),
                                declared.value("seconds_per_extra_message", 0.0));
  }
  if (profile.value("all_gather", "ring") == "two-level") {
    cost.all_gather = AllGatherBy::kTwoLevel;
  }
  if (!profile.contains("all_reduce")) return;
  const json& all_reduce = profile.at("all_reduce");
  cost.all_reduce.start_seconds = CurveOf(all_reduce.at("start_seconds"));
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    const std::string name(LinkClassName(link));
    if (!all_reduce.contains(name)) continue;
    cost.all_reduce.link_seconds[static_cast<std::size_t>(link)] = CurveOf(all_reduce.at(name));
  }
}

std::vector<TimedShape> ShapesToTime(const GradientLayout& layout, std::size_t elements) {
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
  const std::size_t whole = std::max(layout.numel(), elements);
  for (std::size_t n = 8 * largest; n < whole; n *= 8) shapes.push_back({n, {}});
  if (whole > largest) shapes.push_back({whole, {}});
  return shapes;
}

json Perturbed(const json& profile, std::uint64_t seed) {
  json perturbed = profile;
  if (!profile.contains("relative_errors")) return perturbed;
  RandomFactors random(seed);
  for (const auto& [place, errors] : profile.at("relative_errors").items()) {
    try {
      PerturbPlace(perturbed.at(json::json_pointer(place)), errors, random);
    } catch (const std::exception& error) {
      SPARFUSE_THROW(kData, "relative_errors of the profile: " + place + ": " + error.what());
    }
  }
  if (perturbed.value("/backward/unhooked_seconds"_json_pointer, 0.0) > 0) {
    ScaleToTotal(perturbed.at("backward"));
  }
  return perturbed;
}

json PerturbedOutcomes(const json& outcomes, std::uint64_t seed) {
  json perturbed = outcomes;
  for (std::size_t i = 0; i < perturbed.size(); ++i) {
    json& profile = perturbed[i].at("profile");
    profile = Perturbed(profile, RandomStream(seed, i, 0).key());
  }
  return perturbed;
}

}  // namespace sparfuse::harness
