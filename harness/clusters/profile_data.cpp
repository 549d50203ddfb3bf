#include "harness/clusters/profile_data.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/coding/quantizers/blocks.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::size_t kMostShapes = 16;

template <class Part>
const Part& Need(const std::optional<Part>& part, const char* name) {
  if (!part) SPARFUSE_THROW(kData, std::string("the profile has no ") + name);
  return *part;
}

PiecewiseLinear CurveOf(const ProfileCurve& points, const char* name) {
  if (points.empty()) SPARFUSE_THROW(kData, std::string("the profile has no ") + name);
  std::map<double, std::pair<double, int>> sums;
  for (const ProfilePoint& point : points) {
    auto& [seconds, count] = sums[point.size];
    seconds += point.seconds;
    ++count;
  }
  std::vector<std::pair<double, double>> pairs;
  for (const auto& [x, sum] : sums) pairs.emplace_back(x, sum.first / sum.second);
  return PiecewiseLinear(std::move(pairs));
}

std::map<std::string, SelectionCost, std::less<>> SelectionsOf(const Selections& by_sparsifier) {
  std::map<std::string, SelectionCost, std::less<>> costs;
  for (const auto& [name, curves] : by_sparsifier) {
    for (const SelectionCurve& curve : curves)
      costs[name].Add(curve.density, CurveOf(curve.seconds, "points of a selection"));
  }
  return costs;
}

// If the cost of further messages was not measured, a message costs as much as a round.
LinkCost LinkOf(const MeasuredLink& measured) {
  return {.round_seconds = CurveOf(measured.round_seconds, "rounds of a link"),
          .seconds_per_extra_message = measured.seconds_per_extra_message,
          .round_cpu_seconds = measured.round_cpu_seconds,
          .message_cpu_seconds = measured.message_cpu_seconds.value_or(0),
          .cpu_fraction = measured.cpu_fraction};
}

// Random factors on values. std::normal_distribution differs between standard libraries.
class RandomFactors {
 public:
  explicit RandomFactors(std::uint64_t seed) : stream_(seed, 0, 0) {}

