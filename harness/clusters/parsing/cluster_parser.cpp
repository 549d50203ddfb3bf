// Reads the file of a declared cluster, and calibrates the cluster.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/parsing/cluster_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr Range kNodeCounts{1, 65'536};
constexpr Range kRanksPerNode{1, 1024};
constexpr Range kCodingTimes{0, 1e9};
// The times of a [[coder]] by their keys. `stated`: the direction that a file states with one.
struct CoderTime {
  const char* key;
  double unit;
  double Coder::*seconds;
  bool Coder::*stated;
};
constexpr CoderTime kCoderTimes[] = {
    {"encode_us", 1e-6, &Coder::encode_seconds, &Coder::encodes},
    {"encode_ns_an_element", 1e-9, &Coder::encode_seconds_per_element, &Coder::encodes},
    {"host_encode_us", 1e-6, &Coder::host_encode_seconds, &Coder::encodes_on_host},
    {"host_encode_ns_an_element", 1e-9, &Coder::host_encode_seconds_per_element,
     &Coder::encodes_on_host},
    {"decode_us", 1e-6, &Coder::decode_seconds, &Coder::decodes},
    {"decode_us_a_rank", 1e-6, &Coder::decode_seconds_per_rank, &Coder::decodes},
    {"decode_ns_an_element", 1e-9, &Coder::decode_seconds_per_element, &Coder::decodes},
    {"decode_ns_an_element_and_rank", 1e-9, &Coder::decode_seconds_per_element_and_rank,
     &Coder::decodes},
    {"decode_ns_an_entry", 1e-9, &Coder::decode_seconds_per_entry, &Coder::decodes}};
constexpr Range kBytes{1, 1e15};

std::string AtInput(const std::string& name) { return "/input/" + name; }

DeclaredInput ReadInput(const ClusterFile& file, const InputSpec& spec) {
  const std::string at = AtInput(spec.name);
  file.Keys(at, spec.name, {"value", "low", "high", "kind", "source"});
  DeclaredInput input;
  input.name = spec.name;
  input.group = spec.group;
  input.value = file.Needed(at, "value", spec.values);
  input.kind = file.Kind(at);
  input.source = file->RequiredString(at, "source");
  const double spread = SpreadOf(input.kind);
  input.low = file->Number(at, "low", std::max(spec.values.least, input.value / spread),
                           {spec.values.least, input.value});
  input.high = file->Number(at, "high", std::min(spec.values.most, input.value * spread),
                            {input.value, spec.values.most});
  return input;
}

// The content of a stack's file.
struct Stack {
  TomlFile toml;
  std::map<std::string, DeclaredInput> inputs;  // by name
};

Stack ReadStack(const fs::path& path) {
  Stack stack{TomlFile::Read(path), {}};
  const ClusterFile file(stack.toml);
  file.Keys("", "stack",
            {"title", "source", "all_reduce", "all_gather", "host", "selections", "staging",
             "buffers", "input"});
  file->RequiredString("", "title");
  file->RequiredString("", "source");
  std::vector<std::string> known;
  for (const InputSpec& spec : InputSpecs()) {
    if (spec.of_stack) known.emplace_back(spec.name);
  }
  file.Keys("/input", "[input] of a stack", known);
  for (const InputSpec& spec : InputSpecs()) {
    if (file.Has(AtInput(spec.name))) stack.inputs[spec.name] = ReadInput(file, spec);
  }
  return stack;
}

class ClusterParser {
 public:
  ClusterParser(const TomlFile& file, const ProfileFolders& profiles,
                const std::vector<std::string>& left_out)
      : file_(file), profiles_(profiles), left_out_{"", left_out} {}

