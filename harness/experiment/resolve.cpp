// Resolves one cell: fills in every default, looks up every name, refuses pairs without meaning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/feedback/feedback.hpp"
#include "core/sparsify/nonzeros/nonzeros.hpp"
#include "harness/catalog/config_keys.hpp"
#include "harness/catalog/options_json.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/catalog/tables/table_workload.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/experiment/cell_checks.hpp"
#include "harness/experiment/cells.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr Range kDimensions{0, 64};
constexpr Range kFactors{1e-3, 1e3};  // on the inputs of a declared cluster

class Resolver {
 public:
  Resolver(const CellSource& source, const std::string& at, const GivenKeys& given)
      : source_(source), at_(at), given_(given) {}

  CellConfig Resolve() {
    for (const char* key : {"mode", "workload", "method", "workers"}) Need(key);
    config_.kind = Named("kind", TrialKind::kThroughput);
    config_.mode = Named("mode", Mode::kMeasured);
    config_.workers = Given("workers", 1);
    Workload();
    Size();
    Place();
    Method();
    Link();
    Length();
    Cluster();
    Inputs();
    return config_;
  }

 private:
  bool Has(const std::string& key) const { return given_.contains(key); }
  void Need(const std::string& key) const {
    if (Has(key)) return;
    source_.file.Fail(
        at_, fmt::format("{} is missing: expected it in [defaults] or on an [[axis]]", key));
  }
  // What the file says of a key, whose type is checked already.
  template <class Value>
  Value Given(const std::string& key, Value fallback) const {
    return Has(key) ? given_.at(key).value.get<Value>() : fallback;
  }
  template <class Enum>
  Enum Named(const std::string& key, Enum fallback) const {
    return Has(key) ? ValueOf<Enum>(given_.at(key).value.get<std::string>()) : fallback;
  }
  const std::string& ModeName() const { return NameOf(config_.mode); }

  // The line of the first of `keys` that the file gives.
  [[noreturn]] void Fail(std::initializer_list<const char*> keys,
                         const std::string& message) const {
    for (const char* key : keys) {
      if (Has(key)) source_.file.Fail(given_.at(key).pointer, message);
    }
    source_.file.Fail(at_, message);
  }
  // Runs `check`, whose errors know no line.
  template <class Check>
  auto At(std::initializer_list<const char*> keys, Check check) const {
    try {
      return check();
    } catch (const Error& error) {
      const auto key = std::ranges::find_if(keys, [&](const char* each) { return Has(each); });
      Fail(keys, key == keys.end() ? error.what()
                                   : fmt::format("{} = {}: {}", *key, Shown(given_.at(*key).value),
                                                 error.what()));
    }
  }
  Options ResolveTable(const char* key, const std::string& owner,
                       std::span<const OptionSpec> specs) const {
    return At({key}, [&] {
      return ResolveOptions(owner, specs, OptionsFromJson(owner, Given(key, json::object())));
    });
  }

  void Workload() {
    config_.workload = Given<std::string>("workload", "");
    if (config_.workload.ends_with(".json") && !workloads::IsTable(config_.workload)) {
      Fail({"workload"}, fmt::format("workload = \"{0}\": expected \"table:{0}\" for a model table",
                                     config_.workload));
    }
    workload_ = workloads::IsTable(config_.workload) ? Table() : At({"workload"}, [&] {
      return &NeedEntry(source_.catalog.workloads, "workload", config_.workload);
    });
    config_.workload_options = ResolveTable("workload_options", "workload " + config_.workload,
                                            OptionsWithoutRecipe(*workload_));
    config_.recipe = ResolveTable("recipe", "recipe of " + config_.workload, RecipeOf(*workload_));
  }

  // Of a file, which the cell then names by its content.
  const workloads::WorkloadDescriptor* Table() {
    if (!config_.modelled()) {
      Fail({"workload", "mode"},
           fmt::format("workload = \"{}\" in mode {}: a table lists a model's tensors and cannot "
                       "train it; expected mode = \"modelled\", or one of `sparfuse list "
                       "workloads`",
                       config_.workload, ModeName()));
    }
    return At({"workload"}, [&] {
      config_.workload = TableWorkloadName(config_.workload, FolderOfFile());
      return &workloads::FindWorkload(config_.workload);
    });
  }