  double Factor(double relative_error) { return std::max(0.0, 1 + relative_error * Normal()); }

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

using Seconds = std::vector<double*>;

Seconds SecondsOf(std::optional<double>& value) { return value ? Seconds{&*value} : Seconds{}; }
Seconds SecondsOf(ProfileCurve& curve) {
  Seconds seconds;
  for (ProfilePoint& point : curve) seconds.push_back(&point.seconds);
  return seconds;
}

// The keys of a JSON pointer.
std::vector<std::string> KeysOfPlace(const std::string& place) {
  std::vector<std::string> keys;
  for (nlohmann::json::json_pointer at(place); !at.empty(); at.pop_back())
    keys.push_back(at.back());
  std::ranges::reverse(keys);
  return keys;
}

Seconds SecondsOf(BackwardTimes& backward, const std::string& key) {
  if (key == "tensors") {
    Seconds seconds;
    for (ProfiledTensor& tensor : backward.tensors) seconds.push_back(&tensor.seconds);
    return seconds;
  }
  if (key == "begin_seconds") return {&backward.begin_seconds};
  if (key == "forward_seconds") return {&backward.forward_seconds};
  if (key == "tail_seconds") return {&backward.tail_seconds};
  if (key == "update_seconds") return {&backward.update_seconds};
  if (key == "hooked_seconds") return SecondsOf(backward.hooked_seconds);
  if (key == "unhooked_seconds") return SecondsOf(backward.unhooked_seconds);
  return key == "all_ranks_seconds" ? SecondsOf(backward.all_ranks_seconds) : Seconds{};
}

Seconds SecondsOf(MeasuredLink& link, const std::string& key) {
  if (key == "round_seconds") return SecondsOf(link.round_seconds);
  return key == "seconds_per_extra_message" ? Seconds{&link.seconds_per_extra_message} : Seconds{};
}

Seconds SecondsOf(std::map<std::string, double>& table, const std::string& key) {
  const auto found = table.find(key);
  return found == table.end() ? Seconds{} : Seconds{&found->second};
}

// The values that an entry of relative_errors applies to; empty if nothing there was measured.
Seconds SecondsAt(Profile& profile, const std::string& place) {
  const std::vector<std::string> keys = KeysOfPlace(place);
  if (keys.size() == 1) {
    for (auto& [name, curve] : {std::pair{"pack", &profile.pack},
                                {"scale", &profile.scale},
                                {"clear", &profile.clear},
                                {"native_all_reduce", &profile.native_all_reduce}}) {
      if (keys[0] == name) return SecondsOf(*curve);
    }
    for (auto& [name, value] :
         {std::pair{"seconds_per_entry", &profile.seconds_per_entry},
          {"seconds_per_reduced_element", &profile.seconds_per_reduced_element},
          {"dispatch_seconds", &profile.dispatch_seconds},
          {"exchange_dispatch_seconds", &profile.exchange_dispatch_seconds}}) {
      if (keys[0] == name) return SecondsOf(*value);
    }
  } else if (keys.size() == 2) {
    if (keys[0] == "backward" && profile.backward) return SecondsOf(*profile.backward, keys[1]);
    if (keys[0] == "link" && profile.link) return SecondsOf(*profile.link, keys[1]);
    if (keys[0] == "node_link" && profile.node_link) return SecondsOf(*profile.node_link, keys[1]);
    if (keys[0] == "collective_work") return SecondsOf(profile.collective_work, keys[1]);
    if (keys[0] == "selection_coding") return SecondsOf(profile.selection_coding, keys[1]);
    if (keys[0] == "encode" && profile.encode) {
      const auto found = profile.encode->find(keys[1]);
      if (found != profile.encode->end()) return SecondsOf(found->second);
    }
  } else if (keys.size() == 4 && keys[3] == "seconds") {
    auto& selections = keys[0] == "selection" ? profile.selection : profile.host_selection;
    const bool named = keys[0] == "selection" || keys[0] == "host_selection";
    if (!named || !selections || !selections->contains(keys[1])) return {};
    auto& curves = selections->at(keys[1]);
    for (std::size_t i = 0; i < curves.size(); ++i) {
      if (keys[2] == std::to_string(i)) return SecondsOf(curves[i].seconds);
    }
  }
  return {};
}

// An error applies to the value or the whole curve, or each element has an error of its own.
void PerturbPlace(const Seconds& seconds, const RelativeError& error, RandomFactors& random) {
  if (seconds.empty()) SPARFUSE_THROW(kData, "the profile has no number there");
  if (!error.of_each) {
    const double factor = random.Factor(error.of_all);
    for (double* each : seconds) *each *= factor;
    return;
  }
  const std::vector<double>& errors = *error.of_each;
  if (errors.size() != seconds.size()) {
    SPARFUSE_THROW(kData, "it has " + std::to_string(errors.size()) + " entries for " +
                              std::to_string(seconds.size()) + " elements");
  }
  for (std::size_t i = 0; i < errors.size(); ++i) *seconds[i] *= random.Factor(errors[i]);
}

// Scales the times of tensors and tail to the total that was measured without hooks.
void ScaleToTotal(BackwardTimes& backward) {
  double sum = backward.tail_seconds;
  for (const ProfiledTensor& tensor : backward.tensors) sum += tensor.seconds;
  if (sum <= 0) return;
  const double factor = *backward.unhooked_seconds / sum;
  for (ProfiledTensor& tensor : backward.tensors) tensor.seconds *= factor;
  backward.tail_seconds *= factor;
}

using WorkTable = std::map<std::string, double>;

double At(const WorkTable& table, const char* key, double otherwise) {
  const auto found = table.find(key);
  return found == table.end() ? otherwise : found->second;
}

// The defaults of unmeasured times: an entry costs as much as in decompression, an element as much
// as an addition, and nothing is copied.
WorkSeconds WorkOf(const WorkTable& work, double add, double entry) {
  WorkSeconds seconds;
  seconds[Work::kAdd] = add;
  seconds[Work::kMerge] = At(work, "merge", entry);
  seconds[Work::kHash] = At(work, "hash", entry);
  seconds[Work::kSelect] = At(work, "select", add);
  seconds[Work::kMultiply] = At(work, "multiply", add);
  seconds[Work::kToHost] = At(work, "to_host", 0);
  seconds[Work::kToDevice] = At(work, "to_device", 0);
  return seconds;
}

// The defaults of unmeasured times: a look-up, of two bits on average, costs as much as a hashed
// entry. Setting a bit costs half of that, and a value as much as an element in a selection.
SelectionCodingCost CodingOf(const WorkTable& coding, const WorkSeconds& work) {
  WorkSeconds instead = work;
  const double hash = instead[Work::kHash];
  const double look = instead[Work::kSelect];
  return {At(coding, "query", hash),   At(coding, "insert", hash / 2), At(coding, "fit", look),
          At(coding, "restore", look), At(coding, "pack", look),       At(coding, "unpack", look)};
}

}  // namespace

