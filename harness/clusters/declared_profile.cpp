// Converts a declared cluster to the profile that the model takes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/coding/quantizers/quantizer.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

constexpr double kAnyDensity = 0.01;  // declared times do not depend on it

// Traffic of device memory in bytes per element or entry.
constexpr double kCopyBytes = 2 * kFloatBytes;    // read, write
constexpr double kClearBytes = kFloatBytes;       // write
constexpr double kReduceBytes = 3 * kFloatBytes;  // read two, write one
// A product with factors of four columns, as in profiles, reads its matrix once.
constexpr double kMultiplyBytes = kFloatBytes / 4;
// An update reads and writes parameter and momentum, and reads the gradient.
constexpr double kUpdateBytes = 5 * kFloatBytes;
// A scattered addition reads and writes a sector of 32 bytes (half a cache line of a host), and
// reads an entry of 8 bytes.
constexpr double kEntryBytes = 2 * 32 + 8;

double FactorOf(const CellConfig& config, const std::string& group) {
  const auto found = config.inputs.find(group);
  return found == config.inputs.end() ? 1.0 : found->second;
}

DescribedInput Described(const DeclaredInput& input, const CellConfig& config) {
  return {input.name, input.value,  input.low,   input.high,
          input.kind, input.source, input.group, FactorOf(config, input.group)};
}

ProfileCurve CurveThrough(double once, double each) {
  constexpr double kFar = 1e9;
  return {{0, once}, {kFar, once + each * kFar}};
}

// The curve times a factor, and a line of `once` and `each` element on top.
ProfileCurve Raised(ProfileCurve curve, double factor, double once, double each) {
  for (ProfilePoint& point : curve)
    point.seconds = factor * point.seconds + once + each * point.size;
  return curve;
}

std::vector<SelectionCurve> SelectionThrough(double once, double each) {
  return {{kAnyDensity, CurveThrough(once, each)}};
}

// A cluster whose inputs are multiplied by a cell's factors.
class Scaled {
 public:
  Scaled(const DeclaredCluster& cluster, const CellConfig& config)
      : cluster_(cluster),
        config_(config),
        family_(workloads::FindWorkload(config.workload).family()) {}

  double Factor(const char* group) const { return FactorOf(config_, group); }
  double Stated(const char* input) const { return cluster_.Value(input, family_); }
  bool IsStated(const char* input) const { return cluster_.Find(input, family_) != nullptr; }
  double operator()(const char* input) const {
    const auto spec = std::ranges::find_if(
        InputSpecs(), [&](const InputSpec& each) { return std::string_view(each.name) == input; });
    return Stated(input) * Factor(spec->group);
  }

 private:
  const DeclaredCluster& cluster_;
  const CellConfig& config_;
  std::string_view family_;
};

// Times of the forward and the backward pass of a batch.
struct ComputeSeconds {
  double forward = 0, backward = 0;
};

// Uses the workload's measured time, or the time of another workload of its family, scaled by
// multiply-accumulates. Without either it uses the declared rate, with backward twice as long as
// forward. A table without a declared rate keeps its measured times, wherever they were measured.
ComputeSeconds ComputeOf(const DeclaredCluster& cluster, const CellConfig& config) {
  const double factor = FactorOf(config, "compute");
  const double work = workloads::LayersOf(config.workload).macs() * config.batch_per_worker;
  if (const ComputeTime* time = cluster.ComputeOf(config.workload)) {
    // A table from a trace may count no multiply-accumulates: then it applies to itself alone.
    const double macs = workloads::LayersOf(time->workload).macs();
    const double ratio =
        macs > 0 ? factor * work / (macs * time->batch_per_worker)
                 : factor * config.batch_per_worker / static_cast<double>(time->batch_per_worker);
    return {ratio * time->forward_seconds, ratio * time->backward_seconds};
  }
  const double tflops =
      cluster.Value("compute_tflops", workloads::FindWorkload(config.workload).family());
  if (const workloads::MeasuredTimes* times = MeasuredTimesOf(config.workload);
      times != nullptr && tflops <= 0) {
    const double us = std::accumulate(times->backward_us.begin(), times->backward_us.end(), 0.0);
    const double steps =
        factor * kMicro * config.batch_per_worker / static_cast<double>(times->batch);
    return {steps * times->forward_us.value_or(0), steps * us};
  }
  const double forward = factor * 2 * work / (1e12 * tflops);
  return {forward, 2 * forward};
}