  DeclaredCluster Parse() {
    file_.Keys("", "cluster", {"title",          "source",
                               "hardware",       "nodes",
                               "ranks_per_node", "card_gbytes",
                               "reference",      "reference_cluster",
                               "input",          "selection_costs",
                               "compute",        "coder",
                               "curve",          "all_reduce",
                               "all_gather",     "nccl",
                               "calibrate",      "calibrate_by_family",
                               "stack",          "card",
                               "host",           "selections",
                               "staging",        "buffers"});
    cluster_.name = fs::path(file_->name()).stem().string() + left_out_.Rest();
    cluster_.title = file_->RequiredString("", "title");
    cluster_.source = file_->RequiredString("", "source");
    cluster_.hardware = file_->RequiredString("", "hardware");
    cluster_.nodes = file_.Count("", "nodes", kNodeCounts);
    cluster_.ranks_per_node = file_.Count("", "ranks_per_node", kRanksPerNode);
    if (file_->Find("/card_gbytes") != nullptr)
      cluster_.card_gbytes = file_.Needed("", "card_gbytes", {0.1, 1e5});
    FindCard();
    FindStack();
    TakeOver();
    Inputs();
    SelectionCosts();
    std::vector<std::string> computes;
    file_.ForEach("compute", [&](const std::string& at) {
      ReadCompute(file_, at, cluster_);
      computes.push_back(at);
    });
    CheckComputeAlike(file_, cluster_, computes);
    file_.ForEach("coder", [&](const std::string& at) { ReadCoder(at); });
    AllReduce();
    cluster_.all_gather = OfStack<AllGatherBy>("all_gather", kAllGatherNames);
    cluster_.host = OfStack<HostBy>("host", kHostNames);
    cluster_.selections = OfStack<SelectionsBy>("selections", kSelectionsNames);
    cluster_.staging = OfStack<StagingOf>("staging", kStagingNames);
    cluster_.buffers = OfStack<BuffersBy>("buffers", kBuffersNames);
    file_.ForEach("curve", [&](const std::string& at) { Curve(at); });
    ReadReferences(file_, profiles_, cluster_);
    if (other_ == nullptr) LeaveOut();
    Calibrate();
    return std::move(cluster_);
  }

 private:
  void FindCard() {
    if (!file_.Has("/card")) return;
    const std::string name = file_->RequiredString("", "card");
    cluster_.card = file_.At("/card", [&] { return ReadCard(profiles_, name); });
  }

  // Throws if the chain of clusters that refer to one another, from `name` on, returns to one of
  // them.
  void CheckNoCircle(std::string name) const {
    std::vector<std::string> chain = {cluster_.name};
    while (true) {
      const bool is_circle = std::ranges::count(chain, name) > 0;
      chain.push_back(name);
      if (is_circle) {
        file_->FailValue(
            "/reference_cluster",
            fmt::format("a cluster without a way back to this one: {}", fmt::join(chain, " -> ")));
      }
      if (!IsDeclared(profiles_, name)) return;  // the error is in that cluster's own file
      name = TomlFile::Read(profiles_.File(name + ".toml")).String("", "reference_cluster", "");
      if (name.empty()) return;
    }
  }

  // Takes another cluster's compute times, coders and calibration. Later, this file's own values
  // replace them.
  void TakeOver() {
    if (!file_.Has("/reference_cluster")) return;
    const std::string name = file_->RequiredString("", "reference_cluster");
    if (!IsDeclared(profiles_, name)) {
      file_->FailValue("/reference_cluster", "a declared cluster in " + profiles_.Text());
    }
    CheckNoCircle(name);
    cluster_.calibrated_on = name + left_out_.Rest();
    const DeclaredCluster& other = LoadDeclaredCluster(profiles_, cluster_.calibrated_on);
    other_ = &other;
    cluster_.compute = other.compute;
    const double ratio = !file_.Has("/input/compute_ratio")
                             ? 1
                             : file_.Needed("/input/compute_ratio", "value", {1e-9, 1e9});
    for (ComputeTime& time : cluster_.compute) {
      time.forward_seconds *= ratio;
      time.backward_seconds *= ratio;
      time.source += ", on " + name;
    }
    cluster_.coders = other.coders;
    cluster_.selection_costs = other.selection_costs;
    cluster_.references = other.references;  // experiments that use the cluster must name them
  }

  // Reads the known times of the cluster's software stack. This file's own numbers, and inputs
  // calibrated on the reference_cluster, take precedence.
  void FindStack() {
    if (!file_.Has("/stack")) return;
    cluster_.stack = file_->RequiredString("", "stack");
    const auto known = profiles_.Names(".toml", kStacksFolder);
    if (std::ranges::find(known, cluster_.stack) == known.end()) {
      file_->Fail(
          "/stack",
          fmt::format("unknown stack \"{}\"{}: expected one of {} (sparfuse cluster list)",
                      cluster_.stack, Suggestion(cluster_.stack, known), fmt::join(known, ", ")));
    }
    stack_ = ReadStack(profiles_.File(fmt::format("{}/{}.toml", kStacksFolder, cluster_.stack)));
  }

