#include "harness/declared_cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "baselines/composition.hpp"
#include "core/engine/model_engine.hpp"
#include "core/quantize/quantizer.hpp"
#include "harness/profile_data.hpp"
#include "harness/published.hpp"
#include "workloads/catalog.hpp"
#include "workloads/layers.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kFloatBytes = 4;
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// What an input is called, what it means, and which factor scales it.
struct InputSpec {
  const char* name;
  const char* group;
};
constexpr InputSpec kInputs[] = {
    {"inter_node_gbps", "bandwidth"},      // of a rank's share of a node's network card
    {"inter_node_us", "latency"},          // of a round between nodes
    {"intra_node_gbps", "bandwidth"},      // between the devices of a node
    {"intra_node_us", "latency"},          // of a round within a node
    {"memory_gbytes_per_s", "memory"},     // of the device
    {"kernel_us", "kernel"},               // of any kernel on the device, however small
    {"host_link_gbytes_per_s", "host"},    // from the device to its host
    {"host_memory_gbytes_per_s", "host"},  // of the host
    // Of what the host takes for an exchange of one tensor, the part that goes with what it carries
    // and that fusing therefore does not save; the rest goes with the exchange.
    {"host_carried_share", "host_carried"}  // of the host
};
// A ratio of two clusters' compute rates has no unit.
constexpr const char* kComputeRatio = "compute_ratio";

// Of what a file may declare.
constexpr const char* kInputKinds[] = {"published text", "data sheet", "declared"};

// The only published results that may be inputs (issue of calibration: everything else that a paper
// measured is there to be predicted).
constexpr const char* kCalibrationPaper = "SAFusion (HPDC 25)";
constexpr const char* kCalibrationArtifacts[] = {"Fig15a", "Fig15b"};
constexpr const char* kCalibrationMethod = "WFBP";
// What that method is here.
constexpr const char* kCalibrationSparsifier = "dgc";
constexpr double kCalibrationDensity = 0.01;
constexpr std::uint64_t kCalibrationSeed = 1;  // of the selections' counts

// Streams over device memory, in bytes an element or entry.
constexpr double kCopyBytes = 2 * kFloatBytes;    // read, write
constexpr double kClearBytes = kFloatBytes;       // write
constexpr double kReduceBytes = 3 * kFloatBytes;  // read two, write one
constexpr double kUpdateBytes =
    5 * kFloatBytes;  // parameter and momentum read and written, gradient read
// A scattered addition reads and writes a sector of 32 bytes; the entry itself is 8.
constexpr double kEntryBytes = 2 * 32 + 8;

// x and y of a[0] x + a[1] y = p, b[0] x + b[1] y = q.
std::array<double, 2> SolvePair(std::array<double, 2> a, std::array<double, 2> b, double p,
                                double q) {
  const double determinant = a[0] * b[1] - a[1] * b[0];
  return {(p * b[1] - q * a[1]) / determinant, (a[0] * q - b[0] * p) / determinant};
}

class ClusterParser {
 public:
  ClusterParser(const TomlFile& file, const fs::path& profiles)
      : file_(file), profiles_(profiles) {}

  DeclaredCluster Parse() {
    const std::vector<std::string> known = {
        "title",          "source",    "hardware",          "nodes",
        "ranks_per_node", "reference", "reference_cluster", "input",
        "selection_costs"};
    file_.CheckKeys("", "cluster", known);
    cluster_.name = fs::path(file_.name()).stem().string();
    cluster_.title = file_.RequiredString("", "title");
    cluster_.source = file_.RequiredString("", "source");
    cluster_.hardware = file_.RequiredString("", "hardware");
    cluster_.nodes = static_cast<int>(file_.Integer("", "nodes", 0, 1));
    cluster_.ranks_per_node = static_cast<int>(file_.Integer("", "ranks_per_node", 0, 1));
    for (const char* key : {"nodes", "ranks_per_node"}) {
      if (file_.Find(std::string("/") + key) == nullptr)
        file_.Fail(
            "", fmt::format("the key \"{}\" is missing: expected an integer of at least 1", key));
    }
    Inputs();
    References();
    return std::move(cluster_);
  }

