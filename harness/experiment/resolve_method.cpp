// Resolves the method of a cell: its collective, its selection, and the treatment of the rest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/outside_parts.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/descriptors.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/experiment/resolver.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr Range kDimensions{0, 64};

// Each name of dense_tensors and no_feedback_tensors is a tensor of the workload, or a regular
// expression that is found in one.
void CheckTensorNames(const CellConfig& config) {
  if (config.dense_tensors.names.empty() && config.no_feedback_tensors.empty()) return;
  CatalogLayout(config);
}

// A plan that the experiment gives is one of the workload's tensors. Those of a live trial may be
// ready in another order than is known here: then it is their number that is checked.
void CheckGivenPlan(const CellConfig& config) {
  const MethodChoice& method = config.method_options;
  if (method.planner != kGivenPlanner) return;
  if (!config.modelled() && !StringOption(method.planner_options, "bytes").empty()) return;
  const GradientLayout layout = CatalogLayout(config);
  const PlanInput input{.layout = layout, .topology = {config.workers, config.ranks_per_node}};
  FindPlanner(kGivenPlanner).make(method.planner_options)->MakePlan(input);
}

// The sparsifier can be made with its options; one that is written in Python is not loaded.
void CheckSparsifierOptions(const CellConfig& config) {
  if (config.sparsifier == "none" || IsPythonPart(config.sparsifier)) return;
  Compose(config).MakeSparsifier(0);
}

}  // namespace

// The method of this name, or of a file outside the tree.
harness::Method Resolver::FindMethod() {
  const auto given = Given<std::string>("method", "");
  return At({"method"}, [&] {
    const auto& known = source_.catalog.methods;
    const auto file = OutsideMethodFile(source_.catalog, given, FolderOfFile());
    if (file.empty()) return NeedEntry(known, "method", given);
    auto [method, content] = ReadOutsideMethod(source_.catalog, file);
    config_.method_content = content;
    return method;
  });
}

void Resolver::Method() {
  const harness::Method method = FindMethod();
  config_.method = method.name;
  json options = Given("method_options", json::object());
  At({"method_options"}, [&] { GiveFolder(options); });
  const auto resolve = [&] {
    config_.method_options = At({"method_options", "method"}, [&] {
      return ResolveMethodOptions(source_.catalog, method, options);
    });
  };
  resolve();
  // The backend's own collective cannot run beside steps.
  if (config_.mode == Mode::kMeasured && !options.contains("collective") &&
      !config_.method_options.exchanges_beside_steps()) {
    if (const auto* own = BackendsOwn(method.collective)) {
      options["collective"] = own->name;
      resolve();
    }
  }
  // A dense method has one cell, whatever densities an axis lists.
  if (!method.dense()) Sparsity(method);
  if (method.sends_payloads()) FeedbackOf(method);
  At({"method_options", "method", "sparsifier"}, [&] { Compose(config_); });
  At({"sparsifier_options", "sparsifier"}, [&] { CheckSparsifierOptions(config_); });
  CheckCollective();
  TensorsTreatedApart(method);
  At({"dense_tensors", "no_feedback_tensors"}, [&] { CheckTensorNames(config_); });
  At({"method_options", "method"}, [&] { CheckGivenPlan(config_); });
}

// Outside parts get an absolute path. The file gives one relative to its own folder.
void Resolver::GiveFolder(json& options) const {
  for (const auto& [key, kind] :
       {std::pair("planner", "planner"), std::pair("collective", "collective"),
        std::pair("payload_dense", "quantizer")}) {
    const auto given = options.find(key);
    if (given == options.end() || !given->is_string()) continue;
    const auto name = given->get<std::string>();
    *given = At({"method_options"},
                [&] { return FoundPart(source_.catalog, kind, name, FolderOfFile()); });
  }
}

