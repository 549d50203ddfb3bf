#include "core/cost/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

PiecewiseLinear::PiecewiseLinear(std::vector<std::pair<double, double>> points)
    : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end());
}

double PiecewiseLinear::operator()(double x) const {
  if (points_.empty()) return 0;
  if (points_.size() == 1 || x <= points_.front().first) return points_.front().second;
  auto right = std::upper_bound(points_.begin(), points_.end(), std::pair(x, HUGE_VAL));
  if (right == points_.end()) --right;
  const auto left = right - 1;
  const double slope = (right->second - left->second) / (right->first - left->first);
  return left->second + slope * (x - left->first);
}

PiecewiseLinear::Growth PiecewiseLinear::GrowthFrom0() const {
  if (points_.size() < 2) return {};
  double slope = HUGE_VAL;  // of the flattest segment that does not fall
  double fallen = 0;
  double beside = std::max(0.0, points_.front().first);  // length over which it does not rise
  for (std::size_t i = 1; i < points_.size(); ++i) {
    const double length = points_[i].first - points_[i - 1].first;
    const double rise = points_[i].second - points_[i - 1].second;
    if (rise >= 0) {
      slope = std::min(slope, rise / length);
    } else if (i + 1 == points_.size()) {
      return {0, HUGE_VAL};
    } else {
      fallen -= rise;
      beside += length;
    }
  }
  return {slope, fallen + slope * beside};
}

double SelectionCost::operator()(std::size_t elements, double density) const {
  const auto n = static_cast<double>(elements);
  const auto above = by_density_.lower_bound(density);
  if (above == by_density_.end()) return by_density_.empty() ? 0 : by_density_.rbegin()->second(n);
  if (above == by_density_.begin() || above->first == density) return above->second(n);
  const auto below = std::prev(above);
  const double weight = (std::log(density) - std::log(below->first)) /
                        (std::log(above->first) - std::log(below->first));
  return (1 - weight) * below->second(n) + weight * above->second(n);
}

LinkCost LinkCost::FromAlphaBeta(double alpha_seconds, double seconds_per_byte,
                                 double seconds_per_extra_message) {
  constexpr double kGigabyte = 1e9;
  LinkCost link;
  link.round_seconds = PiecewiseLinear(
      {{0, alpha_seconds}, {kGigabyte, alpha_seconds + kGigabyte * seconds_per_byte}});
  link.seconds_per_extra_message = seconds_per_extra_message;
  return link;
}

double CostModel::SelectionSeconds(std::string_view sparsifier, std::size_t elements,
                                   double density) const {
  const auto it = selection.find(sparsifier);
  if (it == selection.end()) {
    SPARFUSE_THROW(kConfig, "the profile has no measurements of sparsifier \"", sparsifier,
                   "\"; measure it with sparfuse profile");
  }
  return it->second(elements, density);
}

double CostModel::HostSelectionSeconds(std::string_view sparsifier, std::size_t elements,
                                       double density) const {
  const auto it = host_selection.find(sparsifier);
  return it == host_selection.end() ? SelectionSeconds(sparsifier, elements, density)
                                    : it->second(elements, density);
}

double CostModel::SideSelectionSeconds(std::string_view sparsifier, std::size_t elements,
                                       double density) const {
  const auto it = side_selection.find(sparsifier);
  return it == side_selection.end() ? SelectionSeconds(sparsifier, elements, density)
                                    : it->second(elements, density);
}

double CostModel::EncodeSeconds(std::string_view quantizer, std::size_t elements) const {
  const auto n = static_cast<double>(elements);
  const auto it = encode_seconds.find(quantizer);
  if (it != encode_seconds.end()) return it->second(n);
  if (quantizer == "fp32") return pack_seconds(n);  // a checked copy
  SPARFUSE_THROW(kConfig, "the profile has no measurements of quantizer \"", quantizer,
                 "\"; measure it with sparfuse profile");
}