 private:
  void Inputs() {
    std::vector<std::string> known;
    for (const InputSpec& spec : kInputs) known.push_back(spec.name);
    if (file_.Find("/reference_cluster") != nullptr) known.push_back(kComputeRatio);
    file_.CheckKeys("/input", "[input]", known);
    for (const std::string& name : known) {
      const std::string at = "/input/" + name;
      const std::vector<std::string> keys = {"value", "kind", "source"};
      if (file_.Find(at) == nullptr) {
        file_.Fail("/input",
                   fmt::format("input {} is missing: expected {} = {{ value, kind, source }}", name,
                               name));
      }
      file_.CheckKeys(at, name, keys);
      DeclaredInput input;
      input.name = name;
      input.value = file_.Number(at, "value", 0, 0);
      if (file_.Find(at + "/value") == nullptr)
        file_.Fail(at, "value is missing: expected a number above 0");
      input.kind = file_.RequiredString(at, "kind");
      if (std::find(std::begin(kInputKinds), std::end(kInputKinds), input.kind) ==
          std::end(kInputKinds)) {
        file_.FailValue(
            at + "/kind",
            fmt::format("one of {}: a published result is no input, but for the bars that "
                        "[[reference]] names",
                        fmt::join(kInputKinds, ", ")));
      }
      input.source = file_.RequiredString(at, "source");
      const auto spec = std::find_if(std::begin(kInputs), std::end(kInputs),
                                     [&](const InputSpec& each) { return name == each.name; });
      input.group = spec == std::end(kInputs) ? "compute" : spec->group;
      cluster_.inputs.push_back(std::move(input));
    }
  }

  // Calibration is done on the cluster that the bars are of; another takes its results over.
  void References() {
    const json* other = file_.Find("/reference_cluster");
    if ((other != nullptr) == (file_.Find("/reference") != nullptr)) {
      file_.Fail("", "expected either [[reference]] tables or a reference_cluster");
    }
    if (other != nullptr) {
      const std::string name = file_.RequiredString("", "reference_cluster");
      if (!IsDeclared(profiles_, name)) {
        file_.FailValue("/reference_cluster",
                        "a cluster with [[reference]] tables in " + profiles_.string());
      }
      cluster_.borrows = true;
      const DeclaredCluster& reference = LoadDeclaredCluster(profiles_, name);
      cluster_.references = reference.references;
      cluster_.selection_seconds_once = reference.selection_seconds_once;
      cluster_.selection_seconds_each = reference.selection_seconds_each;
      cluster_.reference_memory_gbytes = reference.reference_memory_gbytes;
      cluster_.selection_costs = reference.selection_costs;
      return;
    }
    cluster_.reference_memory_gbytes = cluster_.Value("memory_gbytes_per_s");
    SelectionCosts();
    if (file_.Find("/reference")->size() != 2) {
      file_.Fail("/reference",
                 "expected two [[reference]] tables: two constants of selections are solved for");
    }
    const auto published = ReadPublished(PublishedFile(profiles_.parent_path()));
    for (std::size_t i = 0; i < 2; ++i) Reference("/reference/" + std::to_string(i), published);
    SolveSelection();
    for (ReferenceWorkload& reference : cluster_.references) SolveHostOverhead(reference);
  }

  void SelectionCosts() {
    std::vector<std::string> known;
    for (const SparsifierDescriptor& each : Sparsifiers()) known.emplace_back(each.name);
    file_.CheckKeys("/selection_costs", "[selection_costs]", known);
    const json* costs = file_.Find("/selection_costs");
    cluster_.selection_costs = costs == nullptr ? json::object() : *costs;
    for (const auto& [name, cost] : cluster_.selection_costs.items())
      file_.Number("/selection_costs", name, 0, 0);
    if (cluster_.selection_costs.value(kCalibrationSparsifier, 0.0) != 1) {
      file_.Fail("/selection_costs",
                 fmt::format("expected {} = 1: the bars are of it, and others are its multiples",
                             kCalibrationSparsifier));
    }
  }