void Resolver::CheckCollective() const {
  const CollectiveDescriptor& collective = FindCollective(config_.method_options.collective);
  const bool lacking = (Has("transport") || !config_.modelled()) && !HasTransport(collective);
  if (collective.native && (config_.mode == Mode::kEmulated || lacking)) {
    Fail({"method_options", "method"},
         fmt::format("the collective \"{}\" belongs to transport {}: it can be neither delayed nor "
                     "run over another; expected one of sparfuse's collectives in mode {} over {}",
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
    Fail({"device", "method"}, fmt::format("the collective \"{}\" selects from the accumulated "
                                           "gradient in host memory; expected device \"cpu\"",
                                           collective.name));
  }
  const PayloadCoding coding = Compose(config_).coding;
  const bool by_chunks = coding.indices == IndexCoding::kU12;
  if (config_.device == Place::kCuda && coding.of_selections() &&
      (!by_chunks || config_.transport == Transport::kNccl)) {
    Fail({"device", "method_options", "method"},
         fmt::format("payload_values = {}, payload_indices = {}: selections are coded one by one "
                     "in host memory; expected device \"cpu\"{}",
                     StringOption(config_.method_options.sending, "payload_values"),
                     StringOption(config_.method_options.sending, "payload_indices"),
                     by_chunks ? ", or transport \"mpi\"" : ""));
  }
  const Composition made = Compose(config_);
  if (const auto steps = made.local_steps();
      steps && steps->inner != InnerState::kKeep && !made.inner_arrays) {
    Fail({"method_options", "workload"},
         fmt::format(
             "inner_state = {} with workload {}, which has no recipe, so its optimizer's state is "
             "unknown; expected \"keep\", or a workload of `sparfuse list workloads`",
             StringOption(config_.method_options.strategy_options, "inner_state"),
             config_.workload));
  }
  const std::string why = collective.WhyOnlyModelled(config_.method_options.collective_options);
  if (!config_.modelled() && !why.empty()) {
    Fail({"method_options", "method"},
         fmt::format("the collective \"{}\" in mode {}: {}", collective.name, ModeName(), why));
  }
  At({"workers", "ranks_per_node", "method"}, [&] {
    CheckTopology(Compose(config_), {config_.workers, config_.ranks_per_node});
  });
}

bool Resolver::HasTransport(const CollectiveDescriptor& collective) const {
  return std::ranges::count(collective.backends, NameOf(config_.transport)) > 0;
}

// The transport's own version of a general collective; null if it has none.
const CollectiveDescriptor* Resolver::BackendsOwn(const std::string& collective) const {
  if (collective != "ring-allreduce" && collective != "sparse-allgather") return nullptr;
  return NativeOver(NeedEntry(source_.catalog.collectives, "collective", collective).payload);
}

const CollectiveDescriptor* Resolver::NativeOver(PayloadKind payload) const {
  const auto& all = source_.catalog.collectives;
  const auto own = std::ranges::find_if(all, [&](const CollectiveDescriptor& each) {
    return each.native && each.payload == payload && HasTransport(each);
  });
  return own == all.end() ? nullptr : &*own;
}

void Resolver::Sparsity(const harness::Method& method) {
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

// For the nonzeros, the workload and the batch give the density, if they are known.
double Resolver::UsualDensity() const {
  const auto& natural = workload_->natural;
  if (!natural || config_.sparsifier != kNonzeros) return 0.01;
  return natural->Density(static_cast<double>(config_.batch_per_worker) * config_.accumulation);
}

void Resolver::FeedbackOf(const harness::Method& method) {
  config_.feedback = At({"feedback"}, [&] {
    const std::string name =
        FoundPart(source_.catalog, "feedback", Given("feedback", method.feedback), FolderOfFile());
    return IsOutsidePart(name) ? OutsidePartName("feedback", name, "") : name;
  });
  config_.feedback_options =
      ResolveTable("feedback_options", "feedback " + config_.feedback,
                   At({"feedback"}, [&] { return FeedbackOptions(config_.feedback); }));
  At({"feedback_options"},
     [&] { return MakeFeedback(config_.feedback, config_.feedback_options); });
}

void Resolver::ChosenSparsifier() {
  const std::string name = At({"sparsifier"}, [&] {
    return FoundPart(source_.catalog, "sparsifier", config_.sparsifier, FolderOfFile());
  });
  if (IsOutsidePart(name)) {
    config_.sparsifier =
        At({"sparsifier"}, [&] { return OutsidePartName("sparsifier", name, ""); });
    if (IsLibraryPart(name)) {
      config_.sparsifier_options = ResolveTable(
          "sparsifier_options", "sparsifier " + config_.sparsifier,
          At({"sparsifier"}, [&] { return ResolveSparsifier(config_.sparsifier).options; }));
      return;
    }
    config_.sparsifier_options = At({"sparsifier_options"}, [&] {  // the constructor knows them
      return OptionsFromJson(name, Given("sparsifier_options", json::object()));
    });
    return;
  }
  const auto& sparsifier = *At(
      {"sparsifier"}, [&] { return &NeedEntry(source_.catalog.sparsifiers, "sparsifier", name); });
  config_.sparsifier_options =
      ResolveTable("sparsifier_options", "sparsifier " + name, sparsifier.options);
}

void Resolver::TensorsTreatedApart(const harness::Method& method) {
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
  if (FindStrategy(config_.method_options.strategy).sparsified != Sparsified::kBehind ||
      config_.no_feedback_tensors.empty()) {
    return;
  }
  Fail({"no_feedback_tensors", "method"},
       fmt::format("no_feedback_tensors = {} with method {}, which selects from fused buffers: "
                   "expected none",
                   ToJson(config_)["no_feedback_tensors"].dump(), method.name));
}

}  // namespace sparfuse::harness