double UpdateHostSeconds(const DeclaredCluster& cluster, const CellConfig& config,
                         std::size_t tensors) {
  if (config.workers == 1) return 0;
  return kMicro * Scaled(cluster, config)("update_host_us_a_tensor") * static_cast<double>(tensors);
}

// Adds the host's hooks of a distributed step to the time before each gradient.
void AddHooks(const DeclaredCluster& cluster, const CellConfig& config, BackwardTimes& backward) {
  if (config.workers == 1) return;
  const double hook = kMicro * Scaled(cluster, config)("hook_host_us_a_tensor");
  for (ProfiledTensor& tensor : backward.tensors) tensor.seconds += hook;
}

BackwardTimes BackwardTimesOf(const DeclaredCluster& cluster, const CellConfig& config) {
  const workloads::LayerTable& layers = workloads::LayersOf(config.workload);
  const ComputeSeconds compute = ComputeOf(cluster, config);
  const std::vector<double> weights = workloads::BackwardWeights(config.workload);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  BackwardTimes backward;
  backward.forward_seconds = compute.forward;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    const workloads::LayerTensor& tensor = layers.tensors[t];
    backward.tensors.push_back(
        {tensor.name, tensor.shape, tensor.numel, compute.backward * weights[t] / all});
  }
  AddHooks(cluster, config, backward);
  backward.update_seconds =
      UpdateSeconds(cluster, config.workload) / Scaled(cluster, config).Factor("memory") +
      UpdateHostSeconds(cluster, config, layers.tensors.size());
  return backward;
}

struct LinkRate {
  double alpha_seconds = 0;
  double bytes_per_second = 0;
};

LinkRate WithinNodes(const Scaled& input, const CellConfig& config) {
  const bool given = config.link && config.link->has_within();
  const double nominal =
      given ? config.link->intra_node_gbps * input.Factor("bandwidth") : input("intra_node_gbps");
  const double alpha =
      given ? config.link->intra_node_us * input.Factor("latency") : input("intra_node_us");
  return {kMicro * alpha, kGiga / 8 * nominal * input.Stated("intra_node_efficiency")};
}

// The rate that arrives of one network card. A shaper lets packets pass at its rate, so that what
// protocol and staging leave of a card bounds it from above, and is no share of it.
double DeliveredGbps(const Scaled& input, const CellConfig& config) {
  const double card = input.Stated("inter_node_gbps"),
               share = input.Stated("inter_node_efficiency");
  if (!config.link) return card * share;
  const bool shaped = config.link->gbps < card && input.IsStated("shaper_efficiency");
  return shaped ? std::min(config.link->gbps * input.Stated("shaper_efficiency"), card * share)
                : config.link->gbps * share;
}

// The link between nodes, with the bandwidth of a whole node.
LinkRate BetweenNodes(const Scaled& input, const CellConfig& config) {
  const double alpha =
      config.link ? config.link->alpha_us * input.Factor("latency") : input("inter_node_us");
  const double delivered = DeliveredGbps(input, config) * input.Stated("network_cards");
  return {kMicro * alpha, kGiga / 8 * input.Factor("bandwidth") *
                              std::min(delivered, input.Stated("host_path_gbps"))};
}

DeclaredLink LinkOf(const LinkRate& rate, double message_seconds) {
  return {rate.alpha_seconds, 1 / rate.bytes_per_second, message_seconds};
}