  void TakeOfStack(const InputSpec& spec) {
    if (!stack_ || !stack_->inputs.contains(spec.name)) return;
    DeclaredInput input = stack_->inputs.at(spec.name);
    input.source = fmt::format("stack {}: {}", cluster_.stack, input.source);
    cluster_.inputs.push_back(std::move(input));
  }

  // Takes an input that this cluster lacks from the calibration of another cluster.
  void TakeCalibrated(const InputSpec& spec) {
    if (other_ == nullptr) return;
    for (DeclaredInput input : other_->inputs) {
      if (input.name != spec.name) continue;
      if (input.kind != "calibrated" && input.group != "sparsify") continue;
      // Published selections stream through memory many times, so they scale with its bandwidth.
      if (input.name == "selection_ns_an_element") {
        const double ratio = other_->Value("memory_gbytes_per_s") /
                             file_.Needed("/input/memory_gbytes_per_s", "value", {1e-9, 1e9});
        for (double* each : {&input.value, &input.low, &input.high}) *each *= ratio;
      }
      input.calibrated = false;
      cluster_.inputs.push_back(std::move(input));
    }
  }

  void Inputs() {
    std::vector<std::string> known;
    for (const InputSpec& spec : InputSpecs()) known.emplace_back(spec.name);
    file_.Keys("/input", "[input]", known);
    for (const InputSpec& spec : InputSpecs()) {
      if (file_.Has(AtInput(spec.name))) {
        cluster_.inputs.push_back(ReadInput(file_, spec));
        continue;
      }
      TakeCalibrated(spec);
      if (cluster_.Find(spec.name) == nullptr) TakeOfStack(spec);
      if (cluster_.Find(spec.name) == nullptr && !spec.otherwise) {
        file_->Fail(
            "/input",
            fmt::format("input {} is missing ({}): expected {} = {{ value, kind, source }}{}",
                        spec.name, spec.meaning, spec.name,
                        spec.of_stack && !stack_ ? ", or a stack that states it" : ""));
      }
    }
    if (cluster_.Find("compute_ratio") != nullptr && other_ == nullptr) {
      file_->Fail("/input/compute_ratio", "expected it with a reference_cluster only");
    }
  }

  void SelectionCosts() {
    const json* costs = file_->Find("/selection_costs");
    if (costs == nullptr) return;
    file_.Keys("/selection_costs", "[selection_costs]", Names(Sparsifiers()));
    cluster_.selection_costs.clear();
    for (const auto& [name, cost] : costs->items())
      cluster_.selection_costs[name] = file_->Number("/selection_costs", name, 0, kCosts);
    if (cluster_.Value("selection_ns_an_element") <= 0) {
      file_->Fail("/selection_costs",
                  "expected an input selection_ns_an_element above 0: costs are its multiples");
    }
  }

  // A later table replaces the directions that it states.
  void Replace(const Coder& by) {
    for (Coder& each : cluster_.coders) {
      if (each.name != by.name) continue;
      for (const CoderTime& time : kCoderTimes) {
        if (by.*time.stated) each.*time.stated = false;
      }
    }
    std::erase_if(cluster_.coders, [](const Coder& each) {
      return !each.encodes && !each.encodes_on_host && !each.decodes;
    });
    cluster_.coders.push_back(by);
  }

