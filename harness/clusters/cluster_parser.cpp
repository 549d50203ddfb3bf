// Reads the file of a declared cluster, and has it calibrated.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/quantize/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/config_keys.hpp"
#include "harness/catalog/tables/table_workload.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/published/published.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr Range kNodes{1, 65'536};
constexpr Range kRanksPerNode{1, 1024};
constexpr Range kWorkers{1, 65'536};
constexpr Range kMilliseconds{1e-6, 1e9};
constexpr Range kCodingTimes{0, 1e9};
constexpr Range kBytes{1, 1e15};
constexpr Range kCosts{1e-9, 1e9};
constexpr Range kSpreads{1, 1000};
constexpr Range kDensities{1e-9, 1};

double SpreadOf(const std::string& kind) {
  for (const InputKind& each : InputKinds()) {
    if (kind == each.name) return each.spread;
  }
  return 1;
}

class ClusterParser {
 public:
  ClusterParser(const TomlFile& file, const ProfileFolders& profiles)
      : file_(file), profiles_(profiles) {}

  DeclaredCluster Parse() {
    Keys("", "cluster",
         {"title", "source", "hardware", "nodes", "ranks_per_node", "reference",
          "reference_cluster", "input", "selection_costs", "compute", "coder", "curve",
          "all_reduce", "nccl", "calibrate", "calibrate_by_family", "stack"});
    cluster_.name = fs::path(file_.name()).stem().string();
    cluster_.title = file_.RequiredString("", "title");
    cluster_.source = file_.RequiredString("", "source");
    cluster_.hardware = file_.RequiredString("", "hardware");
    cluster_.nodes = Count("", "nodes", kNodes);
    cluster_.ranks_per_node = Count("", "ranks_per_node", kRanksPerNode);
    ReadStack();
    TakeOver();
    Inputs();
    SelectionCosts();
    ForEach("compute", [&](const std::string& at) { Compute(at); });
    ForEach("coder", [&](const std::string& at) { ReadCoder(at); });
    AllReduce();
    ForEach("curve", [&](const std::string& at) { Curve(at); });
    ForEach("reference", [&](const std::string& at) { Reference(at); });
    Calibrate();
    return std::move(cluster_);
  }

 private:
  void Keys(const std::string& at, const char* what, const std::vector<std::string>& known) const {
    file_.CheckKeys(at, what, known);
  }

  void ForEach(const std::string& tables, const auto& read) const {
    const json* list = file_.Find("/" + tables);
    if (list == nullptr) return;
    if (!list->is_array()) file_.Fail("/" + tables, fmt::format("expected [[{}]] tables", tables));
    for (std::size_t i = 0; i < list->size(); ++i) read(fmt::format("/{}/{}", tables, i));
  }

  int Count(const std::string& at, const char* key, Range range) const {
    if (file_.Find(at + "/" + key) == nullptr) {
      file_.Fail(at,
                 fmt::format("the key \"{}\" is missing: expected an integer of at least 1", key));
    }
    return static_cast<int>(file_.Integer(at, key, 0, range));
  }

  static double NeededIn(const TomlFile& file, const std::string& at, const char* key,
                         Range range) {
    if (file.Find(at + "/" + key) == nullptr)
      file.Fail(at, fmt::format("{} is missing: expected a number from {}", key, Text(range)));
    return file.Number(at, key, 0, range);
  }
  double Needed(const std::string& at, const char* key, Range range) const {
    return NeededIn(file_, at, key, range);
  }

  std::string Kind(const std::string& at) const { return KindIn(file_, at); }
  static std::string KindIn(const TomlFile& file, const std::string& at) {
    const std::string kind = file.RequiredString(at, "kind");
    std::vector<std::string> names;
    for (const InputKind& each : InputKinds()) names.emplace_back(each.name);
    if (std::ranges::find(names, kind) == names.end()) {
      file.FailValue(at + "/kind",
                     fmt::format("one of {}: a published result is no input, but for the steps "
                                 "that [[reference]] names",
                                 fmt::join(names, ", ")));
    }
    return kind;
  }

  double Spread(const std::string& at, const std::string& kind) const {
    return file_.Number(at, "spread", SpreadOf(kind), kSpreads);
  }

  // Another cluster's compute, coders and calibration; what this file has itself comes first.
  void TakeOver() {
    if (file_.Find("/reference_cluster") == nullptr) return;
    const std::string name = file_.RequiredString("", "reference_cluster");
    if (!IsDeclared(profiles_, name)) {
      file_.FailValue("/reference_cluster", "a declared cluster in " + profiles_.Text());
    }
    const DeclaredCluster& other = LoadDeclaredCluster(profiles_, name);
    other_ = &other;
    cluster_.calibrated_on = name;
    cluster_.compute = other.compute;
    const double ratio = file_.Find("/input/compute_ratio") == nullptr
                             ? 1
                             : Needed("/input/compute_ratio", "value", {1e-9, 1e9});
    for (ComputeTime& time : cluster_.compute) {
      time.forward_seconds *= ratio;
      time.backward_seconds *= ratio;
      time.source += ", on " + name;
    }
    cluster_.coders = other.coders;
    cluster_.selection_costs = other.selection_costs;
    cluster_.references = other.references;  // that the experiments that use it must name
  }

  static DeclaredInput ReadInput(const TomlFile& file, const InputSpec& spec) {
    const std::string at = AtInput(spec.name);
    file.CheckKeys(at, spec.name,
                   std::vector<std::string>{"value", "low", "high", "kind", "source"});
    DeclaredInput input;
    input.name = spec.name;
    input.group = spec.group;
    input.value = NeededIn(file, at, "value", spec.values);
    input.kind = KindIn(file, at);
    input.source = file.RequiredString(at, "source");
    const double spread = SpreadOf(input.kind);
    input.low = file.Number(at, "low", std::max(spec.values.least, input.value / spread),
                            {spec.values.least, input.value});
    input.high = file.Number(at, "high", std::min(spec.values.most, input.value * spread),
                             {input.value, spec.values.most});
    return input;
  }
  static std::string AtInput(const std::string& name) { return "/input/" + name; }

  // What the stack of the cluster's software is known to take; this file's own numbers, and what is
  // calibrated on the reference_cluster, come first.
  void ReadStack() {
    if (file_.Find("/stack") == nullptr) return;
    cluster_.stack = file_.RequiredString("", "stack");
    const auto known = profiles_.Names(".toml", kStacksFolder);
    if (std::ranges::find(known, cluster_.stack) == known.end()) {
      file_.Fail(
          "/stack",
          fmt::format("unknown stack \"{}\"{}: expected one of {} (sparfuse cluster list)",
                      cluster_.stack, Suggestion(cluster_.stack, known), fmt::join(known, ", ")));
    }
    stack_ =
        TomlFile::Read(profiles_.File(fmt::format("{}/{}.toml", kStacksFolder, cluster_.stack)));
    stack_->CheckKeys("", "stack",
                      std::vector<std::string>{"title", "source", "all_reduce", "input"});
    stack_->RequiredString("", "title");
    stack_->RequiredString("", "source");
    std::vector<std::string> inputs;
    for (const InputSpec& spec : InputSpecs()) {
      if (spec.of_stack) inputs.emplace_back(spec.name);
    }
    stack_->CheckKeys("/input", "[input] of a stack", inputs);
    for (const InputSpec& spec : InputSpecs()) {
      if (stack_->Find(AtInput(spec.name)) != nullptr) ReadInput(*stack_, spec);  // well formed
    }
  }

  void TakeOfStack(const InputSpec& spec) {
    if (!stack_ || stack_->Find(AtInput(spec.name)) == nullptr) return;
    DeclaredInput input = ReadInput(*stack_, spec);
    input.source = fmt::format("stack {}: {}", cluster_.stack, input.source);
    cluster_.inputs.push_back(std::move(input));
  }

  // Of those that another cluster was calibrated for and this one does not have.
  void TakeCalibrated(const InputSpec& spec) {
    if (other_ == nullptr) return;
    for (DeclaredInput input : other_->inputs) {
      if (input.name != spec.name) continue;
      if (input.kind != "calibrated" && input.group != "sparsify") continue;
      // Published selections stream through memory many times: they scale with its bandwidth.
      if (input.name == "selection_ns_an_element") {
        const double ratio = other_->Value("memory_gbytes_per_s") /
                             Needed("/input/memory_gbytes_per_s", "value", {1e-9, 1e9});
        for (double* each : {&input.value, &input.low, &input.high}) *each *= ratio;
      }
      input.calibrated = false;
      cluster_.inputs.push_back(std::move(input));
    }
  }

  void Inputs() {
    std::vector<std::string> known;
    for (const InputSpec& spec : InputSpecs()) known.emplace_back(spec.name);
    Keys("/input", "[input]", known);
    for (const InputSpec& spec : InputSpecs()) {
      if (file_.Find(AtInput(spec.name)) != nullptr) {
        cluster_.inputs.push_back(ReadInput(file_, spec));
        continue;
      }
      TakeCalibrated(spec);
      if (cluster_.Find(spec.name) == nullptr) TakeOfStack(spec);
      if (cluster_.Find(spec.name) == nullptr && !spec.otherwise) {
        file_.Fail(
            "/input",
            fmt::format("input {} is missing ({}): expected {} = {{ value, kind, source }}{}",
                        spec.name, spec.meaning, spec.name,
                        spec.of_stack && !stack_ ? ", or a stack that states it" : ""));
      }
    }
    if (cluster_.Find("compute_ratio") != nullptr && other_ == nullptr) {
      file_.Fail("/input/compute_ratio", "expected it with a reference_cluster only");
    }
  }

  void SelectionCosts() {
    const json* costs = file_.Find("/selection_costs");
    if (costs == nullptr) return;
    std::vector<std::string> known;
    for (const SparsifierDescriptor& each : Sparsifiers()) known.emplace_back(each.name);
    Keys("/selection_costs", "[selection_costs]", known);
    for (const auto& [name, cost] : costs->items())
      file_.Number("/selection_costs", name, 0, kCosts);
    if (cluster_.Value("selection_ns_an_element") <= 0) {
      file_.Fail("/selection_costs",
                 "expected an input selection_ns_an_element above 0: costs are its multiples");
    }
    cluster_.selection_costs = *costs;
  }

  std::vector<std::string> Families(const std::string& at, const std::string& workload) const {
    const json* families = file_.Find(at + "/families");
    if (families == nullptr) return {std::string(workloads::FindWorkload(workload).family())};
    const bool good = families->is_array() && !families->empty() &&
                      std::ranges::all_of(*families, [](const json& e) { return e.is_string(); });
    if (!good) file_.FailValue(at + "/families", "a list of workload families");
    return families->get<std::vector<std::string>>();
  }

  std::string Workload(const std::string& at) const {
    std::string workload = file_.RequiredString(at, "workload");
    try {
      if (workloads::IsTable(workload))
        workload = TableWorkloadName(workload, fs::path(file_.name()).parent_path());
      workloads::FindWorkload(workload);
    } catch (const Error& error) {
      file_.Fail(at + "/workload", error.what());
    }
    return workload;
  }

  // Later entries come first: what a file says itself, before what it takes over.
  void AddCompute(ComputeTime time) { cluster_.compute.insert(cluster_.compute.begin(), time); }

  // What step_ms leaves for forward and backward: a third and two, less the update.
  void SplitStep(double step_seconds, ComputeTime& time) const {
    const double update = UpdateSeconds(cluster_, time.workload);
    if (step_seconds <= update) {
      file_.Fail("", fmt::format("a step of {} takes {:.4g} ms, its update alone {:.4g} ms at "
                                 "memory_gbytes_per_s = {:g}: the two conflict",
                                 time.workload, step_seconds * 1e3, update * 1e3,
                                 cluster_.Value("memory_gbytes_per_s")));
    }
    time.forward_seconds = (step_seconds - update) / 3;
    time.backward_seconds = 2 * time.forward_seconds;
  }

  void Compute(const std::string& at) {
    Keys(at, "[[compute]]",
         {"families", "workload", "batch_per_worker", "forward_ms", "backward_ms", "step_ms",
          "samples_per_s", "spread", "kind", "source"});
    ComputeTime time;
    time.workload = Workload(at);
    time.families = Families(at, time.workload);
    time.batch_per_worker = Count(at, "batch_per_worker", FindConfigKey("batch_per_worker")->range);
    time.kind = Kind(at);
    time.source = file_.RequiredString(at, "source");
    time.spread = Spread(at, time.kind);
    if (file_.Find(at + "/step_ms") != nullptr) {
      SplitStep(1e-3 * Needed(at, "step_ms", kMilliseconds), time);
    } else if (file_.Find(at + "/samples_per_s") != nullptr) {
      SplitStep(time.batch_per_worker / Needed(at, "samples_per_s", kCosts), time);
    } else {
      time.forward_seconds = 1e-3 * Needed(at, "forward_ms", kMilliseconds);
      time.backward_seconds = 1e-3 * Needed(at, "backward_ms", kMilliseconds);
    }
    AddCompute(std::move(time));
  }

  void ReadCoder(const std::string& at) {
    Keys(at, "[[coder]]",
         {"names", "encode_us", "encode_ns_an_element", "decode_us", "decode_us_a_rank",
          "decode_ns_an_element", "decode_ns_an_element_and_rank", "decode_ns_an_entry", "spread",
          "kind", "source"});
    const json* names = file_.Find(at + "/names");
    if (names == nullptr || !names->is_array())
      file_.Fail(at, "names is missing: expected a list of sparsifiers or quantizers");
    std::vector<std::string> known;
    for (const SparsifierDescriptor& each : Sparsifiers()) known.emplace_back(each.name);
    for (const QuantizerDescriptor& each : Quantizers()) known.emplace_back(each.name);
    Coder coder;
    coder.encode_seconds = 1e-6 * file_.Number(at, "encode_us", 0, kCodingTimes);
    coder.encode_seconds_per_element =
        1e-9 * file_.Number(at, "encode_ns_an_element", 0, kCodingTimes);
    for (const char* key : {"decode_us", "decode_us_a_rank", "decode_ns_an_element",
                            "decode_ns_an_element_and_rank", "decode_ns_an_entry"}) {
      coder.decodes |= file_.Find(at + "/" + key) != nullptr;
    }
    coder.decode_seconds = 1e-6 * file_.Number(at, "decode_us", 0, kCodingTimes);
    coder.decode_seconds_per_rank = 1e-6 * file_.Number(at, "decode_us_a_rank", 0, kCodingTimes);
    coder.decode_seconds_per_element =
        1e-9 * file_.Number(at, "decode_ns_an_element", 0, kCodingTimes);
    coder.decode_seconds_per_element_and_rank =
        1e-9 * file_.Number(at, "decode_ns_an_element_and_rank", 0, kCodingTimes);
    coder.decode_seconds_per_entry = 1e-9 * file_.Number(at, "decode_ns_an_entry", 0, kCodingTimes);
    coder.kind = Kind(at);
    coder.source = file_.RequiredString(at, "source");
    coder.spread = Spread(at, coder.kind);
    for (const json& name : *names) {
      if (!name.is_string() || std::ranges::find(known, name.get<std::string>()) == known.end()) {
        file_.Fail(at + "/names",
                   fmt::format("unknown sparsifier or quantizer {}{}", Shown(name),
                               name.is_string() ? Suggestion(name.get<std::string>(), known) : ""));
      }
      coder.name = name;
      std::erase_if(cluster_.coders, [&](const Coder& each) { return each.name == coder.name; });
      cluster_.coders.push_back(coder);
    }
  }

  // The position of a string among `names`.
  static std::size_t OneOf(const TomlFile& file, const std::string& at, const char* key,
                           std::span<const char* const> names, const char* otherwise) {
    const std::string given = file.String(at, key, otherwise);
    const auto found = std::ranges::find(names, given);
    if (found == names.end()) {
      file.FailValue(at + "/" + key, fmt::format("one of {}", fmt::join(names, ", ")));
    }
    return static_cast<std::size_t>(found - names.begin());
  }

  // [nccl] is of the machine: it may stand there for stacks that have no use for it.
  void AllReduce() {
    const bool own = file_.Find("/all_reduce") != nullptr || !stack_;
    cluster_.all_reduce = static_cast<AllReduceBy>(
        OneOf(own ? file_ : *stack_, "", "all_reduce", kAllReduceNames, kAllReduceNames[0]));
    const bool nccl = cluster_.all_reduce >= AllReduceBy::kNccl2_8;
    if (file_.Find("/nccl") == nullptr) {
      if (!nccl) return;
      file_.Fail("", fmt::format("the table [nccl] is missing: expected within, cards, processor "
                                 "and channels{}",
                                 own ? "" : ", which stack \"" + cluster_.stack + "\" needs"));
    }
    if (!nccl && own) {
      file_.Fail("/nccl",
                 "expected it with all_reduce = \"nccl-2.8\" or \"nccl-2.20\", or with "
                 "a stack");
    }
    Keys("/nccl", "[nccl]", {"within", "cards", "processor", "channels", "ll128", "simple_tree"});
    static constexpr const char* kWithin[] = {"nvlink", "pcie"};
    static constexpr const char* kCards[] = {"volta", "ampere", "hopper"};
    static constexpr const char* kProcessors[] = {"intel", "amd"};
    NcclMachine& machine = cluster_.nccl;
    machine.within = static_cast<NcclHop>(OneOf(file_, "/nccl", "within", kWithin, "nvlink"));
    machine.cards = static_cast<NcclCards>(OneOf(file_, "/nccl", "cards", kCards, "volta"));
    machine.processor =
        static_cast<NcclProcessor>(OneOf(file_, "/nccl", "processor", kProcessors, "intel"));
    machine.channels = Count("/nccl", "channels", {1, 64});
    machine.ll128 = file_.Boolean("/nccl", "ll128", false);
    machine.simple_tree = file_.Boolean("/nccl", "simple_tree", cluster_.ranks_per_node == 1);
  }

  std::vector<double> Numbers(const std::string& at, const char* key, Range range) const {
    const json* list = file_.Find(at + "/" + key);
    const bool good = list != nullptr && list->is_array() && list->size() >= 2 &&
                      std::ranges::all_of(*list, [&](const json& each) {
                        return WhatIsWrongWithNumber(each, range).empty();
                      });
    if (!good)
      file_.Fail(
          at, fmt::format("{}: expected a list of at least two numbers from {}", key, Text(range)));
    return list->get<std::vector<double>>();
  }

  void Curve(const std::string& at) {
    Keys(at, "[[curve]]", {"operation", "ranks", "bytes", "us", "kind", "source"});
    if (file_.RequiredString(at, "operation") != "all-reduce")
      file_.FailValue(at + "/operation", "\"all-reduce\"");
    OperationCurve curve;
    curve.ranks = Count(at, "ranks", {2, 65'536});
    const std::vector<double> bytes = Numbers(at, "bytes", kBytes);
    const std::vector<double> us = Numbers(at, "us", kMilliseconds);
    if (bytes.size() != us.size()) {
      file_.Fail(at, fmt::format("bytes has {} numbers and us {}: expected as many", bytes.size(),
                                 us.size()));
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i > 0 && bytes[i] <= bytes[i - 1])
        file_.Fail(at + "/bytes", "expected them to grow from one to the next");
      curve.seconds.emplace_back(bytes[i], 1e-6 * us[i]);
    }
    curve.kind = Kind(at);
    curve.source = file_.RequiredString(at, "source");
    cluster_.curves.push_back(std::move(curve));
  }

  const std::vector<PublishedNumber>& Published(const std::string& name) {
    const auto found = published_.find(name);
    if (found != published_.end()) return found->second;
    const fs::path path = profiles_.File("../published/" + name);
    return published_.emplace(name, ReadPublished(path)).first->second;
  }

  // The row of a file of results/published that a [[reference]] names by its columns: what it gives
  // in samples a second.
  double Row(const std::string& at, ReferenceStep& step) {
    static const std::vector<std::string> kColumns = {"file", "model", "workers", "network",
                                                      "method"};
    const std::string here = at + "/row";
    Keys(here, "row", kColumns);
    const std::string name = file_.RequiredString(here, "file");
    const int workers = Count(here, "workers", kWorkers);
    if (workers != step.workers) {
      file_.FailValue(here + "/workers", fmt::format("the reference's workers, {}", step.workers));
    }
    const std::string count = std::to_string(workers);
    const std::pair<const char*, std::string PublishedNumber::*> named[] = {
        {"model", &PublishedNumber::model},
        {"network", &PublishedNumber::network},
        {"method", &PublishedNumber::method}};
    std::vector<const PublishedNumber*> left;
    for (const PublishedNumber& row : Published(name)) left.push_back(&row);
    for (const auto& [key, column] : named) {
      const std::string wanted = file_.RequiredString(here, key);
      std::set<std::string> known;
      for (const PublishedNumber* row : left) known.insert(row->*column);
      std::erase_if(left, [&](const PublishedNumber* row) { return row->*column != wanted; });
      if (left.empty()) {
        const std::vector<std::string> names(known.begin(), known.end());
        file_.Fail(here + "/" + key, fmt::format("{} has no row with {} \"{}\"{}", name, key,
                                                 wanted, Suggestion(wanted, names)));
      }
    }
    std::erase_if(left, [&](const PublishedNumber* row) { return row->workers != count; });
    if (left.size() != 1 || !left.front()->value || left.front()->unit != "samples/s") {
      file_.FailValue(here, fmt::format("one row of {} with {} workers and a number of samples/s",
                                        name, workers));
    }
    const PublishedNumber& row = *left.front();
    step.bar = CalibrationBar{row.paper, row.artifact, row.method,
                              fmt::format("{}/{}/{}", row.model, row.workers, row.network)};
    return *row.value;
  }

  // One number of results/published; nothing where there is none.
  std::optional<double> PublishedValue(const std::string& name, const CalibrationBar& bar,
                                       const std::string& metric, const std::string& unit) {
    for (const PublishedNumber& row : Published(name)) {
      if (row.paper == bar.paper && row.artifact == bar.artifact && row.method == bar.method &&
          row.metric == metric && row.unit == unit && row.value) {
        return row.value;
      }
    }
    return std::nullopt;
  }

  CalibrationBar Bar(const std::string& at) const {
    const std::string name = file_.RequiredString(at, "bar");
    std::vector<std::string> parts(1);
    for (const char c : name) {
      if (c == '/') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    if (parts.size() != 3) file_.FailValue(at + "/bar", "\"PAPER/ARTIFACT/METHOD\"");
    return {parts[0], parts[1], parts[2], {}};
  }

  void Reference(const std::string& at) {
    Keys(at, "[[reference]]",
         {"families", "workload", "batch_per_worker", "workers", "method", "method_options",
          "sparsifier", "density", "link", "bar", "row", "forward_ms", "backward_ms", "sparsify_ms",
          "exposed_ms", "step_ms", "samples_per_s", "source"});
    ReferenceStep step;
    step.workload = Workload(at);
    step.families = Families(at, step.workload);
    step.batch_per_worker = Count(at, "batch_per_worker", FindConfigKey("batch_per_worker")->range);
    step.workers = Count(at, "workers", kWorkers);
    step.source = file_.RequiredString(at, "source");
    if (step.workers > cluster_.ranks()) {
      file_.FailValue(at + "/workers",
                      fmt::format("at most the cluster's {} devices", cluster_.ranks()));
    }
    Method(at, step);
    if (const json* link = file_.Find(at + "/link")) {
      const std::string wrong = WhatIsWrong(*FindConfigKey("link"), *link);
      if (!wrong.empty() || !link->is_object()) file_.FailValue(at + "/link", wrong);
      step.link = link->get<LinkShape>();
    }
    std::map<std::string, double> seconds;
    for (const char* key : {"forward_ms", "backward_ms", "sparsify_ms", "exposed_ms", "step_ms"}) {
      if (file_.Find(at + "/" + key) != nullptr) {
        seconds[key] = 1e-3 * Needed(at, key, kMilliseconds);
      }
    }
    if (file_.Find(at + "/samples_per_s") != nullptr) {
      seconds["step_ms"] = static_cast<double>(step.workers) * step.batch_per_worker /
                           Needed(at, "samples_per_s", kCosts);
    }
    if (file_.Find(at + "/row") != nullptr) {
      if (!seconds.empty() || file_.Find(at + "/bar") != nullptr)
        file_.Fail(at + "/row", "expected a row, or times, or a bar: one of the three");
      seconds["step_ms"] =
          static_cast<double>(step.workers) * step.batch_per_worker / Row(at, step);
    }
    if (file_.Find(at + "/bar") != nullptr) {
      step.bar = Bar(at);
      for (const auto& [key, metric] : {std::pair{"forward_ms", "time/iter:Forward"},
                                        {"backward_ms", "time/iter:Backward"},
                                        {"sparsify_ms", "time/iter:Sparsification"},
                                        {"exposed_ms", "time/iter:NOCT"}}) {
        const auto value = PublishedValue("published-numbers.csv", *step.bar, metric, "ms");
        if (value) seconds[key] = 1e-3 * *value;
      }
      if (seconds.empty()) {
        file_.FailValue(at + "/bar",
                        "a bar of results/published/published-numbers.csv with time/iter:Forward, "
                        "Backward, Sparsification or NOCT in ms");
      }
    }
    if (seconds.empty()) {
      file_.Fail(at,
                 "expected a measured time: forward_ms and backward_ms, sparsify_ms, "
                 "exposed_ms, step_ms, samples_per_s, a row, or a bar");
    }
    Use(at, seconds, step);
  }

  void Method(const std::string& at, ReferenceStep& step) const {
    static const Catalog catalog = BuiltInCatalog();
    const std::string name = file_.String(at, "method", "wfbp");
    const harness::Method* method = FindEntry(catalog.methods, name);
    if (method == nullptr) {
      file_.Fail(at + "/method", fmt::format("unknown method \"{}\"{}", name,
                                             Suggestion(name, Names(catalog.methods))));
    }
    step.method = name;
    if (const json* options = file_.Find(at + "/method_options")) step.method_options = *options;
    try {
      ResolveMethodOptions(catalog, *method, step.method_options);
    } catch (const Error& error) {
      file_.Fail(at + "/method_options", error.what());
    }
    step.sparsifier = file_.String(at, "sparsifier", method->dense() ? "none" : "dgc");
    if (step.sparsifier != "none") {
      NeedEntry(catalog.sparsifiers, "sparsifier", step.sparsifier);
      step.density = file_.Number(at, "density", 0.01, kDensities);
      try {
        cluster_.CheckSparsifier(step.sparsifier);
      } catch (const Error& error) {
        file_.Fail(at, error.what());
      }
    }
  }

  // Forward and backward are compute times; the other parts are to be reproduced.
  void Use(const std::string& at, const std::map<std::string, double>& seconds,
           const ReferenceStep& step) {
    const auto has = [&](const char* key) { return seconds.contains(key); };
    if (has("forward_ms") != has("backward_ms"))
      file_.Fail(at, "expected both of forward_ms and backward_ms");
    const std::string source = step.bar ? step.bar->name() : step.source;
    ComputeTime time{step.families,
                     step.workload,
                     step.batch_per_worker,
                     0,
                     0,
                     SpreadOf("measured"),
                     step.bar ? "calibrated" : "measured",
                     source};
    if (has("forward_ms")) {
      time.forward_seconds = seconds.at("forward_ms");
      time.backward_seconds = seconds.at("backward_ms");
      AddCompute(time);
    } else if (step.workers == 1 && has("step_ms")) {
      SplitStep(seconds.at("step_ms"), time);
      AddCompute(time);
    }
    const auto reproduce = [&](const char* key, StepPart part) {
      if (!has(key)) return;
      ReferenceStep wanted = step;
      wanted.part = part;
      wanted.seconds = seconds.at(key);
      cluster_.references.push_back(std::move(wanted));
    };
    reproduce("sparsify_ms", StepPart::kSparsify);
    if (step.workers == 1) return;
    reproduce("exposed_ms", StepPart::kExposed);
    reproduce("step_ms", StepPart::kStep);
  }

  // The inputs that the list at `key` names.
  std::vector<std::string> ToCalibrate(const char* key) const {
    const std::string at = std::string("/") + key;
    const json* wanted = file_.Find(at);
    if (wanted == nullptr) return {};
    if (other_ != nullptr)
      file_.Fail(at, "expected it without a reference_cluster, which has its own");
    if (file_.Find("/reference") == nullptr)
      file_.Fail(at, "expected [[reference]] tables that say with what");
    if (!wanted->is_array()) file_.FailValue(at, "a list of inputs");
    std::vector<std::string> known;
    for (const DeclaredInput& input : cluster_.inputs) known.push_back(input.name);
    for (const json& name : *wanted) {
      if (name.is_string() && std::ranges::count(known, name.get<std::string>()) > 0) continue;
      file_.Fail(at, fmt::format("{} is no input of this file: expected some of {}", Shown(name),
                                 fmt::join(known, ", ")));
    }
    return wanted->get<std::vector<std::string>>();
  }

  void Calibrate() {
    std::size_t count = 0;
    for (const std::string& name : ToCalibrate("calibrate")) {
      cluster_.Find(name)->calibrated = true;
      ++count;
    }
    for (const std::string& name : ToCalibrate("calibrate_by_family")) {
      DeclaredInput input = *cluster_.Find(name);
      if (input.calibrated) {
        file_.Fail("/calibrate_by_family",
                   fmt::format("{} is in calibrate, too: expected it in one of them", name));
      }
      std::erase_if(cluster_.inputs, [&](const DeclaredInput& each) { return each.name == name; });
      input.calibrated = true;
      for (const ReferenceStep& step : cluster_.references) {
        input.families = step.families;
        const bool there = std::ranges::any_of(cluster_.inputs, [&](const DeclaredInput& each) {
          return each.name == name && each.families == input.families;
        });
        if (there) continue;
        cluster_.inputs.push_back(input);
        ++count;
      }
    }
    if (count == 0) {
      if (other_ == nullptr) Predict();
      return;
    }
    if (count > cluster_.references.size()) {
      file_.Fail("/calibrate",
                 fmt::format("{} inputs, and [[reference]] has {} times to reproduce: expected at "
                             "most as many inputs",
                             count, cluster_.references.size()));
    }
    try {
      CalibrateOnSteps(cluster_);
    } catch (const Error& error) {
      file_.Fail("/reference", error.what());
    }
  }

  // What the model makes of references that calibrate nothing: to be compared with.
  void Predict() {
    try {
      for (ReferenceStep& step : cluster_.references)
        step.modelled_seconds = ModelledSeconds(cluster_, step);
    } catch (const Error& error) {
      file_.Fail("/reference", error.what());
    }
  }

  const TomlFile& file_;
  const ProfileFolders& profiles_;
  const DeclaredCluster* other_ = nullptr;
  std::optional<TomlFile> stack_;
  std::map<std::string, std::vector<PublishedNumber>> published_;
  DeclaredCluster cluster_;
};

}  // namespace

DeclaredCluster ParseDeclaredCluster(const TomlFile& file, const ProfileFolders& profiles) {
  return ClusterParser(file, profiles).Parse();
}

}  // namespace sparfuse::harness