// Scales a curve to another number of ranks: the start-up time by the steps of a ring, and the rest
// by the bytes that a rank passes on in it. Both are multiplied by the cell's factors.
AllReduceCurves AllReduceOf(const OperationCurve& curve, const Scaled& input, int ranks) {
  const auto steps = [](double p) { return p - 1; };
  const auto passed = [](double p) { return (p - 1) / p; };
  const double start =
      input.Factor("latency") * curve.seconds.front().second * steps(ranks) / steps(curve.ranks);
  const double scale = passed(ranks) / passed(curve.ranks) / input.Factor("bandwidth");
  AllReduceCurves curves{{{0, start}}, {}, {{0, 0}}};
  for (const auto& [bytes, seconds] : curve.seconds) {
    curves.inter_node.push_back(
        {bytes, std::max(0.0, seconds - curve.seconds.front().second) * scale});
  }
  return curves;
}

CollectiveLinks CollectiveLinksOf(const DeclaredCluster& cluster, const LinkRate& within,
                                  const LinkRate& between) {
  CollectiveLinks links;
  links[LinkClass::kIntraNode] = {within.bytes_per_second, within.alpha_seconds};
  links.cards_per_node = static_cast<int>(std::lround(cluster.Value("network_cards")));
  links[LinkClass::kInterNode] = {between.bytes_per_second / links.cards_per_node,
                                  between.alpha_seconds};
  return links;
}

std::optional<BroadcastTimes> BroadcastOf(const DeclaredCluster& cluster, const CellConfig& config,
                                          const LinkRate& within, const LinkRate& between) {
  const double bytes = cluster.BroadcastBytes(config);
  if (bytes <= 0) return std::nullopt;
  const Topology topology{config.workers, config.ranks_per_node};
  const CollectiveLinks links = CollectiveLinksOf(cluster, within, between);
  const CollectiveCost cost = cluster.buffers == BuffersBy::kTree
                                  ? TreeBroadcastCost(links, topology, bytes)
                                  : RingBroadcastCost(links, topology, bytes);
  return BroadcastTimes{bytes, cost.startup_seconds, cost.transfer_seconds()};
}

// Computes curves with the formulas of core/cost, at sizes from 64 bytes to 8 GiB.
AllReduceCurves AllReduceOf(const DeclaredCluster& cluster, const CellConfig& config,
                            const LinkRate& within, const LinkRate& between) {
  const Topology topology{config.workers, config.ranks_per_node};
  const CollectiveLinks links = CollectiveLinksOf(cluster, within, between);
  const auto cost_of = [&](double bytes) {
    switch (cluster.all_reduce) {
      case AllReduceBy::kTree:
        return TreeAllReduceCost(links, topology, bytes);
      case AllReduceBy::kTwoLevel:
        return TwoLevelAllReduceCost(links, topology, bytes);
      default:
        break;
    }
    NcclMachine machine = cluster.nccl;
    machine.links = links;
    return NcclCost(NcclCollective::kAllReduce, machine, topology, bytes,
                    cluster.all_reduce == AllReduceBy::kNccl2_8 ? kNccl2_8 : kNccl2_20);
  };
  AllReduceCurves curves;
  ProfileCurve* by_link[kLinkClasses] = {&curves.intra_node, &curves.inter_node};
  constexpr int kSmallest = 6, kLargest = 33;  // powers of 2
  for (int power = kSmallest; power <= kLargest; ++power) {
    const double bytes = std::exp2(power);
    const CollectiveCost cost = cost_of(bytes);
    curves.start_seconds.push_back({bytes, cost.startup_seconds});
    // A pipelined collective occupies both links at once, so the slower link decides.
    const std::size_t slower = cost.link_seconds[0] > cost.link_seconds[1] ? 0 : 1;
    for (std::size_t link = 0; link < kLinkClasses; ++link) {
      const bool counts = !cost.pipelined || link == slower;
      by_link[link]->push_back({bytes, counts ? cost.link_seconds[link] : 0.0});
    }
  }
  return curves;
}