std::vector<TensorShape> TensorsOf(const Profile& profile) {
  std::vector<TensorShape> tensors;
  for (const ProfiledTensor& tensor : Need(profile.backward, "backward").tensors)
    tensors.push_back({tensor.name, tensor.shape, tensor.numel});
  return tensors;
}

BackwardProfile BackwardOf(const Profile& profile, const GradientLayout& layout) {
  const BackwardTimes& measured = Need(profile.backward, "backward");
  const std::vector<ProfiledTensor>& tensors = measured.tensors;
  BackwardProfile backward;
  backward.begin_seconds = measured.begin_seconds;
  backward.forward_seconds = measured.forward_seconds;
  backward.tail_seconds = measured.tail_seconds;
  backward.update_seconds = measured.update_seconds;
  for (std::size_t t = 0; t < std::max(tensors.size(), layout.tensors()); ++t) {
    const std::string_view name = t < tensors.size() ? tensors[t].name : std::string_view("none");
    const std::string_view expected =
        t < layout.tensors() ? layout.tensor(t).name : std::string_view("none");
    if (t >= tensors.size() || t >= layout.tensors() || name != expected) {
      SPARFUSE_THROW(kData, "the profile's tensor " + std::to_string(t) + " in ready order is " +
                                std::string(name) + "; expected " + std::string(expected));
    }
    backward.backward_seconds.push_back(tensors[t].seconds);
  }
  return backward;
}

CostModel KernelCosts(const Profile& profile) {
  CostModel cost;
  cost.pack_seconds = CurveOf(profile.pack, "pack");
  cost.scale_seconds = CurveOf(profile.scale, "scale");
  cost.clear_seconds = CurveOf(profile.clear, "clear");
  cost.seconds_per_entry = Need(profile.seconds_per_entry, "seconds_per_entry");
  cost.work_seconds =
      WorkOf(profile.collective_work,
             Need(profile.seconds_per_reduced_element, "seconds_per_reduced_element"),
             cost.seconds_per_entry);
  cost.selection_coding = CodingOf(profile.selection_coding, cost.work_seconds);
  const WorkTable& host = profile.host_work;
  cost.host_work_seconds =
      host.empty() ? cost.work_seconds : WorkOf(host, At(host, "add", 0), At(host, "merge", 0));
  cost.dispatch_seconds = Need(profile.dispatch_seconds, "dispatch_seconds");
  cost.exchange_dispatch_seconds =
      Need(profile.exchange_dispatch_seconds, "exchange_dispatch_seconds");
  cost.exchange_host_seconds = profile.exchange_host_seconds.value_or(0);
  cost.exchange_host_seconds_per_rank = profile.exchange_host_seconds_per_rank.value_or(0);
  cost.host_in_line = profile.host == kHostInLine;
  cost.selects_in_hooks = profile.selections == kSelectionsInHooks;
  cost.stages_payloads = profile.staging == kStagingPayloads;
  cost.host_growth = profile.host_growth.value_or(0);
  cost.host_growth_from = profile.host_growth_from.value_or(1);
  cost.entry_bytes = profile.entry_bytes.value_or(cost.entry_bytes);
  cost.overlap = profile.overlap.value_or(1);
  cost.payload_overlap = profile.payload_overlap;
  cost.fused_overlap = profile.fused_overlap;
  cost.compute_slowdown = profile.compute_slowdown.value_or(1);
  if (profile.decode) {
    for (const auto& [coder, seconds] : *profile.decode) {
      cost.decode[coder] = {seconds.per_call, seconds.per_call_and_rank, seconds.per_element,
                            seconds.per_element_and_rank, seconds.per_entry};
    }
  }
  cost.exchange_seconds_per_element = profile.exchange_seconds_per_element.value_or(0);
  cost.sum_host_seconds_per_entry = profile.sum_host_seconds_per_entry.value_or(0);
  cost.selection = SelectionsOf(Need(profile.selection, "selection"));
  if (profile.host_selection) cost.host_selection = SelectionsOf(*profile.host_selection);
  cost.side_slowdown = profile.side_slowdown.value_or(1);
  if (profile.side_lane == "host") cost.side_selection = cost.host_selection;
  if (profile.encode) {
    for (const auto& [name, points] : *profile.encode)
      cost.encode_seconds[name] = CurveOf(points, "points of an encoding");
    // A declared cluster states no times of blocks: these stream through memory, as a copy does.
    const auto copied = cost.encode_seconds.find("fp32");
    for (const QuantizerDescriptor& blocks : BlockQuantizers()) {
      if (profile.links.empty() || copied == cost.encode_seconds.end()) break;
      cost.encode_seconds.try_emplace(std::string(blocks.name), copied->second);
    }
  }
  return cost;
}

