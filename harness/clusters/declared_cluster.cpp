#include "harness/clusters/declared_cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/sparsify/sparsifier.hpp"
#include "harness/catalog/config_keys.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/published/published.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr Range kNodes{1, 65'536};
constexpr Range kRanksPerNode{1, 1024};
constexpr Range kInputValues{1e-9, 1e9};
constexpr Range kMessages{0, 1e9};
constexpr Range kSlowdowns{1, 100};

// What an input is called, what it means, and which factor scales it.
struct InputSpec {
  const char* name;
  const char* group;
  Range values = kInputValues;
  bool may_be_left_out = false;
};
constexpr const char* kMessage = "message_us";
constexpr const char* kSideSlowdown = "side_slowdown";
// A ratio of two clusters' compute rates, of those that have a reference_cluster.
constexpr const char* kComputeRatio = "compute_ratio";
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
    {"host_carried_share", "host_carried"},
    // Of each message beyond the first that a rank sends at once, within nodes and between them.
    {kMessage, "latency", kMessages, true},
    // What a selection beside backward takes, of what it takes alone.
    {kSideSlowdown, "side", kSlowdowns, true}};
constexpr InputSpec kRatio = {kComputeRatio, "compute"};

constexpr Range kReferenceWorkers{2, 1024};  // reading the file simulates them

// Of what a file may declare.
constexpr const char* kInputKinds[] = {"published text", "data sheet", "declared"};

// The only results of a paper that may be inputs: everything else that it measured is there to be
// predicted.
constexpr const char* kCalibrationPaper = "SAFusion (HPDC 25)";
constexpr const char* kCalibrationArtifacts[] = {"Fig15a", "Fig15b"};
constexpr const char* kCalibrationMethod = "WFBP";

class ClusterParser {
 public:
  ClusterParser(const TomlFile& file, const ProfileFolders& profiles)
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
    cluster_.nodes = static_cast<int>(file_.Integer("", "nodes", 0, kNodes));
    cluster_.ranks_per_node =
        static_cast<int>(file_.Integer("", "ranks_per_node", 0, kRanksPerNode));
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
    std::vector<InputSpec> specs(std::begin(kInputs), std::end(kInputs));
    if (file_.Find("/reference_cluster") != nullptr) specs.push_back(kRatio);
    std::vector<std::string> known;
    for (const InputSpec& spec : specs) known.push_back(spec.name);
    file_.CheckKeys("/input", "[input]", known);
    for (const InputSpec& spec : specs) {
      const std::string at = std::string("/input/") + spec.name;
      const std::vector<std::string> keys = {"value", "kind", "source"};
      if (file_.Find(at) == nullptr) {
        if (spec.may_be_left_out) continue;
        file_.Fail("/input",
                   fmt::format("input {} is missing: expected {} = {{ value, kind, source }}",
                               spec.name, spec.name));
      }
      file_.CheckKeys(at, spec.name, keys);
      DeclaredInput input;
      input.name = spec.name;
      input.group = spec.group;
      input.value = file_.Number(at, "value", 0, spec.values);
      if (file_.Find(at + "/value") == nullptr)
        file_.Fail(at, "value is missing: expected a number from " + Text(spec.values));
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
                        "a cluster with [[reference]] tables in " + profiles_.Text());
      }
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
    const auto published = ReadPublished(profiles_.File("../published/published-numbers.csv"));
    for (std::size_t i = 0; i < 2; ++i) Reference("/reference/" + std::to_string(i), published);
    try {
      CalibrateOnBars(cluster_);
    } catch (const Error& error) {
      file_.Fail("/reference", error.what());
    }
  }

  void SelectionCosts() {
    std::vector<std::string> known;
    for (const SparsifierDescriptor& each : Sparsifiers()) known.emplace_back(each.name);
    file_.CheckKeys("/selection_costs", "[selection_costs]", known);
    const json* costs = file_.Find("/selection_costs");
    cluster_.selection_costs = costs == nullptr ? json::object() : *costs;
    for (const auto& [name, cost] : cluster_.selection_costs.items())
      file_.Number("/selection_costs", name, 0, kInputValues);
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
    workloads::FindWorkload(reference.workload);  // throws
    reference.batch_per_worker = static_cast<int>(
        file_.Integer(at, "batch_per_worker", 1, FindConfigKey("batch_per_worker")->range));
    reference.workers = static_cast<int>(file_.Integer(at, "workers", 1, kReferenceWorkers));
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

  const TomlFile& file_;
  const ProfileFolders& profiles_;
  DeclaredCluster cluster_;
};

}  // namespace

double DeclaredCluster::Value(std::string_view input) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const DeclaredInput& each) { return each.name == input; });
  if (found == inputs.end())
    SPARFUSE_THROW(kInternal, "cluster " + name + " has no input " + std::string(input));
  return found->value;
}

double DeclaredCluster::ValueOr(std::string_view input, double otherwise) const {
  return std::ranges::count(inputs, input, &DeclaredInput::name) > 0 ? Value(input) : otherwise;
}

// The calibration's own cluster has none.
double DeclaredCluster::ComputeRatio() const { return ValueOr(kComputeRatio, 1); }

double DeclaredCluster::SideSlowdown() const { return ValueOr(kSideSlowdown, 1); }

double DeclaredCluster::MessageMicroseconds() const { return ValueOr(kMessage, 0); }

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
  const std::string_view family = workloads::FindWorkload(workload).family();
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
          "for {}{}",
          name, workload, family, fmt::join(known, ", "),
          workloads::IsTable(workload) ? "; the key \"family\" of its file names one of them"
                                       : ""));
}

const std::vector<std::string>& InputGroups() {
  static const std::vector<std::string> kGroups = {
      "compute",   "sparsify", "host_overhead", "host_carried", "latency",
      "bandwidth", "memory",   "kernel",        "host",         "side"};
  return kGroups;
}

bool IsDeclared(const ProfileFolders& profiles, const std::string& cluster) {
  return profiles.Has(cluster + ".toml");
}

DeclaredCluster ParseDeclaredCluster(const TomlFile& file, const ProfileFolders& profiles) {
  return ClusterParser(file, profiles).Parse();
}

const DeclaredCluster& LoadDeclaredCluster(const ProfileFolders& profiles,
                                           const std::string& cluster) {
  // Calibration simulates; an experiment asks once a cell.
  static std::map<fs::path, DeclaredCluster> loaded;
  const fs::path file = fs::absolute(profiles.File(cluster + ".toml"));
  const auto found = loaded.find(file);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(file, ParseDeclaredCluster(TomlFile::Read(file), profiles)).first->second;
}

}  // namespace sparfuse::harness