  // The times of a list at `key` by the numbers of `elements`; empty if a number is there, or
  // nothing.
  ProfileCurve CodingCurve(const std::string& at, const char* key, const char* each) const {
    const json* times = file_->Find(fmt::format("{}/{}", at, key));
    if (times == nullptr || !times->is_array()) return {};
    const std::vector<double> us = file_.Numbers(at, key, {1e-9, kCodingTimes.most});
    if (!file_.Has(at + "/elements")) {
      file_->Fail(at + "/" + key,
                  "elements is missing: expected the sizes of these times, or one number");
    }
    const std::vector<double> elements = file_.Numbers(at, "elements", {1, 1e12});
    if (elements.size() != us.size() || us.size() < 2) {
      file_->Fail(at,
                  fmt::format("elements has {} numbers and {} {}: expected as many in both, two "
                              "at least",
                              elements.size(), key, us.size()));
    }
    if (file_.Has(fmt::format("{}/{}", at, each))) {
      file_->Fail(fmt::format("{}/{}", at, each),
                  fmt::format("expected none, since {} has the times of several sizes", key));
    }
    ProfileCurve curve;
    for (std::size_t i = 0; i < us.size(); ++i) {
      if (i > 0 && elements[i] <= elements[i - 1]) {
        file_->Fail(at + "/elements",
                    fmt::format("elements: {:g} after {:g}: expected them to grow from one to the "
                                "next",
                                elements[i], elements[i - 1]));
      }
      curve.push_back({elements[i], 1e-6 * us[i]});
    }
    return curve;
  }

  void ReadCoder(const std::string& at) {
    std::vector<std::string> keys = {"names", "elements", "spread", "kind", "source"};
    for (const CoderTime& time : kCoderTimes) keys.emplace_back(time.key);
    file_.Keys(at, "[[coder]]", keys);
    const json* names = file_->Find(at + "/names");
    if (names == nullptr || !names->is_array())
      file_->Fail(at, "names is missing: expected a list of sparsifiers or quantizers");
    std::vector<std::string> known = Names(Sparsifiers());
    for (std::string& name : Names(Quantizers())) known.push_back(std::move(name));
    Coder coder;
    for (const auto& [key, unit, seconds, stated] : kCoderTimes) {
      const json* value = file_->Find(fmt::format("{}/{}", at, key));
      if (value == nullptr) continue;
      coder.*stated = true;
      if (!value->is_array()) coder.*seconds = unit * file_->Number(at, key, 0, kCodingTimes);
    }
    coder.encode_curve = CodingCurve(at, "encode_us", "encode_ns_an_element");
    coder.host_encode_curve = CodingCurve(at, "host_encode_us", "host_encode_ns_an_element");
    if (coder.encode_curve.empty() && coder.host_encode_curve.empty() &&
        file_.Has(at + "/elements")) {
      file_->Fail(at + "/elements",
                  "expected it with a list of times, encode_us or host_encode_us");
    }
    if (!coder.encodes && !coder.encodes_on_host && !coder.decodes)
      file_->Fail(at, "expected one of encode_*, host_encode_* and decode_* at least");
    coder.kind = file_.Kind(at);
    coder.source = file_->RequiredString(at, "source");
    coder.spread = file_.Spread(at, coder.kind);
    for (const json& name : *names) {
      if (!name.is_string() || std::ranges::find(known, name.get<std::string>()) == known.end()) {
        file_->Fail(
            at + "/names",
            fmt::format("unknown sparsifier or quantizer {}{}", Shown(name),
                        name.is_string() ? Suggestion(name.get<std::string>(), known) : ""));
      }
      coder.name = name;
      Replace(coder);
    }
  }

  // The choice at `key` in this file, else in its stack, else the first of the names. Keeps a
  // choice that differs from the stack's.
  template <class Choice>
  Choice OfStack(const char* key, std::span<const char* const> names) {
    const bool own = file_.Has(std::string("/") + key) || !stack_;
    const ClusterFile of = own ? file_ : ClusterFile(stack_->toml);
    const std::size_t chosen = of.OneOf("", key, names, names[0]);
    if (own && stack_) {
      const std::size_t theirs = ClusterFile(stack_->toml).OneOf("", key, names, names[0]);
      if (theirs != chosen) {
        cluster_.against_stack.push_back(fmt::format("{} = \"{}\", and stack {} has \"{}\"", key,
                                                     names[chosen], cluster_.stack, names[theirs]));
      }
    }
    return static_cast<Choice>(chosen);
  }