// The measured all-reduce curve with the number of ranks nearest to the cell's by ratio. Null if
// there is none, or if the cell gives its own link.
const OperationCurve* NearestCurve(const DeclaredCluster& cluster, const CellConfig& config) {
  if (config.link || config.workers <= config.ranks_per_node) return nullptr;
  const auto distance = [&](const OperationCurve& curve) {
    return std::abs(std::log(static_cast<double>(curve.ranks) / config.workers));
  };
  const auto nearest = std::ranges::min_element(cluster.curves, {}, distance);
  return nearest == cluster.curves.end() ? nullptr : &*nearest;
}

void AddCoders(const DeclaredCluster& cluster, const Scaled& input, Profile& profile) {
  const double factor = input.Factor("sparsify") * cluster.Value("coding_in_step");
  const auto select = [&](const std::string& name, double once, double each) {
    (*profile.selection)[name] = SelectionThrough(once, each);
  };
  const double each = factor * 1e-9 * cluster.Value("selection_ns_an_element");
  const double once = factor * kMicro * cluster.Value("selection_us");
  for (const auto& [name, cost] : cluster.selection_costs) select(name, cost * once, cost * each);
  std::vector<std::string> quantizers;
  for (const QuantizerDescriptor& quantizer : Quantizers()) quantizers.emplace_back(quantizer.name);
  for (const Coder& coder : cluster.coders) {
    const bool quantizes = std::ranges::count(quantizers, coder.name) > 0;
    const ProfileCurve encode =
        coder.encode_curve.empty()
            ? CurveThrough(factor * coder.encode_seconds, factor * coder.encode_seconds_per_element)
            : Raised(coder.encode_curve, factor, 0, 0);
    if (coder.encodes && quantizes) {
      (*profile.encode)[coder.name] = encode;
    } else if (coder.encodes) {
      (*profile.selection)[coder.name] = {{kAnyDensity, encode}};
    }
    if (!coder.decodes) continue;
    if (!profile.decode) profile.decode.emplace();
    (*profile.decode)[coder.name] = {
        .per_call = factor * coder.decode_seconds,
        .per_call_and_rank = factor * coder.decode_seconds_per_rank,
        .per_element = factor * coder.decode_seconds_per_element,
        .per_element_and_rank = factor * coder.decode_seconds_per_element_and_rank,
        .per_entry = factor * coder.decode_seconds_per_entry};
  }
}

CardFactors FactorsOfCard(const DeclaredCluster& cluster, const CellConfig& config) {
  return {FactorOf(config, "compute"),
          FactorOf(config, "sparsify") * cluster.Value("coding_in_step"),
          FactorOf(config, "memory"), FactorOf(config, "kernel")};
}

// Sets the kind of the numbers if not all are declared, and says whether the cluster's card was
// used.
void AddKind(const DeclaredCluster& cluster, bool measured, ProfileOutcome& outcome) {
  const auto has = [&](std::string_view wanted) {
    const auto is = [&](const auto& each) { return each.kind == wanted; };
    return std::ranges::any_of(cluster.inputs, is) || std::ranges::any_of(cluster.compute, is) ||
           std::ranges::any_of(cluster.coders, is) || std::ranges::any_of(cluster.curves, is);
  };
  std::string kind = "declared";
  if (has("imported")) kind += ", in part imported";
  if (has(kTraceKind)) kind += fmt::format(", {}", kTraceKind);
  if (cluster.card) {
    const MeasuredCard& card = *cluster.card;
    outcome.card = {card.name, card.kind, card.hardware, measured};
    kind += measured ? fmt::format(", its card {} {}", card.name, card.kind)
                     : fmt::format(", without its card {}", card.name);
  }
  if (kind != "declared") outcome.kind = kind;
}