  void Reference(const std::string& at, const std::vector<PublishedNumber>& published) {
    const std::vector<std::string> known = {"families", "workload", "batch_per_worker",
                                            "workers",  "bar",      "batch_source"};
    file_.CheckKeys(at, "[[reference]]", known);
    ReferenceWorkload reference;
    const json* families = file_.Find(at + "/families");
    if (families == nullptr || !families->is_array())
      file_.Fail(at, "families is missing: expected a list of workload families");
    reference.families = families->get<std::vector<std::string>>();
    reference.workload = file_.RequiredString(at, "workload");
    FindWorkload(reference.workload);  // throws
    reference.batch_per_worker = static_cast<int>(file_.Integer(at, "batch_per_worker", 1, 1));
    reference.workers = static_cast<int>(file_.Integer(at, "workers", 1, 2));
    reference.batch_source = file_.RequiredString(at, "batch_source");
    reference.bar = Bar(at);
    const auto seconds = [&](const std::string& part) {
      const std::string metric = "time/iter:" + part;
      for (const PublishedNumber& row : published) {
        if (row.paper == reference.bar.paper && row.artifact == reference.bar.artifact &&
            row.method == reference.bar.method && row.metric == metric && row.unit == "ms" &&
            row.value) {
          return *row.value * 1e-3;
        }
      }
      file_.Fail(at + "/bar", fmt::format("{}: results/published has no {} in ms",
                                          reference.bar.name(), metric));
    };
    reference.forward_seconds = seconds("Forward");
    reference.backward_seconds = seconds("Backward");
    reference.sparsify_seconds = seconds("Sparsification");
    reference.exposed_seconds = seconds("NOCT");
    cluster_.references.push_back(std::move(reference));
  }

  CalibrationBar Bar(const std::string& at) const {
    const std::string name = file_.RequiredString(at, "bar");
    std::vector<std::string> allowed;
    for (const char* artifact : kCalibrationArtifacts) {
      CalibrationBar bar{kCalibrationPaper, artifact, kCalibrationMethod};
      if (name == bar.name()) return bar;
      allowed.push_back(bar.name());
    }
    file_.FailValue(at + "/bar",
                    fmt::format("one of {}: every other published result is there to be predicted",
                                fmt::join(allowed, ", ")));
  }

  // once * tensors + each * elements = sparsification, of both bars.
  void SolveSelection() {
    const auto row = [&](std::size_t bar) {
      const LayerTable& layers = LayersOf(cluster_.references[bar].workload);
      return std::array{static_cast<double>(layers.tensors.size()),
                        static_cast<double>(layers.numel())};
    };
    const auto [once, each] = SolvePair(row(0), row(1), cluster_.references[0].sparsify_seconds,
                                        cluster_.references[1].sparsify_seconds);
    if (!(once >= 0) || !(each > 0)) {
      file_.Fail("/reference",
                 fmt::format("the bars' sparsification gives {} s a tensor and {} s an element: "
                             "expected times of at least 0",
                             once, each));
    }
    cluster_.selection_seconds_once = once;
    cluster_.selection_seconds_each = each;
  }

  // Regula falsi, Illinois form: exposed communication bends where exchanges begin to wait for one
  // another, and grows by at most one overhead an exchange.
  void SolveHostOverhead(ReferenceWorkload& reference) {
    const auto error = [&](double overhead) {
      reference.host_seconds = overhead;
      const StepRecord record = ModelBar(reference);
      return record.exposed_communication_seconds + record.decompress_seconds -
             reference.exposed_seconds;
    };
    double low = 0, high = reference.exposed_seconds;
    double below = error(low), above = error(high);
    if (below > 0 || above < 0) {
      file_.Fail("/reference",
                 fmt::format("{}: a modelled step exposes {:.4g} ms more than the bar without any "
                             "host overhead, {:.4g} ms more with the whole bar an exchange: "
                             "expected the bar in between",
                             reference.bar.name(), below * 1e3, above * 1e3));
    }
    constexpr int kMostSteps = 100;
    constexpr double kTolerance = 1e-6;
    bool last_was_high = false;
    for (int step = 0; step < kMostSteps; ++step) {
      const double middle = (low * above - high * below) / (above - below);
      const double now = error(middle);
      if (std::abs(now) < kTolerance * reference.exposed_seconds) return;
      const bool is_high = now > 0;
      (is_high ? high : low) = middle;
      (is_high ? above : below) = now;
      if (step > 0 && is_high == last_was_high) (is_high ? below : above) /= 2;
      last_was_high = is_high;
    }
    file_.Fail("/reference", reference.bar.name() + ": no host overhead reproduces the bar");
  }

