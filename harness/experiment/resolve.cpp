// Resolves one cell: fills in every default, looks up every name, and refuses pairs without meaning
// and sizes beyond the machine and the data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/recipe_file.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/experiment/resolver.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/record.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/weights/safetensors.hpp"
#include "workloads/weights/weights.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// An unchanged file is hashed once, however many cells begin with it.
const std::string& Sha256OfWeights(const std::filesystem::path& file,
                                   const workloads::SafeTensors& weights) {
  static std::map<std::pair<std::filesystem::path, std::filesystem::file_time_type>, std::string>
      known;
  std::string& hash = known[{file, std::filesystem::last_write_time(file)}];
  if (hash.empty()) hash = weights.Sha256();
  return hash;
}

// Live ranks are threads or processes of this machine.
void CheckLiveSize(const CellConfig& config) {
  if (config.modelled()) return;
  if (config.workers > kMostLiveWorkers) {
    SPARFUSE_THROW(kConfig, fmt::format("workers = {} in mode {}: they would all run on this "
                                        "machine: expected at most {}, or mode = \"modelled\"",
                                        config.workers, NameOf(config.mode), kMostLiveWorkers));
  }
  // Both numbers are so small that an int holds their product.
  const int threads = config.workers * config.threads_per_worker;
  if (threads > kMostLiveThreads) {
    SPARFUSE_THROW(
        kConfig, fmt::format("workers = {} with threads_per_worker = {}: {} threads on this "
                             "machine: expected at most {}",
                             config.workers, config.threads_per_worker, threads, kMostLiveThreads));
  }
}

// A step takes no more samples than the training data has. Of live cells.
void CheckBatch(const CellConfig& config, const workloads::WorkloadDescriptor& workload,
                std::size_t training_samples) {
  if (config.modelled()) return;
  const std::int64_t samples =
      std::int64_t{config.workers} * config.accumulation * config.batch_per_worker;
  const auto there = static_cast<std::int64_t>(training_samples);
  if (samples <= there) return;
  SPARFUSE_THROW(kConfig, fmt::format("a step takes {} samples (workers * accumulation * "
                                      "batch_per_worker = {} * {} * {}): expected at most {}, the "
                                      "training data of {}",
                                      samples, config.workers, config.accumulation,
                                      config.batch_per_worker, there, workload.name));
}

}  // namespace

CellConfig Resolver::Resolve() {
  for (const char* key : {"mode", "workload", "method", "workers"}) Need(key);
  TakeWhatIsGiven();
  Workload();
  Data();
  Weights();
  Size();
  Place();
  Method();
  Link();
  Length();
  Cluster();
  Inputs();
  Buffers();
  return config_;
}

void Resolver::TakeWhatIsGiven() {
  for (const RecordKey& key : KeysOf<CellConfig>()) {
    if (key.as_given && Has(key.name))
      key.Read(given_.at(key.name).value, KeyPlace(source_.file.name()), &config_);
  }
}

void Resolver::Need(const std::string& key) const {
  if (Has(key)) return;
  source_.file.Fail(at_,
                    fmt::format("{} is missing: expected it in [defaults] or on an [[axis]]", key));
}

void Resolver::Fail(std::initializer_list<const char*> keys, const std::string& message) const {
  for (const char* key : keys) {
    if (Has(key)) source_.file.Fail(given_.at(key).pointer, message);
  }
  source_.file.Fail(at_, message);
}

std::filesystem::path Resolver::FolderOfFile() const {
  return std::filesystem::path(source_.file.name()).parent_path();
}

Options Resolver::ResolveTable(const char* key, const std::string& owner,
                               std::span<const OptionSpec> specs) const {
  return At({key}, [&] {
    return ResolveOptions(owner, specs, OptionsFromJson(owner, Given(key, json::object())));
  });
}