  // The method of a name, or of a file outside the tree.
  harness::Method FindMethod() {
    const auto given = Given<std::string>("method", "");
    return At({"method"}, [&] {
      const auto& known = source_.catalog.methods;
      if (!IsMethodFile(given)) return NeedEntry(known, "method", given);
      auto [method, content] = ReadMethodFile(FolderOfFile() / given);
      if (FindEntry(known, method.name) != nullptr) {
        SPARFUSE_THROW(kConfig, fmt::format("\"{}\" is the name of a method of sparfuse; expected "
                                            "another name and file",
                                            method.name));
      }
      CheckMethod(source_.catalog, method);
      config_.method_content = content;
      return method;
    });
  }

  void Method() {
    const harness::Method method = FindMethod();
    config_.method = method.name;
    json options = Given("method_options", json::object());
    if (config_.mode == Mode::kMeasured && !options.contains("collective")) {
      if (const auto* own = BackendsOwn(method.collective)) options["collective"] = own->name;
    }
    config_.method_options = At({"method_options", "method"}, [&] {
      return ResolveMethodOptions(source_.catalog, method, options);
    });
    // A dense method has one cell however many densities an axis lists.
    if (!method.dense()) Sparsity(method);
    if (method.sends_payloads()) FeedbackOf(method);
    At({"method_options", "method", "sparsifier"}, [&] { return Compose(config_), 0; });
    At({"sparsifier_options", "sparsifier"}, [&] { return CheckSparsifierOptions(config_), 0; });
    CheckCollective();
    TensorsTreatedApart(method);
    At({"dense_tensors", "no_feedback_tensors"}, [&] { return CheckTensorNames(config_), 0; });
    At({"method_options", "method"}, [&] { return CheckGivenPlan(config_), 0; });
  }

  void CheckCollective() const {
    const CollectiveDescriptor& collective =
        NeedEntry(source_.catalog.collectives, "collective", config_.method_options.collective);
    const bool lacking = (Has("transport") || !config_.modelled()) && !HasTransport(collective);
    if (collective.native && (config_.mode == Mode::kEmulated || lacking)) {
      Fail(
          {"method_options", "method"},
          fmt::format("the collective \"{}\" is the own of transport {}: it can be neither delayed "
                      "nor run over another; expected one of sparfuse's in mode {} over {}",
                      collective.name, fmt::join(collective.backends, ", "), ModeName(),
                      NameOf(config_.transport)));
    }
    if (!collective.native && !collective.host_memory && config_.mode == Mode::kMeasured &&
        config_.transport == Transport::kNccl) {
      Fail({"method_options", "method"},
           fmt::format("collective = \"{}\" with transport = \"nccl\": its messages lie in host "
                       "memory; expected \"{}\", the default",
                       collective.name, NativeOver(collective.payload)->name));
    }
    if (config_.device == Place::kCuda &&
        collective.TraitsOf(config_.method_options.collective_options).selects) {
      Fail({"device", "method"},
           fmt::format("the collective \"{}\" selects from what has accumulated in host memory; "
                       "expected device \"cpu\"",
                       collective.name));
    }
    const std::string why = collective.WhyOnlyModelled(config_.method_options.collective_options);
    if (!config_.modelled() && !why.empty()) {
      Fail({"method_options", "method"},
           fmt::format("the collective \"{}\" in mode {}: {}", collective.name, ModeName(), why));
    }
    At({"workers", "ranks_per_node", "method"}, [&] {
      return CheckTopology(Compose(config_), {config_.workers, config_.ranks_per_node}), 0;
    });
  }

  bool HasTransport(const CollectiveDescriptor& collective) const {
    return std::ranges::count(collective.backends, NameOf(config_.transport)) > 0;
  }
  // What the transport itself has for what sparfuse's general collectives do; null: nothing.
  const CollectiveDescriptor* BackendsOwn(const std::string& collective) const {
    if (collective != "ring-allreduce" && collective != "sparse-allgather") return nullptr;
    return NativeOver(NeedEntry(source_.catalog.collectives, "collective", collective).payload);
  }
  const CollectiveDescriptor* NativeOver(PayloadKind payload) const {
    const auto& all = source_.catalog.collectives;
    const auto own = std::ranges::find_if(all, [&](const CollectiveDescriptor& each) {
      return each.native && each.payload == payload && HasTransport(each);
    });
    return own == all.end() ? nullptr : &*own;
  }

