// Writes a trace's numbers into the files of a declared cluster, and models its step there.
#include <fmt/format.h>

#include <algorithm>

#include "harness/catalog/catalog.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/cluster_text.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/traces/trace_model.hpp"

namespace sparfuse::harness {

namespace {

constexpr const char* kTraceTitle = "trace of torch.profiler";

std::string InputText(const DeclaredInput& input) {
  return fmt::format(
      "[input.{}]\nvalue  = {:.6g}\nlow    = {:.6g}\nhigh   = {:.6g}\nkind   = \"{}\"\nsource = "
      "{}\n\n",
      input.name, input.value, std::min(input.low, input.value), std::max(input.high, input.value),
      input.kind, Shown(input.source));
}

std::string ComputeText(const TracedModel& model, const std::string& table) {
  return fmt::format(
      "[[compute]]\nworkload         = \"table:{}\"\nbatch_per_worker = {}\nforward_ms       = "
      "{:.6g}\nbackward_ms      = {:.6g}\nspread           = {:.4g}\nkind             = \"{}\"\n"
      "source           = {}\n",
      table, model.batch, model.forward_ms, model.backward_ms, model.spread, kTraceKind,
      Shown(model.source));
}

std::string ReferenceText(const TracedModel& model, const std::string& table) {
  const TracedReference& of = *model.reference;
  std::string text = fmt::format(
      "\n[[reference]]\nworkload         = \"table:{}\"\nbatch_per_worker = {}\nworkers          "
      "= {}\nmethod           = \"{}\"\nstep_ms          = {:.6g}\n",
      table, model.batch, of.workers, of.method, of.step_ms);
  if (of.exposed_ms > 0) text += fmt::format("exposed_ms       = {:.6g}\n", of.exposed_ms);
  return text + fmt::format("spread           = {:.4g}\nsource           = {}\n", of.spread,
                            Shown(model.source));
}

}  // namespace

ClusterWithTrace WithTrace(std::string text, const std::string& file, const TracedModel& model,
                           const ImportedLinks& links, const std::string& table,
                           StatedInputs stated) {
  // Removes the text of an earlier import.
  text = WithMarkedBlock(std::move(text), file, kTraceTitle, "");
  std::vector<DeclaredInput> inputs = model.inputs;
  for (DeclaredInput input : links.inputs) inputs.push_back(std::move(input));
  ClusterWithTrace made;
  std::string body;
  for (const DeclaredInput& input : inputs) {
    const std::string at = "/input/" + input.name;
    if (stated == StatedInputs::kReplaced) text = WithoutInput(text, input.name);
    const TomlFile left = TomlFile::Parse(text, file);
    if (left.Find(at) == nullptr) {
      body += InputText(input);
    } else if (stated == StatedInputs::kStay) {
      made.stated.push_back(input);
    } else {
      left.Fail(at,
                "it is in one inline table of all inputs: expected [input] with a line for each "
                "input, so that the trace's can replace it");
    }
  }
  body += ComputeText(model, table);
  if (model.reference) body += ReferenceText(model, table);
  text = WithMarkedBlock(std::move(text), file, kTraceTitle, body);
  made.text = WithBlocks(std::move(text), file, links.curves);
  return made;
}

ReferenceStep DenseStep(const std::string& workload, int batch, int workers) {
  static const Catalog catalog = BuiltInCatalog();
  ReferenceStep step;
  step.workload = workload;
  step.batch_per_worker = batch;
  step.workers = workers;
  step.method = "dense";
  step.method_options = ResolveMethodOptions(
      catalog, NeedEntry(catalog.methods, "method", step.method), nlohmann::json::object());
  step.sparsifier = "none";
  return step;
}

namespace {

// The cluster for a traced step of so many ranks. One rank exchanges nothing, so its host spends no
// time on exchanges.
DeclaredCluster Exchanging(DeclaredCluster cluster, int workers) {
  if (workers > 1) return cluster;
  for (DeclaredInput& input : cluster.inputs) {
    if (input.name.starts_with("exchange_host")) input.value = input.low = input.high = 0;
  }
  return cluster;
}

}  // namespace

TracedCluster PlaceTrace(const ProfileFolders& profiles, const std::string& cluster,
                         const TracedModel& model, StatedInputs stated,
                         const std::filesystem::path& folder) {
  const std::filesystem::path from = FileOfDeclared(profiles, cluster);
  const std::filesystem::path table = std::filesystem::path("tables") / (model.name + ".json");
  TracedCluster made;
  made.file = folder / (cluster + ".toml");
  made.table = folder / table;
  made.record = folder / (cluster + ".trace.json");
  made.links = LinksOf(LoadDeclaredCluster(profiles, cluster), model.links);
  ClusterWithTrace with =
      WithTrace(ReadFile(from), from.string(), model, made.links, table.string(), stated);
  made.stated = std::move(with.stated);
  MakeDirectories(made.table.parent_path());
  WriteFileDurably(made.table, model.table.dump(1) + "\n");
  made.workload = TableWorkloadName("table:" + made.table.string(), {});
  made.cluster =
      ParseDeclaredCluster(TomlFile::Parse(with.text, made.file.string()), profiles.Behind(folder));
  WriteFileDurably(made.file, with.text);
  WriteFileDurably(made.record, TraceRecord(model).dump(1) + "\n");

  const ReferenceStep step = DenseStep(made.workload, model.batch, model.facts().world);
  if (step.workers <= made.cluster.ranks())
    made.modelled_ms = 1e3 * Modelled(Exchanging(made.cluster, step.workers), step);
  return made;
}

}  // namespace sparfuse::harness