  // [nccl] describes the machine, so it may be present for stacks that do not use it.
  void AllReduce() {
    const bool own = file_.Has("/all_reduce") || !stack_;
    cluster_.all_reduce = OfStack<AllReduceBy>("all_reduce", kAllReduceNames);
    const bool nccl = cluster_.all_reduce >= AllReduceBy::kNccl2_8;
    if (!file_.Has("/nccl")) {
      if (!nccl) return;
      file_->Fail("", fmt::format("the table [nccl] is missing: expected within, cards, processor "
                                  "and channels{}",
                                  own ? "" : ", which stack \"" + cluster_.stack + "\" needs"));
    }
    if (!nccl && !stack_) {
      file_->Fail("/nccl",
                  "expected it with all_reduce = \"nccl-2.8\" or \"nccl-2.20\", or with "
                  "a stack");
    }
    file_.Keys("/nccl", "[nccl]",
               {"within", "cards", "processor", "channels", "ll128", "simple_tree"});
    static constexpr const char* kWithin[] = {"nvlink", "pcie"};
    static constexpr const char* kGenerations[] = {"volta", "ampere", "hopper"};
    static constexpr const char* kProcessors[] = {"intel", "amd"};
    NcclMachine& machine = cluster_.nccl;
    machine.within = static_cast<NcclHop>(file_.OneOf("/nccl", "within", kWithin, "nvlink"));
    machine.cards = static_cast<NcclCards>(file_.OneOf("/nccl", "cards", kGenerations, "volta"));
    machine.processor =
        static_cast<NcclProcessor>(file_.OneOf("/nccl", "processor", kProcessors, "intel"));
    machine.channels = file_.Count("/nccl", "channels", {1, 64});
    machine.ll128 = file_->Boolean("/nccl", "ll128", false);
    machine.simple_tree = file_->Boolean("/nccl", "simple_tree", cluster_.ranks_per_node == 1);
  }