  StepRecord ModelBar(const ReferenceWorkload& reference) const {
    json config = {{"workload", reference.workload},
                   {"batch_per_worker", reference.batch_per_worker},
                   {"workers", reference.workers},
                   {"cluster", cluster_.name}};
    const json profile = DeclaredProfile(cluster_, config);
    MethodParts parts;  // layer-wise: what the paper calls WFBP
    parts.strategy = "ahead";
    parts.planner = "layer-wise";
    parts.collective = "sparse-allgather";
    parts.sparsifier = &FindSparsifier(kCalibrationSparsifier);
    parts.sparsifier_options =
        ResolveOptions(kCalibrationSparsifier, parts.sparsifier->options, {});
    parts.density = kCalibrationDensity;
    parts.feedback = "residual";
    const json& times = profile.front().at("profile");
    GradientLayout layout = MakeLayout(TensorsOf(times), {}, "workload " + reference.workload);
    BackwardProfile backward = BackwardOf(times, layout);
    CostModel cost = KernelCosts(times);
    AddDeclaredLinks(cost, times);
    const ModelConfig model = MakeModelConfig(
        Compose(parts), std::move(layout), {reference.workers, cluster_.ranks_per_node},
        std::move(backward), std::move(cost), kCalibrationSeed);
    return SimulateStep(model, 0, 0).records.front();
  }

  const TomlFile& file_;
  const fs::path& profiles_;
  DeclaredCluster cluster_;
};

double FactorOf(const json& config, const std::string& group) {
  return config.value("inputs", json::object()).value(group, 1.0);
}

json Described(const DeclaredInput& input, const json& config) {
  return {{"name", input.name},   {"value", input.value},
          {"kind", input.kind},   {"source", input.source},
          {"group", input.group}, {"factor", FactorOf(config, input.group)}};
}

json CurveThrough(double once, double each) {
  constexpr double kFar = 1e9;
  return json::array({{0, once}, {kFar, once + each * kFar}});
}

}  // namespace

double DeclaredCluster::Value(std::string_view input) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const DeclaredInput& each) { return each.name == input; });
  if (found == inputs.end())
    SPARFUSE_THROW(kInternal, "cluster " + name + " has no input " + std::string(input));
  return found->value;
}

double DeclaredCluster::ComputeRatio() const { return borrows ? Value(kComputeRatio) : 1.0; }

std::vector<DeclaredInput> DeclaredCluster::CalibratedInputs(
    const ReferenceWorkload& reference) const {
  const std::string bar = reference.bar.name();
  const std::string both = "both bars";
  const auto calibrated = [](const char* name, double value, const std::string& source,
                             const char* group) {
    return DeclaredInput{name, value, "calibrated", source, group};
  };
  return {calibrated("forward_ms", reference.forward_seconds * 1e3, bar, "compute"),
          calibrated("backward_ms", reference.backward_seconds * 1e3, bar, "compute"),
          calibrated("selection_us_a_tensor", selection_seconds_once * 1e6, both, "sparsify"),
          calibrated("selection_ns_an_element", selection_seconds_each * 1e9, both, "sparsify"),
          calibrated("host_us_an_exchange", reference.host_seconds * 1e6, bar, "host_overhead")};
}

const ReferenceWorkload& DeclaredCluster::ReferenceOf(const std::string& workload) const {
  const std::string_view family = FindWorkload(workload).family();
  std::vector<std::string> known;
  for (const ReferenceWorkload& reference : references) {
    if (std::find(reference.families.begin(), reference.families.end(), family) !=
        reference.families.end())
      return reference;
    known.insert(known.end(), reference.families.begin(), reference.families.end());
  }
  SPARFUSE_THROW(
      kConfig,
      fmt::format(
          "cluster \"{}\": no [[reference]] stands for workload {} of family {}; they stand "
          "for {}",
          name, workload, family, fmt::join(known, ", ")));
}

const std::vector<std::string>& InputGroups() {
  static const std::vector<std::string> kGroups = {"compute",      "sparsify", "host_overhead",
                                                   "host_carried", "latency",  "bandwidth",
                                                   "memory",       "kernel",   "host"};
  return kGroups;
}

