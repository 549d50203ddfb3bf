// Writes a declared cluster as the profile that the model takes.
#include <numeric>

#include "core/quantize/quantizer.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr double kFloatBytes = 4;
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// Streams over device memory, in bytes an element or entry.
constexpr double kCopyBytes = 2 * kFloatBytes;    // read, write
constexpr double kClearBytes = kFloatBytes;       // write
constexpr double kReduceBytes = 3 * kFloatBytes;  // read two, write one
// Parameter and momentum are read and written, the gradient is read.
constexpr double kUpdateBytes = 5 * kFloatBytes;
// A scattered addition reads and writes a sector of 32 bytes, half a line of a host's cache; the
// entry itself is 8.
constexpr double kEntryBytes = 2 * 32 + 8;

double FactorOf(const CellConfig& config, const std::string& group) {
  const auto found = config.inputs.find(group);
  return found == config.inputs.end() ? 1.0 : found->second;
}

json Described(const DeclaredInput& input, const CellConfig& config) {
  return {{"name", input.name},   {"value", input.value},
          {"kind", input.kind},   {"source", input.source},
          {"group", input.group}, {"factor", FactorOf(config, input.group)}};
}

json CurveThrough(double once, double each) {
  constexpr double kFar = 1e9;
  return json::array({{0, once}, {kFar, once + each * kFar}});
}

}  // namespace

json DeclaredProfile(const DeclaredCluster& cluster, const CellConfig& config) {
  const std::string& workload = config.workload;
  const double batch = config.batch_per_worker;
  const workloads::LayerTable& layers = workloads::LayersOf(workload);
  const ReferenceWorkload& reference = cluster.ReferenceOf(workload);
  const workloads::LayerTable& reference_layers = workloads::LayersOf(reference.workload);

  // Forward and backward take the bar's time a multiply-accumulate; backward is spread over tensors
  // as theirs are, or as it was measured.
  const double work = layers.macs() * batch /
                      (reference_layers.macs() * reference.batch_per_worker) *
                      cluster.ComputeRatio() * FactorOf(config, "compute");
  const double backward_seconds = reference.backward_seconds * work;
  const std::vector<double> weights = workloads::BackwardWeights(workload);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  json tensors = json::array();
  for (std::size_t t = 0; t < weights.size(); ++t) {
    const workloads::LayerTensor& tensor = layers.tensors[t];
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"numel", tensor.numel},
                       {"seconds", backward_seconds * weights[t] / all}});
  }

  const double memory = kGiga * cluster.Value("memory_gbytes_per_s") * FactorOf(config, "memory");
  const double kernel = kMicro * cluster.Value("kernel_us") * FactorOf(config, "kernel");
  const auto stream = [&](double bytes) { return CurveThrough(kernel, bytes / memory); };
  const double overhead = reference.host_seconds * FactorOf(config, "host_overhead");
  const double carried =
      std::min(1.0, cluster.Value("host_carried_share") * FactorOf(config, "host_carried"));
  json profile = {
      {"backward",
       {{"steps", 0},
        {"begin_seconds", 0},
        {"forward_seconds", reference.forward_seconds * work},
        {"tail_seconds", 0},
        {"update_seconds", kUpdateBytes * static_cast<double>(layers.numel()) / memory},
        {"tensors", std::move(tensors)}}},
      {"pack", stream(kCopyBytes)},
      {"scale", stream(kCopyBytes)},
      {"clear", stream(kClearBytes)},
      {"seconds_per_entry", kEntryBytes / memory},
      {"seconds_per_reduced_element", kReduceBytes / memory},
      {"side_slowdown", std::max(1.0, cluster.SideSlowdown() * FactorOf(config, "side"))},
      {"dispatch_seconds", 0},
      {"exchange_dispatch_seconds", overhead * (1 - carried)},
      // A tensor of the reference's mean size costs what it cost alone.
      {"exchange_seconds_per_element", overhead * carried *
                                           static_cast<double>(reference_layers.tensors.size()) /
                                           static_cast<double>(reference_layers.numel())}};
  for (const QuantizerDescriptor& quantizer : Quantizers())
    profile["encode"][std::string(quantizer.name)] = stream(kCopyBytes);

  // The published code's selections stream through memory many times: they scale with its
  // bandwidth.
  const double sparsify = FactorOf(config, "sparsify");
  const double each = cluster.selection_seconds_each * cluster.reference_memory_gbytes /
                      cluster.Value("memory_gbytes_per_s");
  const double host = kGiga * FactorOf(config, "host");
  const double host_link = host * cluster.Value("host_link_gbytes_per_s");
  const double host_memory = host * cluster.Value("host_memory_gbytes_per_s");
  const double host_each = kFloatBytes / host_link + kFloatBytes / host_memory;
  profile["host_work"] = {{"add", kReduceBytes / host_memory},
                          {"merge", kEntryBytes / host_memory},
                          {"to_host", kFloatBytes / host_link},
                          {"to_device", kFloatBytes / host_link}};
  for (const auto& [name, cost] : cluster.selection_costs.items()) {
    const double relative = sparsify * cost.get<double>();
    profile["selection"][name] = {
        {{"density", kCalibrationDensity},
         {"seconds", CurveThrough(relative * cluster.selection_seconds_once, relative * each)}}};
    profile["host_selection"][name] = {
        {{"density", kCalibrationDensity}, {"seconds", CurveThrough(kernel, host_each)}}};
  }

  const double bandwidth = FactorOf(config, "bandwidth");
  const double latency = FactorOf(config, "latency");
  const auto link = [&](double gbps, double microseconds) -> json {
    return {{"alpha_seconds", microseconds * kMicro * latency},
            {"seconds_per_byte", 8 / (gbps * kGiga * bandwidth)},
            {"seconds_per_extra_message", cluster.MessageMicroseconds() * kMicro * latency}};
  };
  profile["links"] = {
      {"intra_node", link(cluster.Value("intra_node_gbps"), cluster.Value("intra_node_us"))},
      {"inter_node", config.link
                         ? link(config.link->gbps, config.link->alpha_us)
                         : link(cluster.Value("inter_node_gbps"), cluster.Value("inter_node_us"))}};

  json inputs = json::array();
  for (const DeclaredInput& input : cluster.inputs) inputs.push_back(Described(input, config));
  for (const DeclaredInput& input : cluster.CalibratedInputs(reference))
    inputs.push_back(Described(input, config));
  const json calibration = json::array({{{"paper", reference.bar.paper},
                                         {"artifact", reference.bar.artifact},
                                         {"method", reference.bar.method},
                                         {"workload", reference.workload},
                                         {"workers", reference.workers}}});
  return json::array({{{"config", ToJson(config)},
                       {"declared", true},
                       {"profile", std::move(profile)},
                       {"calibration", calibration},
                       {"inputs", std::move(inputs)},
                       {"machine", {{"hardware", cluster.hardware}, {"source", cluster.source}}},
                       {"software", json::object()}}});
}

}  // namespace sparfuse::harness
