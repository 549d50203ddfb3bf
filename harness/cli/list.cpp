#include "harness/cli/list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/verbs.hpp"
#include "harness/experiment/experiment_files.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Loader = std::function<Experiment(const fs::path&)>;

json OptionsJson(const std::vector<OptionSpec>& options) {
  json list = json::array();
  for (const auto& option : options) {
    json entry = {{"name", option.name}, {"meaning", option.meaning}, {"choices", option.choices}};
    std::visit([&](const auto& value) { entry["default"] = value; }, option.fallback);
    if (option.min != option.max) entry["range"] = {option.min, option.max};
    list.push_back(std::move(entry));
  }
  return list;
}

template <class Part>
json PartJson(const Part& part) {
  return {{"name", part.name},
          {"summary", part.summary},
          {"source", part.source},
          {"revision", part.revision},
          {"deviations", part.deviations},
          {"options", OptionsJson(part.options)}};
}

template <class Part>
json PartsJson(const std::vector<Part>& parts) {
  json list = json::array();
  for (const auto& part : parts) list.push_back(PartJson(part));
  return list;
}

json SparsifiersJson(const Catalog& catalog) {
  json list = PartsJson(catalog.sparsifiers);
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i]["on_device"] = catalog.sparsifiers[i].on_device;
  return list;
}

json MethodsJson(const Catalog& catalog) {
  json list = json::array();
  for (const auto& method : catalog.methods) {
    list.push_back({{"name", method.name},
                    {"title", method.title},
                    {"summary", method.summary},
                    {"source", method.paper},
                    {"revision", method.revision},
                    {"deviations", method.deviations},
                    {"strategy", method.strategy},
                    {"planner", method.planner},
                    {"sparsifier", method.sparsifier},
                    {"feedback", method.feedback},
                    {"collective", method.collective},
                    {"options", ResolveMethodOptions(catalog, method, json::object())}});
  }
  return list;
}

json WorkloadsJson(const Catalog& catalog) {
  json list = json::array();
  for (const auto& workload : catalog.workloads) {
    json entry = PartJson(workload);
    entry["family"] = workload.family;
    entry["kind_of_data"] = workload.kind_of_data;
    entry["synthetic"] = !workload.small.empty();
    entry["small"] = workload.small;
    const workloads::LayerTable& layers = workloads::LayersOf(workload.name);
    entry["parameters"] = layers.numel();
    entry["tensors"] = layers.tensors.size();
    entry["unit"] = workload.unit;
    entry["metric"] = workload.metric;
    entry["batch_per_worker"] = workload.batch_per_worker;
    entry["target"] = workload.convergence.target;
    entry["recipe"] = OptionsJson(workload.recipe);
    list.push_back(std::move(entry));
  }
  return list;
}

// "modelled, emulated": the modes of an experiment's cells, in order of appearance.
json ModesOf(const Experiment& experiment) {
  json modes = json::array();
  for (const auto& part : experiment.parts) {
    for (const auto& cell : part.cells) {
      const json& mode = cell.config["mode"];
      if (std::find(modes.begin(), modes.end(), mode) == modes.end()) modes.push_back(mode);
    }
  }
  return modes;
}

json ExperimentsJson(const fs::path& folder, const Loader& load) {
  json list = json::array();
  for (const auto& file : ExperimentFiles(folder)) {
    json entry = {{"name", fs::relative(file, folder).replace_extension("").string()},
                  {"file", file.string()}};
    try {  // listing shows what is there, good or not
      const Experiment experiment = load(file);
      entry["summary"] = experiment.title;
      entry["source"] = experiment.paper;
      entry["cells"] = experiment.cells();
      entry["modes"] = ModesOf(experiment);
      entry["minutes"] = experiment.minutes > 0 ? json(experiment.minutes) : json();
    } catch (const std::exception& error) {
      entry["summary"] = std::string("cannot be read: ") + error.what();
    }
    list.push_back(std::move(entry));
  }
  return list;
}