std::vector<std::string> DeclaredClusters(const fs::path& profiles) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(profiles, none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsDeclared(const fs::path& profiles, const std::string& cluster) {
  return fs::exists(profiles / (cluster + ".toml"));
}

DeclaredCluster ParseDeclaredCluster(const TomlFile& file, const fs::path& profiles) {
  return ClusterParser(file, profiles).Parse();
}

const DeclaredCluster& LoadDeclaredCluster(const fs::path& profiles, const std::string& cluster) {
  // Calibration simulates; an experiment asks once a cell.
  static std::map<fs::path, DeclaredCluster> loaded;
  const fs::path file = fs::absolute(profiles) / (cluster + ".toml");
  const auto found = loaded.find(file);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(file, ParseDeclaredCluster(TomlFile::Read(file), profiles)).first->second;
}

json DeclaredProfile(const DeclaredCluster& cluster, const json& config) {
  const std::string workload = config.at("workload");
  const double batch = config.at("batch_per_worker");
  const LayerTable& layers = LayersOf(workload);
  const ReferenceWorkload& reference = cluster.ReferenceOf(workload);
  const LayerTable& reference_layers = LayersOf(reference.workload);

  // Forward and backward take the bar's time a multiply-accumulate; backward is spread over tensors
  // as theirs are.
  const double work = layers.macs() * batch /
                      (reference_layers.macs() * reference.batch_per_worker) *
                      cluster.ComputeRatio() * FactorOf(config, "compute");
  const double backward_seconds = reference.backward_seconds * work;
  json tensors = json::array();
  for (const LayerTensor& tensor : layers.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"numel", tensor.numel},
                       {"seconds", backward_seconds * tensor.macs / layers.macs()}});
  }

  const double memory = kGiga * cluster.Value("memory_gbytes_per_s") * FactorOf(config, "memory");
  const double kernel = kMicro * cluster.Value("kernel_us") * FactorOf(config, "kernel");
  const auto stream = [&](double bytes) { return CurveThrough(kernel, bytes / memory); };
  const double overhead = reference.host_seconds * FactorOf(config, "host_overhead");
  const double carried =
      std::min(1.0, cluster.Value("host_carried_share") * FactorOf(config, "host_carried"));
  json profile = {{"backward",
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
                  {"dispatch_seconds", 0},
                  {"exchange_dispatch_seconds", overhead * (1 - carried)},
                  // A tensor of the reference's mean size costs what it cost alone.
                  {"exchange_seconds_per_element",
                   overhead * carried * static_cast<double>(reference_layers.tensors.size()) /
                       static_cast<double>(reference_layers.numel())}};
  for (const QuantizerDescriptor& quantizer : Quantizers())
    profile["encode"][std::string(quantizer.name)] = stream(kCopyBytes);

  // The published code's selections stream through memory many times: they scale with its
  // bandwidth.
  const double sparsify = FactorOf(config, "sparsify");
  const double each = cluster.selection_seconds_each * cluster.reference_memory_gbytes /
                      cluster.Value("memory_gbytes_per_s");
  const double host = kGiga * FactorOf(config, "host");
  const double host_each = kFloatBytes / (host * cluster.Value("host_link_gbytes_per_s")) +
                           kFloatBytes / (host * cluster.Value("host_memory_gbytes_per_s"));
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
            {"seconds_per_byte", 8 / (gbps * kGiga * bandwidth)}};
  };
  const json given = config.value("link", json());
  profile["links"] = {
      {"intra_node", link(cluster.Value("intra_node_gbps"), cluster.Value("intra_node_us"))},
      {"inter_node", given.is_null()
                         ? link(cluster.Value("inter_node_gbps"), cluster.Value("inter_node_us"))
                         : link(given.at("gbps"), given.at("alpha_us"))}};

  json inputs = json::array();
  for (const DeclaredInput& input : cluster.inputs) inputs.push_back(Described(input, config));
  for (const DeclaredInput& input : cluster.CalibratedInputs(reference))
    inputs.push_back(Described(input, config));
  const json calibration = json::array({{{"paper", reference.bar.paper},
                                         {"artifact", reference.bar.artifact},
                                         {"method", reference.bar.method},
                                         {"workload", reference.workload},
                                         {"workers", reference.workers}}});
  return json::array({{{"config", config},
                       {"declared", true},
                       {"profile", std::move(profile)},
                       {"calibration", calibration},
                       {"inputs", std::move(inputs)},
                       {"machine", {{"hardware", cluster.hardware}, {"source", cluster.source}}},
                       {"software", json::object()}}});
}

}  // namespace sparfuse