Profile ProfileWith(const DeclaredCluster& cluster, const CellConfig& config,
                    const ProfileOutcome* measured) {
  const Scaled input(cluster, config);
  const double memory = kGiga * input("memory_gbytes_per_s");
  const double kernel = kMicro * input("kernel_us");
  const auto stream = [&](double bytes) { return CurveThrough(kernel, bytes / memory); };
  const CardFactors factors = FactorsOfCard(cluster, config);
  Profile profile;
  if (measured == nullptr) {
    profile.backward = BackwardTimesOf(cluster, config);
  } else {
    profile.backward = BackwardOfCard(*measured, factors);
    AddHooks(cluster, config, *profile.backward);
    profile.backward->update_seconds +=
        UpdateHostSeconds(cluster, config, profile.backward->tensors.size());
  }
  profile.pack = stream(kCopyBytes);
  profile.scale = stream(kCopyBytes);
  profile.clear = stream(kClearBytes);
  profile.seconds_per_entry = kEntryBytes / memory;
  profile.seconds_per_reduced_element = kReduceBytes / memory;
  profile.collective_work["multiply"] = kMultiplyBytes / memory;
  profile.side_slowdown = std::max(1.0, input("side_slowdown"));
  profile.compute_slowdown = std::max(1.0, input("compute_slowdown"));
  profile.overlap = std::min(1.0, input("overlap"));
  const auto stated = [&](const char* name) {
    return cluster.Find(name, workloads::FindWorkload(config.workload).family()) == nullptr
               ? std::nullopt
               : std::optional(std::min(1.0, input(name)));
  };
  profile.payload_overlap = stated("payload_overlap");
  profile.fused_overlap = stated("fused_overlap");
  if (cluster.Find("entry_bytes", workloads::FindWorkload(config.workload).family()) != nullptr)
    profile.entry_bytes = input.Stated("entry_bytes");
  if (cluster.host == HostBy::kInLine) profile.host = kHostInLine;
  if (cluster.selections == SelectionsBy::kInHooks) profile.selections = kSelectionsInHooks;
  if (cluster.staging == StagingOf::kPayloads) profile.staging = kStagingPayloads;
  if (const double growth = input.Stated("exchange_growth"); growth > 0) {
    profile.host_growth = growth;
    profile.host_growth_from = input.Stated("exchange_growth_from");
  }
  profile.dispatch_seconds = 0;
  profile.exchange_dispatch_seconds = 0;
  profile.exchange_host_seconds = kMicro * input("exchange_host_us");
  profile.exchange_host_seconds_per_rank = kMicro * input("exchange_host_us_a_rank");
  profile.exchange_seconds_per_element = 1e-9 * input("exchange_host_ns_an_element");
  if (const double entry = input("sum_host_ns_an_entry"); entry > 0)
    profile.sum_host_seconds_per_entry = 1e-9 * entry;
  profile.selection.emplace();
  profile.encode.emplace();
  for (const QuantizerDescriptor& quantizer : Quantizers())
    (*profile.encode)[std::string(quantizer.name)] = stream(kCopyBytes);
  AddCoders(cluster, input, profile);
  if (measured != nullptr) PutKernelsOfCard(*measured, factors, profile);

  const double host_link = kGiga * input("host_link_gbytes_per_s");
  const double host_memory = kGiga * input("host_memory_gbytes_per_s");
  profile.host_work = {{"add", kReduceBytes / host_memory},
                       {"merge", kEntryBytes / host_memory},
                       {"to_host", kFloatBytes / host_link},
                       {"to_device", kFloatBytes / host_link}};
  Selections on_host;  // selections and encodings
  const auto by_processors = SelectionThrough(
      kernel, kFloatBytes / host_link + std::max(kFloatBytes / host_memory,
                                                 1e-9 * input("host_selection_ns_an_element")));
  for (const auto& [name, curves] : *profile.selection) on_host[name] = by_processors;
  for (const auto& [name, curve] : *profile.encode) on_host[name] = by_processors;
  for (const Coder& coder : cluster.coders) {
    if (!coder.encodes_on_host) continue;
    const double factor = input.Factor("sparsify");
    const double copy = kFloatBytes / host_link;
    if (!coder.host_encode_curve.empty()) {
      on_host[coder.name] = {{kAnyDensity, Raised(coder.host_encode_curve, factor, kernel, copy)}};
      continue;
    }
    on_host[coder.name] = SelectionThrough(kernel + factor * coder.host_encode_seconds,
                                           copy + factor * coder.host_encode_seconds_per_element);
  }
  if (!on_host.empty()) profile.host_selection = std::move(on_host);

  const double message = kMicro * input("message_us");
  const LinkRate within = WithinNodes(input, config);
  const LinkRate between = BetweenNodes(input, config);
  profile.links = {{"intra_node", LinkOf(within, message)},
                   {"inter_node", LinkOf(between, message)}};
  if (const OperationCurve* curve = NearestCurve(cluster, config)) {
    profile.all_reduce = AllReduceOf(*curve, input, config.workers);
  } else if (cluster.all_reduce != AllReduceBy::kRing && config.workers > 1) {
    profile.all_reduce = AllReduceOf(cluster, config, within, between);
  }
  profile.buffers = BroadcastOf(cluster, config, within, between);
  if (cluster.all_gather != AllGatherBy::kRing)
    profile.all_gather = kAllGatherNames[static_cast<std::size_t>(cluster.all_gather)];
  return profile;
}

}  // namespace