double DecodeCost::Seconds(std::size_t elements, std::size_t entries, int ranks) const {
  return per_call + per_call_and_rank * ranks + per_entry * static_cast<double>(entries) +
         (per_element + per_element_and_rank * ranks) * static_cast<double>(elements);
}

double CostModel::DecompressSeconds(std::string_view coder, std::size_t elements,
                                    std::size_t entries, int ranks) const {
  const auto it = decode.find(coder);
  if (it != decode.end()) return it->second.Seconds(elements, entries, ranks);
  return clear_seconds(static_cast<double>(elements)) +
         seconds_per_entry * static_cast<double>(entries);
}

double WorkSeconds::Of(const WorkByKind& elements) const {
  double seconds = 0;
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
    seconds += static_cast<double>(elements[kind]) * seconds_[kind];
  }
  return seconds;
}

double CostModel::BroadcastSeconds(int ranks) const {
  if (ranks == 1 || buffers.bytes <= 0) return 0;
  return ExchangeHostSeconds(ranks) + HostElementSeconds(buffers.bytes / sizeof(float), ranks) +
         buffers.start_seconds + buffers.link_seconds;
}

double CostModel::ByteFactor(const Collective& collective) const {
  const bool gathered =
      collective.descriptor().payload == PayloadKind::kSparse && !collective.traits().sums;
  return gathered ? entry_bytes / static_cast<double>(kSparseElementBytes) : 1;
}

CostModel::Phases CostModel::PhasesOf(const RoundPlan& plan, double byte_factor) const {
  Phases phases;
  phases.latency_seconds = exchange_dispatch_seconds;
  phases.cpu_seconds = exchange_cpu_seconds;
  const LinkCost& node = links[static_cast<std::size_t>(LinkClass::kIntraNode)];
  const WorkSeconds& work = plan.on_host ? host_work_seconds : work_seconds;
  for (const Round& round : plan.rounds) {
    phases.local_seconds += work.Of(round.work);
    if (round.messages == 0) continue;
    const LinkCost& link = links[static_cast<std::size_t>(round.link)];
    const PiecewiseLinear& seconds = link.round_seconds;
    const PiecewiseLinear& within = node.round_seconds;
    // Rounds of one phase are alike: each repetition has the mean size.
    const double bytes =
        byte_factor * static_cast<double>(std::max(round.bytes, round.node_bytes)) / round.repeat;
    const double extra_messages = round.messages > 1 ? round.messages - 1.0 : 0.0;
    const double starts = (round.repeat - round.within_starts) * seconds(0) +
                          round.repeat * extra_messages * link.seconds_per_extra_message;
    const double starts_within = round.within_starts * within(0);
    phases.latency_seconds += starts + starts_within;
    const double between = seconds(bytes) - seconds(0);
    const double inside =
        within(byte_factor * static_cast<double>(round.within_bytes) / round.repeat) - within(0);
    const LinkClass slower = inside > between ? LinkClass::kIntraNode : round.link;
    const double on_link = round.repeat * std::max(between, inside);
    phases.link_seconds[static_cast<std::size_t>(slower)] += on_link;
    phases.cpu_seconds += (round.repeat - round.within_starts) * link.round_cpu_seconds +
                          round.within_starts * node.round_cpu_seconds +
                          round.repeat * extra_messages * link.message_cpu_seconds +
                          starts * link.cpu_fraction + starts_within * node.cpu_fraction +
                          on_link * links[static_cast<std::size_t>(slower)].cpu_fraction;
  }
  return phases;
}

CostModel::Phases CostModel::PhasesOf(const RoundPlan& plan, const Collective& collective,
                                      std::uint64_t bytes) const {
  const CollectiveDescriptor& by = collective.descriptor();
  const bool all_reduce_of_library = by.of_library && by.payload == PayloadKind::kDense;
  return all_reduce_of_library ? AllReducePhases(plan, by.native, bytes)
                               : PhasesOf(plan, ByteFactor(collective));
}