  void Sparsity(const harness::Method& method) {
    config_.sparsifier = Given("sparsifier", method.sparsifier);
    if (config_.sparsifier == "none") {
      Fail({"sparsifier", "method"},
           fmt::format(
               "sparsifier = \"none\" with method {}, which sends sparse payloads: expected one "
               "of `sparfuse list sparsifiers`",
               method.name));
    }
    if (method.sparsifier_fixed && config_.sparsifier != method.sparsifier) {
      Fail({"sparsifier"}, fmt::format("sparsifier = \"{}\": method {} is defined with \"{}\" only",
                                       config_.sparsifier, method.name, method.sparsifier));
    }
    ChosenSparsifier();
    config_.density = Given("density", UsualDensity());
  }

  // What is not 0 is the workload's and the batch's to say, where these are known.
  double UsualDensity() const {
    const auto& natural = workload_->natural;
    if (!natural || config_.sparsifier != kNonzeros) return 0.01;
    return natural->Density(static_cast<double>(config_.batch_per_worker) * config_.accumulation);
  }

  void FeedbackOf(const harness::Method& method) {
    config_.feedback = Given("feedback", method.feedback);
    config_.feedback_options =
        ResolveTable("feedback_options", "feedback " + config_.feedback,
                     At({"feedback"}, [&] { return FeedbackOptions(config_.feedback); }));
    At({"feedback_options"},
       [&] { return MakeFeedback(config_.feedback, config_.feedback_options); });
  }

  void ChosenSparsifier() {
    const std::string name = config_.sparsifier;
    if (IsPythonSparsifier(name)) {
      config_.sparsifier =
          At({"sparsifier"}, [&] { return PythonSparsifierName(name, FolderOfFile()); });
      config_.sparsifier_options = At({"sparsifier_options"}, [&] {  // the constructor knows them
        return OptionsFromJson(name, Given("sparsifier_options", json::object()));
      });
      return;
    }
    const auto& sparsifier = *At({"sparsifier"}, [&] {
      return &NeedEntry(source_.catalog.sparsifiers, "sparsifier", name);
    });
    config_.sparsifier_options =
        ResolveTable("sparsifier_options", "sparsifier " + name, sparsifier.options);
  }

  std::filesystem::path FolderOfFile() const {
    return std::filesystem::path(source_.file.name()).parent_path();
  }

  void TensorsTreatedApart(const harness::Method& method) {
    auto& dense = config_.dense_tensors;
    const json given = Given("dense_tensors", json::object());
    for (const auto& [key, value] : given.items()) {
      if (key == "max_ndim" && WhatIsWrongWithInteger(value, kDimensions).empty()) {
        dense.max_ndim = value.get<std::int64_t>();
      } else if (key == "names" && value.is_array() &&
                 std::ranges::all_of(value, [](const json& name) { return name.is_string(); })) {
        dense.names = value.get<std::vector<std::string>>();
      } else {
        Fail({"dense_tensors"},
             fmt::format("dense_tensors: {} = {}: expected max_ndim (an integer from {}) or names "
                         "(a list of strings)",
                         key, Shown(value), Text(kDimensions)));
      }
    }
    config_.no_feedback_tensors = Given("no_feedback_tensors", std::vector<std::string>());
    if (NeedEntry(source_.catalog.strategies, "strategy", method.strategy).sparsified !=
            Sparsified::kBehind ||
        config_.no_feedback_tensors.empty()) {
      return;
    }
    Fail({"no_feedback_tensors", "method"},
         fmt::format("no_feedback_tensors = {} with method {}, which selects from fused buffers: "
                     "expected none",
                     ToJson(config_)["no_feedback_tensors"].dump(), method.name));
  }

  void Size() {
    const int workers = config_.workers;
    // Emulated and modelled ranks stand for a node each, but for those of a declared cluster;
    // measured ones share this machine.
    const int per_node =
        Given("ranks_per_node",
              config_.mode == Mode::kMeasured ? workers : DeclaredRanksPerNode(workers));
    if (per_node > workers || workers % per_node != 0) {
      Fail({"ranks_per_node", "workers"},
           fmt::format("ranks_per_node = {} with workers = {}: expected a divisor of workers",
                       per_node, workers));
    }
    config_.ranks_per_node = per_node;
    config_.threads_per_worker = Given("threads_per_worker", 1);
    At({"workers", "threads_per_worker"}, [&] { return CheckLiveSize(config_), 0; });
    config_.batch_per_worker =
        Given("batch_per_worker", static_cast<int>(workload_->batch_per_worker));
    config_.accumulation = Given("accumulation", 1);
    At({"batch_per_worker", "accumulation", "workers"},
       [&] { return CheckBatch(config_, *workload_), 0; });
    config_.deadline_seconds = Given("deadline_seconds", 60.0);
  }

