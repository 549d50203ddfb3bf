// Prints what a declared cluster states and what is calibrated from it: `sparfuse calibrate`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/cli/verbs.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string Number(double value) { return fmt::format("{:.4g}", value); }

Table InputTable(const DeclaredCluster& cluster) {
  Table table;
  table.title = cluster.name + ": " + cluster.title;
  table.caption = cluster.hardware + " (" + cluster.source + ")";
  table.columns = {"input", "value", "kind", "scaled by", "source"};
  for (const DeclaredInput& input : cluster.inputs) {
    table.rows.push_back({input.name, Number(input.value), input.kind, input.group, input.source});
  }
  for (const auto& [sparsifier, cost] : cluster.selection_costs.items()) {
    table.rows.push_back({"selection by " + sparsifier, Number(cost) + " x dgc", "declared",
                          "sparsify", "[selection_costs]"});
  }
  return table;
}

Table ReferenceTable(const DeclaredCluster& cluster, const ReferenceWorkload& reference) {
  Table table;
  table.title = "Calibrated for " + fmt::format("{}", fmt::join(reference.families, ", "));
  table.caption =
      fmt::format("{} at {} workers, batch {} ({})", reference.workload, reference.workers,
                  reference.batch_per_worker, reference.batch_source);
  table.columns = {"input", "value", "scaled by", "from"};
  for (const DeclaredInput& input : cluster.CalibratedInputs(reference))
    table.rows.push_back({input.name, Number(input.value), input.group, input.source});
  table.notes = {fmt::format(
      "the host's share of an exchange of one tensor: so that a modelled step exposes {:.4g} "
      "ms of communication and decompression, as the bar does",
      reference.exposed_seconds * 1e3)};
  return table;
}

json InputJson(const DeclaredInput& input) {
  return {{"name", input.name},
          {"value", input.value},
          {"kind", input.kind},
          {"group", input.group},
          {"source", input.source}};
}

json Describe(const DeclaredCluster& cluster) {
  json inputs = json::array();
  for (const DeclaredInput& input : cluster.inputs) inputs.push_back(InputJson(input));
  json references = json::array();
  for (const ReferenceWorkload& reference : cluster.references) {
    json calibrated = json::array();
    for (const DeclaredInput& input : cluster.CalibratedInputs(reference))
      calibrated.push_back(InputJson(input));
    references.push_back({{"families", reference.families},
                          {"workload", reference.workload},
                          {"workers", reference.workers},
                          {"batch_per_worker", reference.batch_per_worker},
                          {"bar", reference.bar.name()},
                          {"exposed_seconds", reference.exposed_seconds},
                          {"calibrated", std::move(calibrated)}});
  }
  return {{"name", cluster.name},
          {"title", cluster.title},
          {"source", cluster.source},
          {"hardware", cluster.hardware},
          {"nodes", cluster.nodes},
          {"ranks_per_node", cluster.ranks_per_node},
          {"inputs", std::move(inputs)},
          {"references", std::move(references)},
          {"selection_costs", cluster.selection_costs}};
}

}  // namespace

int CalibrateVerb(Program& program, const std::string& name) {
  const std::vector<std::string> known = program.store().profiles().Names(".toml");
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("unknown declared cluster \"{}\"{}", name, Suggestion(name, known)));
  }
  const DeclaredCluster& cluster = LoadDeclaredCluster(program.store().profiles(), name);
  if (program.json()) {
    PrintJson(Describe(cluster));
    return kDone;
  }
  fmt::print("{}\n", Render(InputTable(cluster), TableFormat::kMarkdown));
  for (const ReferenceWorkload& reference : cluster.references) {
    fmt::print("{}\n", Render(ReferenceTable(cluster, reference), TableFormat::kMarkdown));
  }
  return kDone;
}

}  // namespace sparfuse::harness
