// One cell: every default filled in, every name looked up, pairs without meaning refused.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/feedback/feedback.hpp"
#include "harness/catalog/config_keys.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/experiment/cells.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

class Resolver {
 public:
  Resolver(const CellSource& source, const std::string& at, const GivenKeys& given)
      : source_(source), at_(at), given_(given) {}

  json Resolve() {
    Take("kind", "throughput");
    Need("mode");
    Need("workload");
    Need("method");
    Need("workers");
    Workload();
    Method();
    Size();
    Place();
    Link();
    Length();
    Cluster();
    Inputs();
    return config_;
  }

 private:
  bool Has(const std::string& key) const { return given_.contains(key); }
  static bool IsOneOf(const std::string& name, const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  bool Is(const char* key, const char* value) const { return config_.at(key) == value; }
  std::string Given(const std::string& key, const char* fallback) const {
    return Has(key) ? given_.at(key).value.get<std::string>() : fallback;
  }

  void Take(const std::string& key, json fallback) {
    config_[key] = Has(key) ? given_.at(key).value : std::move(fallback);
  }
  void Need(const std::string& key) {
    if (!Has(key)) {
      source_.file.Fail(
          at_, fmt::format("{} is missing: expected it in [defaults] or on an [[axis]]", key));
    }
    config_[key] = given_.at(key).value;
  }
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
      std::string key = *keys.begin();
      for (const char* candidate : keys) {
        if (Has(candidate)) {
          key = candidate;
          break;
        }
      }
      Fail(keys, Has(key)
                     ? fmt::format("{} = {}: {}", key, Shown(given_.at(key).value), error.what())
                     : error.what());
    }
  }
  json ResolveTable(const char* key, const std::string& owner,
                    const std::vector<OptionSpec>& specs) const {
    return At({key}, [&] {
      const json given = Has(key) ? given_.at(key).value : json::object();
      return OptionsToJson(ResolveOptions(owner, specs, OptionsFromJson(owner, given)));
    });
  }

  void Workload() {
    workload_ = At({"workload"}, [&] {
      return &NeedEntry(source_.catalog.workloads, "workload",
                        config_["workload"].get<std::string>());
    });
    config_["workload_options"] =
        ResolveTable("workload_options", "workload " + workload_->name, workload_->options);
    config_["recipe"] = ResolveTable("recipe", "recipe of " + workload_->name, workload_->recipe);
  }

  void Method() {
    const auto& catalog = source_.catalog;
    auto method = *At({"method"}, [&] {
      return &NeedEntry(catalog.methods, "method", config_["method"].get<std::string>());
    });
    if (method.dense()) {  // so that an axis may list dense and sparse methods together
      config_["sparsifier"] = "none";
      config_["sparsifier_options"] = json::object();
      config_["density"] = 1;
      config_["feedback"] = "none";
      if (method.sends_payloads()) FeedbackOf(method);
    } else {
      Sparsity(method);
    }
    json options = Has("method_options") ? given_.at("method_options").value : json::object();
    if (Is("mode", "measured") && !options.contains("collective")) {
      if (const auto* own = BackendsOwn(method.collective)) options["collective"] = own->name;
    }
    config_["method_options"] = At({"method_options", "method"},
                                   [&] { return ResolveMethodOptions(catalog, method, options); });
    const auto& collective = NeedEntry(catalog.collectives, "collective",
                                       config_["method_options"]["collective"].get<std::string>());
    const bool has_transport = Has("transport") || !Is("mode", "modelled");
    const auto& own_to = collective.transports;
    const bool lacking = has_transport && !IsOneOf(Transport(), own_to);
    if (collective.native && (Is("mode", "emulated") || lacking)) {
      Fail(
          {"method_options", "method"},
          fmt::format("the collective \"{}\" is the own of transport {}: it can be neither delayed "
                      "nor run over another; expected one of sparfuse's in mode {} over {}",
                      collective.name, fmt::join(own_to, ", "), config_["mode"].get<std::string>(),
                      Transport()));
    }
    if (!collective.native && Is("mode", "measured") && Transport() == "nccl") {
      Fail({"method_options", "method"},
           fmt::format("collective = \"{}\" with transport = \"nccl\": {}; expected \"{}\", the "
                       "default",
                       collective.name,
                       collective.sparse ? "its messages need answers of the host, which memory "
                                           "that a step allocates on a card may hold up"
                                         : "it adds in host memory, and its messages lie on cards",
                       NativeOver(collective.sparse)->name));
    }
    Take("dense_tensors", json::object());
    DenseTensors();
    if (Has("no_feedback_tensors") && !given_.at("no_feedback_tensors").value.empty()) {
      config_["no_feedback_tensors"] = given_.at("no_feedback_tensors").value;
    }
    if (!NeedEntry(catalog.strategies, "strategy", method.strategy).from_fused) return;
    const auto& dense = config_["dense_tensors"];
    for (const char* key : {"dense_tensors", "no_feedback_tensors"}) {
      const bool some = key == std::string("dense_tensors")
                            ? dense["max_ndim"] > 0 || !dense["names"].empty()
                            : config_.contains(key);
      if (!some) continue;
      Fail({key, "method"},
           fmt::format("{} = {} with method {}, which selects from fused buffers: expected none",
                       key, config_[key].dump(), method.name));
    }
  }

  std::string Transport() const { return Given("transport", "mpi"); }

  // What the transport itself has for what sparfuse's general collectives do; null: nothing.
  const CatalogCollective* BackendsOwn(const std::string& collective) const {
    if (collective != "ring-allreduce" && collective != "sparse-allgather") return nullptr;
    return NativeOver(NeedEntry(source_.catalog.collectives, "collective", collective).sparse);
  }
  const CatalogCollective* NativeOver(bool sparse) const {
    const auto& all = source_.catalog.collectives;
    const auto own = std::find_if(all.begin(), all.end(), [&](const CatalogCollective& each) {
      return each.native && each.sparse == sparse && IsOneOf(Transport(), each.transports);
    });
    return own == all.end() ? nullptr : &*own;
  }

  void Sparsity(const harness::Method& method) {
    Take("sparsifier", method.sparsifier);
    if (Is("sparsifier", "none")) {
      Fail({"sparsifier", "method"},
           fmt::format(
               "sparsifier = \"none\" with method {}, which sends sparse payloads: expected one "
               "of `sparfuse list sparsifiers`",
               method.name));
    }
    if (method.sparsifier_fixed && config_["sparsifier"] != method.sparsifier) {
      Fail({"sparsifier"},
           fmt::format("sparsifier = {}: method {} is defined with \"{}\" only",
                       Shown(config_["sparsifier"]), method.name, method.sparsifier));
    }
    ChosenSparsifier();
    Take("density", 0.01);
    FeedbackOf(method);
  }

  // Options appear only where they are not their defaults, as cells were before there were any.
  void FeedbackOf(const harness::Method& method) {
    Take("feedback", method.feedback);
    const std::string kind = config_["feedback"];
    const auto specs = FeedbackOptions(kind);
    const std::vector<OptionSpec> options(specs.begin(), specs.end());
    json table = ResolveTable("feedback_options", "feedback " + kind, options);
    if (table != OptionsToJson(ResolveOptions(kind, options, {}))) {
      config_["feedback_options"] = std::move(table);
    }
  }

  void ChosenSparsifier() {
    const std::string name = config_["sparsifier"];
    if (IsPythonSparsifier(name)) {
      config_["sparsifier"] = At({"sparsifier"}, [&] {
        return PythonSparsifierName(name, std::filesystem::path(source_.file.name()).parent_path());
      });
      Take("sparsifier_options", json::object());  // the class's constructor knows them
      At({"sparsifier_options"}, [&] { OptionsFromJson(name, config_["sparsifier_options"]); });
      return;
    }
    const auto& sparsifier = *At({"sparsifier"}, [&] {
      return &NeedEntry(source_.catalog.sparsifiers, "sparsifier", name);
    });
    config_["sparsifier_options"] =
        ResolveTable("sparsifier_options", "sparsifier " + sparsifier.name, sparsifier.options);
  }

  void DenseTensors() {
    auto& table = config_["dense_tensors"];
    for (const auto& [key, value] : table.items()) {
      const bool good = (key == "max_ndim" && value.is_number_integer() && value >= 0) ||
                        (key == "names" && value.is_array() &&
                         std::all_of(value.begin(), value.end(),
                                     [](const json& name) { return name.is_string(); }));
      if (!good) {
        Fail({"dense_tensors"},
             fmt::format("dense_tensors: {} = {}: expected max_ndim (an integer of "
                         "at least 0) or names (a list of strings)",
                         key, Shown(value)));
      }
    }
    if (!table.contains("max_ndim")) table["max_ndim"] = 0;
    if (!table.contains("names")) table["names"] = json::array();
  }

  void Size() {
    const int workers = config_["workers"];
    // Emulated and modelled ranks stand for a node each, but for those of a declared cluster;
    // measured ones share this machine.
    Take("ranks_per_node", Is("mode", "measured") ? workers : DeclaredRanksPerNode(workers));
    const int per_node = config_["ranks_per_node"];
    if (per_node > workers || workers % per_node != 0) {
      Fail({"ranks_per_node", "workers"},
           fmt::format("ranks_per_node = {} with workers = {}: expected a divisor of workers",
                       per_node, workers));
    }
    Take("threads_per_worker", 1);
    Take("batch_per_worker", workload_->batch_per_worker);
    Take("accumulation", 1);
    Take("transport", "mpi");
    Take("deadline_seconds", 60);
  }

  // Where ranks compute and how products are rounded.
  void Place() {
    const std::string device = Given("device", "cpu");
    const std::string precision = Given("precision", "fp32");
    const std::string mode = config_["mode"];
    const bool cuda = device == "cuda";
    if (cuda && mode != "measured") {
      Fail({"device", "mode"},
           fmt::format("device = \"cuda\" in mode {}: {}; expected device = \"cpu\", or mode = "
                       "\"measured\"",
                       mode,
                       mode == "modelled" ? "the model has its times from the cluster's profile"
                                          : "a shaped link delays messages between hosts"));
    }
    if (precision != "fp32" && mode == "modelled") {
      Fail({"precision", "mode"},
           fmt::format("precision = \"{}\" in mode modelled: the model has its times from the "
                       "cluster's profile; expected \"fp32\", or mode = \"measured\"",
                       precision));
    }
    if (precision == "tf32" && !cuda) {
      Fail({"precision"},
           "precision = \"tf32\" with device = \"cpu\": only tensor cores compute with TF32; "
           "expected \"fp32\" or \"bf16\", or device = \"cuda\"");
    }
    if (Is("transport", "nccl") && (!cuda || mode != "measured")) {
      Fail({"transport"},
           fmt::format("transport = \"nccl\" with device = \"{}\" in mode {}: NCCL sends from "
                       "the memory of cards, and cannot be delayed; expected it with device = "
                       "\"cuda\" and mode = \"measured\"",
                       device, mode));
    }
    if (Is("transport", "threads") && cuda && config_["workers"] != 1) {
      Fail({"transport", "device"},
           "transport = \"threads\" with device = \"cuda\": the ranks of one process would wait "
           "for one another on the one thread that LibTorch has for a card; expected \"mpi\" or "
           "\"nccl\"");
    }
    SetConfigValue(config_, "device", device);
    SetConfigValue(config_, "precision", precision);
  }

  int DeclaredRanksPerNode(int workers) const {
    if (!Is("mode", "modelled") || !Has("cluster")) return 1;
    const json& cluster = given_.at("cluster").value;
    if (!IsDeclared(source_.profiles, cluster)) return 1;
    const int per_node = LoadDeclaredCluster(source_.profiles, cluster).ranks_per_node;
    if (workers <= per_node) return workers;
    return workers % per_node == 0 ? per_node : 1;
  }

  void Link() {
    Take("link", nullptr);
    if (Is("link", "none")) config_["link"] = nullptr;
    const json& link = config_["link"];
    if (Is("mode", "measured") && !link.is_null()) {
      Fail({"link"},
           fmt::format("link = {} in mode measured: a measured link is the machine's own; "
                       "expected \"none\", or mode = \"emulated\"",
                       link.dump()));
    }
    if (!Is("mode", "emulated")) return;
    if (link.is_null()) {
      Fail({"link", "mode"},
           "link = \"none\" in mode emulated: expected { gbps, alpha_us }, or mode = \"measured\"");
    }
    if (link["alpha_us"].get<double>() < kMinEmulableAlphaMicroseconds) {
      Fail({"link"},
           fmt::format("link: alpha_us = {}: expected at least {}: sleeping cannot emulate "
                       "less",
                       link["alpha_us"].dump(), kMinEmulableAlphaMicroseconds));
    }
  }

  void Length() {
    if (Is("kind", "throughput")) {
      for (const char* key : {"evaluate_every", "target"}) {
        if (Has(key)) {
          Fail({key},
               fmt::format("{} = {} in kind throughput: expected it with kind = \"convergence\" "
                           "only",
                           key, Shown(given_.at(key).value)));
        }
        config_[key] = nullptr;
      }
      Take("warmup_steps", 5);
      Take("steps", 15);
      return;
    }
    if (Is("mode", "modelled")) {
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
    Take("warmup_steps", 0);
    Take("steps", workload_->convergence.steps);
    Take("evaluate_every", workload_->convergence.evaluate_every);
    Take("target", workload_->convergence.target);
  }

  void Cluster() {
    Take("cluster", nullptr);
    if (!Is("mode", "modelled")) {
      if (!config_["cluster"].is_null()) {
        Fail({"cluster"},
             fmt::format("cluster = {} in mode {}: expected it with mode = \"modelled\" "
                         "only: others run on this machine",
                         config_["cluster"].dump(), config_["mode"].get<std::string>()));
      }
      return;
    }
    std::vector<std::string> known(std::begin(kOwnClusters), std::end(kOwnClusters));
    for (const char* extension : {".json", ".toml"}) {
      const auto names = source_.profiles.Names(extension);
      known.insert(known.end(), names.begin(), names.end());
    }
    if (config_["cluster"].is_null()) {
      Fail({"mode"},
           "cluster is missing: mode modelled needs one; expected \"this-machine\", "
           "\"machines-like-this\" or a file of results/profiles");
    }
    const std::string cluster = config_["cluster"];
    if (std::find(known.begin(), known.end(), cluster) == known.end()) {
      Fail({"cluster"}, fmt::format("unknown cluster \"{}\"{}; files are looked for in {}", cluster,
                                    Suggestion(cluster, known), source_.profiles.Text()));
    }
    if (IsDeclared(source_.profiles, cluster)) DeclaredClusterFits(cluster);
  }

  void DeclaredClusterFits(const std::string& cluster) {
    const DeclaredCluster& declared =
        *At({"cluster"}, [&] { return &LoadDeclaredCluster(source_.profiles, cluster); });
    At({"cluster", "workload"}, [&] { declared.ReferenceOf(config_["workload"]); });
    const int workers = config_["workers"];
    if (workers > declared.ranks()) {
      Fail(
          {"workers"},
          fmt::format("workers = {}: cluster {} has {} devices ({} nodes of {}); for more, copy "
                      "its file and declare them",
                      workers, cluster, declared.ranks(), declared.nodes, declared.ranks_per_node));
    }
    const std::string sparsifier = config_["sparsifier"];
    if (sparsifier != "none" && !declared.selection_costs.contains(sparsifier)) {
      Fail({"sparsifier"},
           fmt::format("sparsifier = \"{}\" on cluster {}: its [selection_costs] have no such "
                       "entry",
                       sparsifier, cluster));
    }
  }

  // Factors on what a declared cluster's file states; absent where all are 1.
  void Inputs() {
    if (!Has("inputs")) return;
    const json& given = given_.at("inputs").value;
    if (!config_["cluster"].is_string() || !IsDeclared(source_.profiles, config_["cluster"])) {
      Fail({"inputs"}, fmt::format("inputs = {}: expected them with a declared cluster only (a "
                                   ".toml file of results/profiles)",
                                   Shown(given)));
    }
    json factors = json::object();
    for (const auto& [group, factor] : given.items()) {
      if (std::find(InputGroups().begin(), InputGroups().end(), group) == InputGroups().end()) {
        Fail({"inputs"}, fmt::format("inputs: unknown input \"{}\"{}", group,
                                     Suggestion(group, InputGroups())));
      }
      if (!factor.is_number() || !(factor.get<double>() > 0)) {
        Fail({"inputs"},
             fmt::format("inputs: {} = {}: expected a factor above 0", group, Shown(factor)));
      }
      if (factor.get<double>() != 1) factors[group] = factor;
    }
    if (!factors.empty()) config_["inputs"] = std::move(factors);
  }

  const CellSource& source_;
  const std::string& at_;
  const GivenKeys& given_;
  const CatalogWorkload* workload_ = nullptr;
  json config_ = json::object();
};

}  // namespace

json ResolveCell(const CellSource& source, const std::string& at, const GivenKeys& given) {
  return Resolver(source, at, given).Resolve();
}

}  // namespace sparfuse::harness