  void Curve(const std::string& at) {
    file_.Keys(at, "[[curve]]", {"operation", "ranks", "bytes", "us", "kind", "source"});
    if (file_->RequiredString(at, "operation") != "all-reduce")
      file_->FailValue(at + "/operation", "\"all-reduce\"");
    OperationCurve curve;
    curve.ranks = file_.Count(at, "ranks", {2, 65'536});
    const std::vector<double> bytes = file_.Numbers(at, "bytes", kBytes);
    const std::vector<double> us = file_.Numbers(at, "us", kMilliseconds);
    if (bytes.size() != us.size()) {
      file_->Fail(at, fmt::format("bytes has {} numbers and us {}: expected equal numbers",
                                  bytes.size(), us.size()));
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i > 0 && bytes[i] <= bytes[i - 1])
        file_->Fail(at + "/bytes", "expected them to grow from one to the next");
      curve.seconds.emplace_back(bytes[i], 1e-6 * us[i]);
    }
    CheckCurve(at, curve);
    for (std::size_t i = 0; i < cluster_.curves.size(); ++i) {
      if (cluster_.curves[i].ranks != curve.ranks) continue;
      file_->Fail(at, fmt::format("a second all-reduce of {} ranks, which {} has: expected one "
                                  "curve of each number of ranks",
                                  curve.ranks, file_->Where(fmt::format("/curve/{}", i))));
    }
    curve.kind = file_.Kind(at);
    curve.source = file_->RequiredString(at, "source");
    cluster_.curves.push_back(std::move(curve));
  }

  // A network card moves each byte once, even if switches sum. More bytes take longer, unless
  // something disturbed a measurement.
  void CheckCurve(const std::string& at, const OperationCurve& curve) const {
    constexpr double kMostOver = 1.05, kMostFall = 2;
    const bool across = curve.ranks > cluster_.ranks_per_node;
    const char* key = across ? "inter_node_gbps" : "intra_node_gbps";
    const double gbps = cluster_.Value(key) * (across ? cluster_.Value("network_cards") : 1);
    double longest = 0;
    for (const auto& [bytes, seconds] : curve.seconds) {
      const double rate = 8e-9 * bytes / seconds;
      if (gbps > 0 && rate > kMostOver * gbps) {
        file_->Fail(at + "/us",
                    fmt::format("{:g} bytes in {:g} us are {:g} Gbit/s, and {} lets {:g} through: "
                                "expected times that the links can have",
                                bytes, 1e6 * seconds, rate, key, gbps));
      }
      if (seconds * kMostFall < longest) {
        file_->Fail(at + "/us",
                    fmt::format("{:g} bytes in {:g} us, and fewer took {:g} us: expected rising "
                                "times; leave out sizes that were disturbed",
                                bytes, 1e6 * seconds, 1e6 * longest));
      }
      longest = std::max(longest, seconds);
    }
  }

  // The inputs in the list at `key`.
  std::vector<std::string> ToCalibrate(const char* key) const {
    const std::string at = std::string("/") + key;
    const json* wanted = file_->Find(at);
    if (wanted == nullptr) return {};
    if (other_ != nullptr)
      file_->Fail(at, "expected it without a reference_cluster, which has its own");
    if (!file_.Has("/reference"))
      file_->Fail(at, "expected [[reference]] tables to calibrate with");
    if (!wanted->is_array()) file_->FailValue(at, "a list of inputs");
    std::vector<std::string> known;
    for (const DeclaredInput& input : cluster_.inputs) known.push_back(input.name);
    for (const json& name : *wanted) {
      if (std::ranges::count(*wanted, name) > 1)
        file_->Fail(at, fmt::format("{} comes twice: expected each input once", Shown(name)));
      if (name.is_string() && std::ranges::count(known, name.get<std::string>()) > 0) continue;
      file_->Fail(
          at,
          fmt::format("{} is not an input of this file: expected an input with a line in [input], "
                      "where the search begins: some of {}",
                      Shown(name), fmt::join(known, ", ")));
    }
    return wanted->get<std::vector<std::string>>();
  }

  // Leaves out references of workloads that are not to calibrate. Their compute times stay.
  void LeaveOut() {
    std::vector<std::string> known;
    for (const ReferenceStep& step : cluster_.references) {
      if (std::ranges::find(known, step.workload) == known.end()) known.push_back(step.workload);
    }
    for (const std::string& workload : left_out_.left_out) {
      if (std::ranges::find(known, workload) == known.end()) {
        file_->Fail("/reference",
                    fmt::format("\"{}\": no reference has workload {}{}: expected some of {}",
                                cluster_.name, workload, Suggestion(workload, known),
                                fmt::join(known, ", ")));
      }
      std::erase_if(cluster_.references, [&](const ReferenceStep& step) {
        if (step.workload != workload) return false;
        families_left_out_.insert(step.families.begin(), step.families.end());
        return true;
      });
    }
    if (!left_out_.left_out.empty() && cluster_.references.empty()) {
      file_->Fail("/reference", fmt::format("\"{}\" leaves none to calibrate with: expected "
                                            "some of {} to be left",
                                            cluster_.name, fmt::join(known, ", ")));
    }
    for (const ReferenceStep& step : cluster_.references) {
      for (const std::string& family : step.families) families_left_out_.erase(family);
    }
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
        file_->Fail("/calibrate_by_family",
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
      for (const std::string& family : families_left_out_)
        cluster_.Find(name, cluster_.references.front().families.front())
            ->families.push_back(family);
    }
    if (count == 0) {
      if (other_ == nullptr) Predict();
      return;
    }
    if (count > cluster_.references.size() && left_out_.left_out.empty()) {
      file_->Fail("/calibrate",
                  fmt::format("{} inputs, and [[reference]] has {} times to reproduce: expected at "
                              "most as many inputs",
                              count, cluster_.references.size()));
    }
    file_.At("/reference", [&] { CalibrateOnSteps(cluster_); });
  }

  // Models references that calibrate nothing, to compare them with their measurements.
  void Predict() {
    file_.At("/reference", [&] {
      for (ReferenceStep& step : cluster_.references) step.modelled = Modelled(cluster_, step);
    });
  }

  const ClusterFile file_;
  const ProfileFolders& profiles_;
  const ClusterName left_out_;
  std::set<std::string> families_left_out_;  // families without any reference left
  const DeclaredCluster* other_ = nullptr;
  std::optional<Stack> stack_;
  DeclaredCluster cluster_;
};

}  // namespace

DeclaredCluster ParseDeclaredCluster(const TomlFile& file, const ProfileFolders& profiles,
                                     const std::vector<std::string>& left_out) {
  return ClusterParser(file, profiles, left_out).Parse();
}

}  // namespace sparfuse::harness