  // Where ranks compute, how products are rounded and how ranks exchange.
  void Place() {
    config_.device = Named("device", harness::Place::kCpu);
    config_.precision = Named("precision", Precision::kFp32);
    config_.transport = Named("transport", Transport::kMpi);
    const bool cuda = config_.device == harness::Place::kCuda;
    if (cuda && workload_->sleeps) {
      Fail({"device", "workload"},
           fmt::format("device = \"cuda\" with workload \"{}\": its compute sleeps on the host; "
                       "expected device = \"cpu\"",
                       workload_->name));
    }
    if (cuda && config_.mode != Mode::kMeasured) {
      Fail({"device", "mode"},
           fmt::format("device = \"cuda\" in mode {}: {}; expected device = \"cpu\", or mode = "
                       "\"measured\"",
                       ModeName(),
                       config_.modelled() ? "the model has its times from the cluster's profile"
                                          : "a shaped link delays messages between hosts"));
    }
    if (config_.precision != Precision::kFp32 && config_.modelled()) {
      Fail({"precision", "mode"},
           fmt::format("precision = \"{}\" in mode modelled: the model has its times from the "
                       "cluster's profile; expected \"fp32\", or mode = \"measured\"",
                       NameOf(config_.precision)));
    }
    if (config_.precision == Precision::kTf32 && !cuda) {
      Fail({"precision"},
           "precision = \"tf32\" with device = \"cpu\": only tensor cores compute with TF32; "
           "expected \"fp32\" or \"bf16\", or device = \"cuda\"");
    }
    if (config_.transport == Transport::kNccl && (!cuda || config_.mode != Mode::kMeasured)) {
      Fail({"transport"},
           fmt::format("transport = \"nccl\" with device = \"{}\" in mode {}: NCCL sends from "
                       "the memory of cards, and cannot be delayed; expected it with device = "
                       "\"cuda\" and mode = \"measured\"",
                       NameOf(config_.device), ModeName()));
    }
    if (config_.transport == Transport::kThreads && cuda && config_.workers != 1) {
      Fail({"transport", "device"},
           "transport = \"threads\" with device = \"cuda\": the ranks of one process would wait "
           "for one another on the one thread that LibTorch has for a card; expected \"mpi\" or "
           "\"nccl\"");
    }
  }

  int DeclaredRanksPerNode(int workers) const {
    const auto cluster = Given<std::string>("cluster", "");
    if (!config_.modelled() || cluster.empty() || !IsDeclared(source_.profiles, cluster)) return 1;
    const int per_node = LoadDeclaredCluster(source_.profiles, cluster).ranks_per_node;
    if (workers <= per_node) return workers;
    return workers % per_node == 0 ? per_node : 1;
  }

  void Link() {
    const json given = Given("link", json("none"));
    if (given.is_object()) config_.link = given.get<LinkShape>();
    if (config_.mode == Mode::kMeasured && config_.link) {
      Fail({"link"},
           fmt::format("link = {} in mode measured: a measured link is the machine's own; "
                       "expected \"none\", or mode = \"emulated\"",
                       given.dump()));
    }
    if (config_.mode != Mode::kEmulated) return;
    if (!config_.link) {
      Fail({"link", "mode"},
           "link = \"none\" in mode emulated: expected { gbps, alpha_us }, or mode = \"measured\"");
    }
    if (config_.link->alpha_us < kMinEmulableAlphaMicroseconds) {
      Fail({"link"},
           fmt::format("link: alpha_us = {}: expected at least {}: sleeping cannot emulate "
                       "less",
                       given["alpha_us"].dump(), kMinEmulableAlphaMicroseconds));
    }
  }