double UpdateSeconds(const DeclaredCluster& cluster, const std::string& workload) {
  return UpdateSeconds(cluster, workloads::LayersOf(workload).numel());
}

double UpdateSeconds(const DeclaredCluster& cluster, std::size_t elements) {
  return kUpdateBytes * static_cast<double>(elements) /
         (kGiga * cluster.Value("memory_gbytes_per_s"));
}

LinkShape LinksOf(const DeclaredCluster& cluster, const CellConfig& config) {
  CellConfig bare = config;
  bare.link = std::nullopt;
  const Scaled input(cluster, bare);
  const auto digits = [](double value) { return std::round(value * 1e6) / 1e6; };
  const auto gbps = [&](const LinkRate& rate) { return digits(rate.bytes_per_second * 8 / kGiga); };
  const auto alpha_us = [&](const LinkRate& rate) { return digits(rate.alpha_seconds / kMicro); };
  const LinkRate between = BetweenNodes(input, bare);
  LinkShape link{gbps(between), alpha_us(between)};
  if (cluster.ranks_per_node > 1) {
    const LinkRate within = WithinNodes(input, bare);
    link.intra_node_gbps = gbps(within);
    link.intra_node_us = alpha_us(within);
  }
  return link;
}

ProfileOutcomes DeclaredProfile(const DeclaredCluster& cluster, const CellConfig& config) {
  const ProfileOutcome* measured = cluster.MeasuredOf(config);
  ProfileOutcome outcome;
  try {
    outcome.profile = ProfileWith(cluster, config, measured);
  } catch (const Error& error) {
    if (measured == nullptr || error.kind() != FailureKind::kData) throw;
    SPARFUSE_THROW(kData, fmt::format("cluster \"{}\": the profile of its card {} is damaged: {}",
                                      cluster.name, cluster.card->name, error.what()));
  }
  outcome.config = config;
  outcome.declared = true;
  const std::string_view family = workloads::FindWorkload(config.workload).family();
  outcome.inputs.emplace();
  for (const DeclaredInput& each : cluster.inputs) {
    if (cluster.Find(each.name, family) == &each)
      outcome.inputs->push_back(Described(each, config));
  }
  outcome.calibration.emplace();
  for (const ReferenceStep& step : cluster.references) {
    for (const CalibrationBar& bar : BarsOf(step)) {
      outcome.calibration->push_back(
          {bar.paper, bar.artifact, bar.method, step.workload, step.workers});
    }
  }
  outcome.machine = {{"hardware", cluster.hardware}, {"source", cluster.source}};
  outcome.software = nlohmann::json::object();
  AddKind(cluster, measured != nullptr, outcome);
  return {std::move(outcome)};
}

}  // namespace sparfuse::harness