// "safusion; 112 cells, modelled; about 2 min"
std::string ExperimentLine(const json& entry) {
  if (!entry.contains("cells")) return "";
  const json& minutes = entry["minutes"];
  return fmt::format(
      "{}{} cells, {}{}", entry["source"] == "" ? "" : entry["source"].get<std::string>() + "; ",
      entry["cells"].dump(), fmt::join(entry["modes"].get<std::vector<std::string>>(), " and "),
      minutes.is_null() ? "" : fmt::format("; about {} min", minutes.get<double>()));
}

}  // namespace

const std::vector<std::string>& Listings() {
  static const std::vector<std::string> kListings = {"methods",     "sparsifiers", "planners",
                                                     "collectives", "strategies",  "workloads",
                                                     "experiments"};
  return kListings;
}

json Listing(const std::string& what, const Catalog& catalog, const fs::path& experiments,
             const Loader& load) {
  if (what == "methods") return MethodsJson(catalog);
  if (what == "sparsifiers") return SparsifiersJson(catalog);
  if (what == "planners") return PartsJson(catalog.planners);
  if (what == "collectives") return PartsJson(catalog.collectives);
  if (what == "strategies") return PartsJson(catalog.strategies);
  if (what == "workloads") return WorkloadsJson(catalog);
  if (what == "experiments") return ExperimentsJson(experiments, load);
  SPARFUSE_THROW(kConfig, "nothing to list named \"" + what + "\"" + Suggestion(what, Listings()));
}

std::string ListText(const std::string& what, const json& entries) {
  std::size_t width = 0;
  for (const auto& entry : entries) {
    width = std::max(width, entry["name"].get_ref<const std::string&>().size());
  }
  std::string text;
  for (const auto& entry : entries) {
    text += fmt::format("{:{}}  {}\n", entry["name"].get<std::string>(), width,
                        entry.value("summary", ""));
    const std::string indent(width + 2, ' ');
    if (what == "methods") {
      text +=
          fmt::format("{}{}; strategy {}, planner {}, sparsifier {}, collective {}\n", indent,
                      entry["source"].get<std::string>(), entry["strategy"].get<std::string>(),
                      entry["planner"].get<std::string>(), entry["sparsifier"].get<std::string>(),
                      entry["collective"].get<std::string>());
    }
    if (const std::string line = ExperimentLine(entry); !line.empty()) {
      text += indent + line + "\n";
    }
    if (what == "workloads") {
      text += fmt::format(
          "{}{} parameters in {} tensors{}\n", indent, entry["parameters"].get<std::size_t>(),
          entry["tensors"].get<std::size_t>(),
          entry["synthetic"].get<bool>() ? "; synthetic: batches are made up from the seed; " +
                                               entry["small"].get<std::string>() + " has real data"
                                         : "");
    }
    if (what == "sparsifiers") {
      text += fmt::format("{}{}\n", indent, entry["source"].get<std::string>());
      if (!entry["on_device"].get<bool>()) {
        text += indent + "on a GPU: selects on the host, copies included\n";
      }
    }
    if (const std::string deviations = entry.value("deviations", ""); !deviations.empty()) {
      text += fmt::format("{}deviates: {}\n", indent, deviations);
    }
    if (!entry.contains("options") || !entry["options"].is_array()) continue;
    for (const auto& option : entry["options"]) {
      text += fmt::format("{}{} = {}: {}\n", indent, option["name"].get<std::string>(),
                          Shown(option["default"]), option["meaning"].get<std::string>());
    }
  }
  return text;
}

int ListVerb(Program& program, const ListRequest& request) {
  const json entries = Listing(request.what, program.catalog(), program.experiments(),
                               [&](const fs::path& file) { return program.Load(file.string()); });
  if (program.json()) {
    PrintJson(entries);
  } else {
    fmt::print("{}", ListText(request.what, entries));
  }
  return kDone;
}

}  // namespace sparfuse::harness