CostModel::Phases CostModel::AllReducePhases(const RoundPlan& plan, bool native,
                                             std::uint64_t bytes) const {
  const auto x = static_cast<double>(bytes);
  Phases phases;
  if (!all_reduce.empty()) {
    phases.latency_seconds = exchange_dispatch_seconds + all_reduce.start_seconds(x);
    for (std::size_t link = 0; link < kLinkClasses; ++link) {
      phases.link_seconds[link] = all_reduce.link_seconds[link](x);
    }
    return phases;
  }
  phases = PhasesOf(plan);
  if (!native || native_all_reduce_seconds.empty()) return phases;
  phases.latency_seconds = exchange_dispatch_seconds + native_all_reduce_seconds(x);
  phases.link_seconds = {};
  phases.local_seconds = 0;
  return phases;
}

CostModel::Growth CostModel::GrowthOf(const RoundPlan& plan, const Collective& collective,
                                      std::uint64_t bytes) const {
  const CollectiveDescriptor& by = collective.descriptor();
  Growth growth;
  const auto add = [&growth](const PiecewiseLinear& curve) {
    const PiecewiseLinear::Growth of_curve = curve.GrowthFrom0();
    growth.seconds_per_byte += of_curve.slope;
    growth.fall += of_curve.fall;
  };
  const bool of_library = by.of_library && by.payload == PayloadKind::kDense;
  if (of_library && !all_reduce.empty()) {
    add(all_reduce.start_seconds);
    for (const PiecewiseLinear& curve : all_reduce.link_seconds) add(curve);
    return growth;
  }
  if (of_library && by.native && !native_all_reduce_seconds.empty()) {
    add(native_all_reduce_seconds);
    return growth;
  }
  const double factor = of_library ? 1 : ByteFactor(collective);
  const PiecewiseLinear& within =
      links[static_cast<std::size_t>(LinkClass::kIntraNode)].round_seconds;
  const PiecewiseLinear::Growth of_within = within.GrowthFrom0();
  for (const Round& round : plan.rounds) {
    const PiecewiseLinear& between = links[static_cast<std::size_t>(round.link)].round_seconds;
    const PiecewiseLinear::Growth of_between = between.GrowthFrom0();
    const double part = factor / static_cast<double>(bytes);
    const double grows =
        of_between.slope * part * static_cast<double>(std::max(round.bytes, round.node_bytes));
    const double grows_within = of_within.slope * part * static_cast<double>(round.within_bytes);
    // The larger of two lines through 0 is one of them; for other curves the flatter slope is a
    // safe bound.
    const bool one = round.within_bytes == 0 || (between.straight() && within.straight());
    growth.seconds_per_byte += one ? std::max(grows, grows_within) : std::min(grows, grows_within);
    const double fall = std::max(of_between.fall, of_within.fall);
    if (fall > 0) growth.fall += 2 * round.repeat * fall;  // the larger of a curve and 0 counts
  }
  return growth;
}

void BackwardProfile::Slow(double factor) {
  for (double* seconds : {&begin_seconds, &forward_seconds, &tail_seconds, &update_seconds}) {
    *seconds *= factor;
  }
  for (double& seconds : backward_seconds) seconds *= factor;
}

CostModel DeclaredCost(double gbps, double alpha_seconds, const std::string& sparsifier) {
  const PiecewiseLinear local({{0, 1e-6}, {1e6, 1e-6 + 1e-3}});
  constexpr double kAnyDensity = 0.01;  // one curve serves all densities
  CostModel cost;
  for (const SparsifierDescriptor& known : Sparsifiers()) {
    cost.selection[std::string(known.name)].Add(kAnyDensity, local);
  }
  if (!sparsifier.empty() && !cost.selection.contains(sparsifier)) {
    cost.selection[sparsifier].Add(kAnyDensity, local);
  }
  for (const auto table : {Quantizers(), BlockQuantizers()}) {
    for (const QuantizerDescriptor& quantizer : table) {
      cost.encode_seconds[std::string(quantizer.name)] = local;
    }
  }
  cost.pack_seconds = local;
  cost.links.fill(LinkCost::FromAlphaBeta(alpha_seconds, 8 / (gbps * 1e9)));
  return cost;
}

}  // namespace sparfuse