void Resolver::Workload() {
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

// Missing data is no error until something is to run (MissingData).
void Resolver::Data() {
  if (config_.data.empty()) {
    if (!config_.data_id.empty()) Fail({"data_id"}, "data_id without data: expected both or none");
    return;
  }
  if (config_.modelled()) {
    Fail({"data", "mode"}, fmt::format("data = \"{}\" in mode modelled: the model reads no data; "
                                       "expected mode = \"measured\" or \"emulated\"",
                                       config_.data));
  }
  if (config_.data.find('/') != std::string::npos) {
    Fail({"data"}, fmt::format("data = \"{}\": expected a name of `sparfuse data list`; "
                               "SPARFUSE_DATA names another folder of data sets",
                               config_.data));
  }
  const auto folder = workloads::PreparedFolder(workloads::ResolveDataDirectory({}), config_.data);
  std::error_code none;
  if (!std::filesystem::exists(folder / "meta.json", none)) return;
  const auto meta = At({"data"}, [&] { return workloads::ReadPreparedMeta(folder); });
  if (meta.kind != workload_->kind_of_data) {
    Fail({"data", "workload"},
         fmt::format("data = \"{}\", a data set of kind {}, with workload = \"{}\": the workload "
                     "trains on {}",
                     config_.data, meta.kind, config_.workload, workload_->kind_of_data));
  }
  TakeId("data_id", folder.string(), meta.id, config_.data_id);
  model_ = workloads::ModelForData(workload_->model, meta);
  const auto train = meta.splits.find("train");
  if (train == meta.splits.end()) return;
  if (meta.kind != "text") {
    prepared_samples_ = train->second.count;
    return;
  }
  const std::size_t window = workload_->units_per_sample;
  if (train->second.count < 2 * window) {
    Fail({"data", "workload"},
         fmt::format("data = \"{}\", which has {} tokens to train on, with workload = \"{}\": "
                     "expected at least two windows of {}",
                     config_.data, train->second.count, config_.workload, window));
  }
  prepared_tokens_ = train->second.count;
  prepared_samples_ = train->second.count / window - 1;  // as TextTask begins an epoch within one
}

void Resolver::TakeId(const char* key, const std::string& place, const std::string& there,
                      std::string& id) const {
  const std::string head = there.substr(0, kDataIdDigits);
  if (!id.empty() && id != head) {
    Fail({key},
         fmt::format("{} = \"{}\": {} holds {}; expected the content that the file means, or no {}",
                     key, id, place, head, key));
  }
  id = head;
}

void Resolver::Weights() {
  if (config_.weights.empty()) {
    if (!config_.weights_id.empty())
      Fail({"weights_id"}, "weights_id without weights: expected both or none");
    return;
  }
  if (config_.modelled() || config_.weights.find('/') != std::string::npos) {
    Fail({"weights"}, fmt::format("weights = \"{}\" in mode {}: expected a name of `sparfuse "
                                  "weights prepare`, in mode \"measured\" or \"emulated\"",
                                  config_.weights, ModeName()));
  }
  const auto file = workloads::WeightsFile(workloads::ResolveDataDirectory({}), config_.weights);
  const workloads::ModelSize& model = model_ ? *model_ : workload_->model;
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return;
  At({"weights"}, [&] {
    const workloads::SafeTensors weights(file);
    workloads::MapWeights(model, weights.tensors()).Require(file.string());
    TakeId("weights_id", file.string(), Sha256OfWeights(file, weights), config_.weights_id);
  });
}

std::size_t Resolver::TrainingSamples() const {
  if (prepared_tokens_ > 0 && StringOption(config_.recipe, "state") == "carried") {
    const auto columns = static_cast<std::size_t>(config_.workers) *
                         static_cast<std::size_t>(config_.batch_per_worker);
    const std::size_t window = workload_->units_per_sample;
    const std::size_t length =
        std::max<std::size_t>(prepared_tokens_ / std::max<std::size_t>(columns, 1), 2);
    return columns * ((length - 1 + window - 1) / window);
  }
  return prepared_samples_ > 0 ? prepared_samples_ : workload_->training_samples;
}

double Resolver::StepsPerEpoch() const {
  const double per_step =
      static_cast<double>(config_.workers) * config_.accumulation * config_.batch_per_worker;
  const double steps = static_cast<double>(TrainingSamples()) / per_step;
  return StringOption(config_.recipe, "remainder") == "wrap" ? std::ceil(steps) : std::floor(steps);
}

// Resolves a table's file, which the cell then names by its content.
const workloads::WorkloadDescriptor* Resolver::Table() {
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

void Resolver::Size() {
  const int workers = config_.workers;
  // An emulated or modelled rank stands for a node, except on a declared cluster. Measured ranks
  // share this machine.
  const int per_node = Given(
      "ranks_per_node", config_.mode == Mode::kMeasured ? workers : DeclaredRanksPerNode(workers));
  if (per_node > workers || workers % per_node != 0) {
    Fail({"ranks_per_node", "workers"},
         fmt::format("ranks_per_node = {} with workers = {}: expected a divisor of workers",
                     per_node, workers));
  }
  config_.ranks_per_node = per_node;
  At({"workers", "threads_per_worker"}, [&] { CheckLiveSize(config_); });
  config_.batch_per_worker =
      Given("batch_per_worker", static_cast<int>(workload_->batch_per_worker));
  At({"batch_per_worker", "accumulation", "workers"},
     [&] { CheckBatch(config_, *workload_, TrainingSamples()); });
}

// Sets where ranks compute, how products are rounded, and how ranks exchange.
void Resolver::Place() {
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
                     config_.modelled() ? "the model takes its times from the cluster's profile"
                                        : "a shaped link delays messages between hosts"));
  }
  if (config_.precision != Precision::kFp32 && config_.modelled()) {
    Fail({"precision", "mode"},
         fmt::format("precision = \"{}\" in mode modelled: the model takes its times from the "
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

namespace {

// Rounds up to whole windows. The first, from the initial parameters, differs from the others.
int InWindows(int steps, const MethodChoice& method) {
  if (!method.has_local_steps()) return steps;
  const int every = method.window_steps();
  return every * std::max(1, (steps + every - 1) / every);
}

}  // namespace

void Resolver::Length() {
  if (config_.kind == TrialKind::kThroughput) {
    for (const char* key : {"evaluate_every", "target", "evaluate"}) {
      if (!Has(key)) continue;
      Fail({key},
           fmt::format("{} = {} in kind throughput: expected it with kind = \"convergence\" only",
                       key, Shown(given_.at(key).value)));
    }
    const int dense = config_.modelled() ? 0 : DenseWarmupSteps(config_);
    config_.warmup_steps = InWindows(Given("warmup_steps", 5 + dense), config_.method_options);
    config_.steps = InWindows(Given("steps", 15), config_.method_options);
    if (dense > 0 && config_.warmup_steps < dense + kVerifiedSteps) {
      Fail({"warmup_steps", "method_options", "method"},
           fmt::format("warmup_steps = {} with dense_warmup_steps = {}: steps that are sent dense, "
                       "or checked, would be measured; expected at least {}: the dense steps and "
                       "{} checked ones",
                       config_.warmup_steps, dense, dense + kVerifiedSteps, kVerifiedSteps));
    }
    return;
  }
  if (config_.modelled()) {
    Fail({"kind", "mode"},
         "kind = \"convergence\" in mode modelled: the model moves no gradients; "
         "expected measured or emulated");
  }
  if (!workload_->small.empty() && config_.data.empty()) {
    Fail({"kind", "workload"},
         fmt::format("kind = \"convergence\" with workload = \"{0}\": its data is made up from "
                     "the seed, nothing can be learned from it; expected kind = \"throughput\", "
                     "data = a prepared data set, or workload = \"{1}\", which has real data",
                     workload_->name, workload_->small));
  }
  // The default is twice the steps of one dense worker to the target, as sparse methods may take
  // longer. A recipe that states its epochs is evaluated once an epoch.
  const auto target_steps = static_cast<int>(workload_->target_steps);
  const double epoch = StepsPerEpoch();
  const auto epochs = static_cast<int>(std::ceil(DoubleOption(config_.recipe, "epochs") * epoch));
  config_.warmup_steps = Given("warmup_steps", 0);
  config_.steps = Given("steps", epochs > 0 ? epochs : 2 * target_steps);
  if (config_.steps < 1) {
    Fail({"workload"}, fmt::format("workload = \"{}\" with data = \"{}\": nothing states how long "
                                   "training is; expected steps, or a recipe with epochs",
                                   config_.workload, config_.data));
  }
  config_.evaluate_every = Given(
      "evaluate_every", epochs > 0 ? static_cast<int>(epoch) : std::max(1, target_steps / 20));
  if (const double target = Given("target", workload_->target); target > 0) config_.target = target;
  if (config_.method_options.has_local_steps()) {
    config_.evaluate = Given<std::string>("evaluate", "anchor");
  } else if (Has("evaluate")) {
    Fail({"evaluate"},
         fmt::format("evaluate = {} with method {}, whose ranks have equal parameters: expected a "
                     "method with local steps",
                     Shown(given_.at("evaluate").value), config_.method));
  }
}

namespace {

// Reads recipe = "NAME", or a table with a name and changed keys. The result has the named recipe's
// keys, and its workload, batch and target unless the cell states them.
GivenKeys WithNamedRecipe(const CellSource& source, const GivenKeys& given) {
  const auto recipe = given.find("recipe");
  if (recipe == given.end()) return given;
  const std::string& at = recipe->second.pointer;
  json changes = recipe->second.value;
  if (changes.is_string()) changes = {{"name", changes}};
  const auto name = changes.find("name");
  if (name == changes.end()) return given;
  if (!name->is_string()) source.file.Fail(at, "recipe: expected a string for its name");
  const NamedRecipe* found = nullptr;
  try {
    found = &FindRecipe(name->get<std::string>());
  } catch (const Error& error) {
    source.file.Fail(at, error.what());
  }
  changes.erase(name);
  GivenKeys all = given;
  json keys = found->recipe;
  keys.update(changes);
  all["recipe"].value = std::move(keys);
  const auto usually = [&](const char* key, json value) {
    all.try_emplace(key, GivenValue{.value = std::move(value), .pointer = at});
  };
  usually("workload", found->workload);
  if (found->batch_per_worker > 0) usually("batch_per_worker", found->batch_per_worker);
  const auto kind = given.find("kind");
  const bool converges = kind != given.end() && kind->second.value == "convergence";
  if (found->target > 0 && converges) usually("target", found->target);
  return all;
}

}  // namespace

CellConfig ResolveCell(const CellSource& source, const std::string& at, const GivenKeys& given) {
  const GivenKeys all = WithNamedRecipe(source, given);
  return Resolver(source, at, all).Resolve();
}

}  // namespace sparfuse::harness