  void Length() {
    if (config_.kind == TrialKind::kThroughput) {
      for (const char* key : {"evaluate_every", "target"}) {
        if (!Has(key)) continue;
        Fail({key},
             fmt::format("{} = {} in kind throughput: expected it with kind = \"convergence\" only",
                         key, Shown(given_.at(key).value)));
      }
      const int dense = config_.modelled() ? 0 : DenseWarmupSteps(config_);
      config_.warmup_steps = Given("warmup_steps", 5 + dense);
      config_.steps = Given("steps", 15);
      if (dense > 0 && config_.warmup_steps < dense + kVerifiedSteps) {
        Fail({"warmup_steps", "method_options", "method"},
             fmt::format("warmup_steps = {} with dense_warmup_steps = {}: steps that are sent "
                         "dense, or checked, would be measured; expected at least {}: those and "
                         "{} that are checked",
                         config_.warmup_steps, dense, dense + kVerifiedSteps, kVerifiedSteps));
      }
      return;
    }
    if (config_.modelled()) {
      Fail({"kind", "mode"},
           "kind = \"convergence\" in mode modelled: the model moves no gradients; "
           "expected measured or emulated");
    }
    if (!workload_->small.empty()) {
      Fail({"kind", "workload"},
           fmt::format("kind = \"convergence\" with workload = \"{0}\": its data is made up from "
                       "the seed, nothing can be learned from it; expected kind = \"throughput\", "
                       "or workload = \"{1}\", which has real data",
                       workload_->name, workload_->small));
    }
    // Twice what one dense worker needs to the target: sparse methods may take longer.
    const auto target_steps = static_cast<int>(workload_->target_steps);
    config_.warmup_steps = Given("warmup_steps", 0);
    config_.steps = Given("steps", 2 * target_steps);
    config_.evaluate_every = Given("evaluate_every", std::max(1, target_steps / 20));
    config_.target = Given("target", workload_->target);
  }

  void Cluster() {
    config_.cluster = Given<std::string>("cluster", "");
    const std::string& cluster = config_.cluster;
    if (!config_.modelled()) {
      if (cluster.empty()) return;
      Fail({"cluster"}, fmt::format("cluster = \"{}\" in mode {}: expected it with mode = "
                                    "\"modelled\" only: others run on this machine",
                                    cluster, ModeName()));
    }
    if (cluster.empty()) {
      Fail({"mode"},
           "cluster is missing: mode modelled needs one; expected \"this-machine\", "
           "\"machines-like-this\" or a file of results/profiles");
    }
    At({"cluster"}, [&] { NeedCluster(source_.profiles, cluster); });
    if (IsDeclared(source_.profiles, cluster)) return DeclaredClusterFits();
    if (workload_->table) {
      Fail({"cluster", "workload"},
           fmt::format("cluster = \"{}\" with a model table: its times would be measured by "
                       "training, which a table cannot; expected a declared cluster (a .toml file "
                       "of results/profiles)",
                       cluster));
    }
  }

  void DeclaredClusterFits() const {
    const DeclaredCluster& declared =
        *At({"cluster"}, [&] { return &LoadDeclaredCluster(source_.profiles, config_.cluster); });
    if (config_.link && config_.link->host_us > 0) {
      Fail({"link"}, fmt::format("link: host_us = {:g} on cluster {}: its file says what its host "
                                 "takes; expected gbps and alpha_us alone",
                                 config_.link->host_us, config_.cluster));
    }
    At({"cluster", "workload"}, [&] { declared.CheckWorkload(config_); });
    At({"cluster", "sparsifier"}, [&] { declared.CheckSparsifier(config_); });
    if (config_.workers > declared.ranks()) {
      Fail({"workers"},
           fmt::format("workers = {}: cluster {} has {} devices ({} nodes of {}); for more, copy "
                       "its file and declare them",
                       config_.workers, config_.cluster, declared.ranks(), declared.nodes,
                       declared.ranks_per_node));
    }
  }

  // Factors on what a declared cluster's file states.
  void Inputs() {
    if (!Has("inputs")) return;
    const json& given = given_.at("inputs").value;
    if (config_.cluster.empty() || !IsDeclared(source_.profiles, config_.cluster)) {
      Fail({"inputs"}, fmt::format("inputs = {}: expected them with a declared cluster only (a "
                                   ".toml file of results/profiles)",
                                   Shown(given)));
    }
    for (const auto& [group, factor] : given.items()) {
      if (std::ranges::find(InputGroups(), group) == InputGroups().end()) {
        Fail({"inputs"}, fmt::format("inputs: unknown input \"{}\"{}", group,
                                     Suggestion(group, InputGroups())));
      }
      if (const std::string wrong = WhatIsWrongWithNumber(factor, kFactors); !wrong.empty())
        Fail({"inputs"}, fmt::format("inputs: {} = {}: expected {}", group, Shown(factor), wrong));
      if (factor.get<double>() != 1) config_.inputs[group] = factor.get<double>();
    }
  }

  const CellSource& source_;
  const std::string& at_;
  const GivenKeys& given_;
  const workloads::WorkloadDescriptor* workload_ = nullptr;
  CellConfig config_;
};

}  // namespace

CellConfig ResolveCell(const CellSource& source, const std::string& at, const GivenKeys& given) {
  return Resolver(source, at, given).Resolve();
}

}  // namespace sparfuse::harness