std::vector<std::string> AssumedWork(const Profile& profile, PayloadCoding coding) {
  std::vector<std::string> assumed;
  for (const auto& [kind, as] : {std::pair{"merge", "seconds_per_entry"},
                                 {"hash", "seconds_per_entry"},
                                 {"select", "seconds_per_reduced_element"},
                                 {"multiply", "seconds_per_reduced_element"}}) {
    if (profile.collective_work.contains(kind)) continue;
    assumed.push_back(std::string("collective_work/") + kind + " is not in the profile: " + as +
                      " is taken");
  }
  if (coding.of_selections() && profile.selection_coding.empty()) {
    assumed.push_back(
        "selection_coding is not in the profile: collective_work/hash and select are taken");
  }
  return assumed;
}

void AddLink(CostModel& cost, const Profile& profile) {
  const MeasuredLink& measured = Need(profile.link, "link");
  cost.links.fill(LinkOf(measured));
  if (profile.node_link) {
    cost.links[static_cast<std::size_t>(LinkClass::kIntraNode)] = LinkOf(*profile.node_link);
  }
  cost.exchange_cpu_seconds = measured.cpu_seconds;
  if (!profile.native_all_reduce.empty()) {
    cost.native_all_reduce_seconds = CurveOf(profile.native_all_reduce, "native_all_reduce");
  }
}

void AddDeclaredLinks(CostModel& cost, const Profile& profile) {
  const auto each_class = [&](const auto& put) {
    for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode})
      put(static_cast<std::size_t>(link), std::string(LinkClassName(link)));
  };
  each_class([&](std::size_t link, const std::string& name) {
    const auto found = profile.links.find(name);
    if (found == profile.links.end()) SPARFUSE_THROW(kData, "the profile has no links." + name);
    const DeclaredLink& declared = found->second;
    cost.links[link] = LinkCost::FromAlphaBeta(declared.alpha_seconds, declared.seconds_per_byte,
                                               declared.seconds_per_extra_message);
  });
  if (const auto& buffers = profile.buffers)
    cost.buffers = {buffers->bytes, buffers->start_seconds, buffers->link_seconds};
  if (profile.all_gather == "two-level") cost.all_gather = AllGatherBy::kTwoLevel;
  if (!profile.all_reduce) return;
  const AllReduceCurves& all_reduce = *profile.all_reduce;
  cost.all_reduce.start_seconds = CurveOf(all_reduce.start_seconds, "all_reduce");
  const ProfileCurve* by_class[kLinkClasses] = {&all_reduce.intra_node, &all_reduce.inter_node};
  each_class([&](std::size_t link, const std::string& name) {
    const ProfileCurve& curve = *by_class[link];
    if (!curve.empty()) cost.all_reduce.link_seconds[link] = CurveOf(curve, name.c_str());
  });
}

std::vector<TimedShape> ShapesToTime(const GradientLayout& layout, std::size_t elements) {
  std::vector<TimedShape> distinct;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    distinct.push_back({layout.tensor(t).numel, layout.tensor(t).shape});
  }
  std::ranges::sort(distinct, [](const TimedShape& a, const TimedShape& b) {
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

Profile Perturbed(const Profile& profile, std::uint64_t seed) {
  Profile perturbed = profile;
  if (profile.relative_errors.empty()) return perturbed;
  RandomFactors random(seed);
  for (const auto& [place, error] : profile.relative_errors) {
    try {
      PerturbPlace(SecondsAt(perturbed, place), error, random);
    } catch (const std::exception& wrong) {
      SPARFUSE_THROW(kData, "relative_errors of the profile: " + place + ": " + wrong.what());
    }
  }
  if (perturbed.backward && perturbed.backward->unhooked_seconds.value_or(0) > 0)
    ScaleToTotal(*perturbed.backward);
  return perturbed;
}

bool KnowsErrors(const ProfileOutcomes& outcomes) {
  return std::ranges::any_of(outcomes, [](const ProfileOutcome& outcome) {
    return !outcome.profile.relative_errors.empty();
  });
}

ProfileOutcomes PerturbedOutcomes(const ProfileOutcomes& outcomes, std::uint64_t seed) {
  ProfileOutcomes perturbed = outcomes;
  for (std::size_t i = 0; i < perturbed.size(); ++i) {
    Profile& profile = perturbed[i].profile;
    profile = Perturbed(profile, RandomStream(seed, i, 0).key());
  }
  return perturbed;
}

}  // namespace sparfuse::harness
