// Prints the stated inputs of a declared cluster and the calibrated ones: `sparfuse calibrate`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/cli/verbs.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string Number(double value) { return fmt::format("{:.4g}", value); }

// The choices of the cluster's software, by their keys.
std::string ChoicesText(const DeclaredCluster& cluster) {
  const auto name = [](auto names, auto choice) { return names[static_cast<std::size_t>(choice)]; };
  return fmt::format(
      "all_reduce = \"{}\", all_gather = \"{}\", host = \"{}\", selections = "
      "\"{}\", staging = \"{}\", buffers = \"{}\"",
      name(kAllReduceNames, cluster.all_reduce), name(kAllGatherNames, cluster.all_gather),
      name(kHostNames, cluster.host), name(kSelectionsNames, cluster.selections),
      name(kStagingNames, cluster.staging), name(kBuffersNames, cluster.buffers));
}

Table InputTable(const DeclaredCluster& cluster) {
  Table table;
  table.title = cluster.name + ": " + cluster.title;
  table.caption = cluster.hardware + " (" + cluster.source + ")";
  table.columns = {"input", "value", "from", "to", "kind", "scaled by", "source"};
  for (const DeclaredInput& input : cluster.inputs) {
    const bool solved = input.kind == "calibrated";
    std::string name = input.name;
    if (!input.families.empty()) name += fmt::format(" ({})", fmt::join(input.families, ", "));
    table.rows.push_back({std::move(name), Number(input.value), solved ? "–" : Number(input.low),
                          solved ? "–" : Number(input.high), input.kind, input.group,
                          input.source});
  }
  for (const auto& [sparsifier, cost] : cluster.selection_costs) {
    table.rows.push_back({"selection by " + sparsifier, Number(cost) + " x", "–", "–", "declared",
                          "sparsify", "[selection_costs], of the selection_* inputs"});
  }
  for (const Coder& coder : cluster.coders) {
    const auto add = [&](const char* direction, std::string times) {
      table.rows.push_back({fmt::format("{} by {}", direction, coder.name), std::move(times), "–",
                            fmt::format("{:.4g} x", coder.spread), coder.kind, "sparsify",
                            coder.source});
    };
    const auto line = [](double once, double each) {
      return fmt::format("{:.4g} us + {:.4g} ns an element", 1e6 * once, 1e9 * each);
    };
    const auto curve_or = [&](const ProfileCurve& curve, double once, double each) {
      return curve.empty() ? line(once, each)
                           : fmt::format("{:.4g} us of {:g} to {:.4g} us of {:g} elements",
                                         1e6 * curve.front().seconds, curve.front().size,
                                         1e6 * curve.back().seconds, curve.back().size);
    };
    if (coder.encodes) {
      add("coding",
          curve_or(coder.encode_curve, coder.encode_seconds, coder.encode_seconds_per_element));
    }
    if (coder.encodes_on_host) {
      add("coding on the host", curve_or(coder.host_encode_curve, coder.host_encode_seconds,
                                         coder.host_encode_seconds_per_element));
    }
    if (coder.decodes) {
      add("decoding", fmt::format("{} + {} a rank + {:.4g} ns an entry",
                                  line(coder.decode_seconds, coder.decode_seconds_per_element),
                                  line(coder.decode_seconds_per_rank,
                                       coder.decode_seconds_per_element_and_rank),
                                  1e9 * coder.decode_seconds_per_entry));
    }
  }
  for (const OperationCurve& curve : cluster.curves) {
    table.rows.push_back({fmt::format("all-reduce of {} ranks", curve.ranks),
                          fmt::format("{} points", curve.seconds.size()), "–", "–", curve.kind, "–",
                          curve.source});
  }
  if (!cluster.calibrated_on.empty())
    table.notes.push_back("inputs marked calibrated are calibrated on " + cluster.calibrated_on);
  if (cluster.card) {
    table.notes.push_back(
        fmt::format("forward, backward and kernels of workloads that were measured on card {} come "
                    "from its profile ({}, {}), drawn within its errors of measurement; links, the "
                    "host's share and everything else come from the inputs above",
                    cluster.card->name, cluster.card->hardware, cluster.card->kind));
  }
  if (!cluster.stack.empty())
    table.notes.push_back("inputs that the file does not state come from the stack " +
                          cluster.stack);
  table.notes.push_back("software: " + ChoicesText(cluster));
  for (const std::string& choice : cluster.against_stack)
    table.notes.push_back("stated against the stack, whose other numbers were chosen with it: " +
                          choice);
  return table;
}

Table ComputeTable(const DeclaredCluster& cluster) {
  Table table;
  table.title = "Forward and backward on one card";
  table.columns = {"workload", "batch", "stands for", "forward", "backward", "kind", "source"};
  for (const ComputeTime& time : cluster.compute) {
    table.rows.push_back({time.workload, std::to_string(time.batch_per_worker),
                          fmt::format("{}", fmt::join(time.families, ", ")),
                          fmt::format("{:.4g} ms", 1e3 * time.forward_seconds),
                          fmt::format("{:.4g} ms", 1e3 * time.backward_seconds), time.kind,
                          time.source});
  }
  if (!cluster.card) return table;
  for (const ProfileOutcome& outcome : cluster.card->outcomes) {
    const auto& backward = outcome.profile.backward;
    if (!backward) continue;
    table.rows.push_back(
        {outcome.config.workload, std::to_string(outcome.config.batch_per_worker), "itself",
         fmt::format("{:.4g} ms", 1e3 * backward->forward_seconds),
         fmt::format("{:.4g} ms", 1e3 * (backward->tail_seconds + backward->backward_seconds())),
         outcome.kind, "card " + cluster.card->name});
  }
  return table;
}

std::string Described(const ReferenceStep& step) {
  return step.sparsifier == "none"
             ? fmt::format("{} on {}", step.method, step.workers)
             : fmt::format("{} on {} at density {:g}", step.method, step.workers, step.density);
}

std::string PartOf(const ReferenceStep& step) {
  const std::string part = kStepPartNames[static_cast<std::size_t>(step.part)];
  return step.over ? part + " over " + Described(*step.over) : part;
}

std::string Measure(const ReferenceStep& step, double value) {
  return step.over ? fmt::format("{:.4g} x", value) : fmt::format("{:.4g} ms", 1e3 * value);
}

std::string From(const ReferenceStep& step) {
  if (!step.bar) return step.source;
  return step.over && step.over->bar ? step.bar->name() + " over " + step.over->bar->name()
                                     : step.bar->name();
}

// Calibration has not met a reference that is further off than this.
constexpr double kNear = 0.1;
bool IsFarOff(const ReferenceStep& step) { return std::abs(step.off()) > kNear; }

// Facts that a reader must know before trusting the cluster.
std::vector<std::string> Warnings(const DeclaredCluster& cluster) {
  std::vector<std::string> warnings;
  const auto far = std::ranges::count_if(cluster.references, IsFarOff);
  if (far > 0) {
    warnings.push_back(fmt::format(
        "{} of {} references, marked **, are more than {:g} % off: the inputs do not meet them all",
        far, cluster.references.size(), 100 * kNear));
  }
  for (const DeclaredInput& input : cluster.inputs) {
    if (input.remark.empty()) continue;
    warnings.push_back(fmt::format(
        "{}{} = {:.4g}: {}", input.name,
        input.families.empty() ? "" : fmt::format(" ({})", fmt::join(input.families, ", ")),
        input.value, input.remark));
  }
  for (const ReferenceStep& step : cluster.references) {
    if (std::string conflict = RateConflict(cluster, step); !conflict.empty())
      warnings.push_back(std::move(conflict));
  }
  return warnings;
}

// A reference's measured and modelled times.
Table ReferenceTable(const DeclaredCluster& cluster) {
  Table table;
  const bool solved = std::ranges::any_of(
      cluster.inputs, [](const DeclaredInput& input) { return input.kind == "calibrated"; });
  table.title = solved ? "Calibrated with" : "Compared with: nothing is calibrated";
  table.columns = {"workload", "workers", "method", "part", "measured", "modelled", "off", "from"};
  for (const ReferenceStep& step : cluster.references) {
    table.rows.push_back({step.workload, std::to_string(step.workers), step.method, PartOf(step),
                          Measure(step, step.measured), Measure(step, step.modelled),
                          fmt::format("{:+.1f} %{}", 100 * step.off(), IsFarOff(step) ? " **" : ""),
                          From(step)});
  }
  if (cluster.calibrated_on.empty()) table.notes = Warnings(cluster);
  return table;
}

json InputJson(const DeclaredInput& input) {
  return {{"name", input.name},     {"value", input.value},       {"low", input.low},
          {"high", input.high},     {"kind", input.kind},         {"group", input.group},
          {"source", input.source}, {"families", input.families}, {"remark", input.remark}};
}

json Describe(const DeclaredCluster& cluster) {
  json inputs = json::array();
  for (const DeclaredInput& input : cluster.inputs) inputs.push_back(InputJson(input));
  json compute = json::array();
  for (const ComputeTime& time : cluster.compute) {
    compute.push_back({{"workload", time.workload},
                       {"families", time.families},
                       {"batch_per_worker", time.batch_per_worker},
                       {"forward_seconds", time.forward_seconds},
                       {"backward_seconds", time.backward_seconds},
                       {"kind", time.kind},
                       {"source", time.source}});
  }
  json references = json::array();
  for (const ReferenceStep& step : cluster.references) {
    references.push_back({{"workload", step.workload},
                          {"workers", step.workers},
                          {"batch_per_worker", step.batch_per_worker},
                          {"method", step.method},
                          {"part", PartOf(step)},
                          {"bar", step.bar ? json(step.bar->name()) : json()},
                          {step.over ? "ratio" : "seconds", step.measured},
                          {step.over ? "modelled_ratio" : "modelled_seconds", step.modelled},
                          {"off", step.off()}});
  }
  return {
      {"name", cluster.name},
      {"title", cluster.title},
      {"source", cluster.source},
      {"hardware", cluster.hardware},
      {"nodes", cluster.nodes},
      {"ranks_per_node", cluster.ranks_per_node},
      {"inputs", std::move(inputs)},
      {"compute", std::move(compute)},
      {"references", std::move(references)},
      {"stack", cluster.stack},
      {"against_stack", cluster.against_stack},
      {"choices",
       {{"all_reduce", kAllReduceNames[static_cast<std::size_t>(cluster.all_reduce)]},
        {"all_gather", kAllGatherNames[static_cast<std::size_t>(cluster.all_gather)]},
        {"host", kHostNames[static_cast<std::size_t>(cluster.host)]},
        {"selections", kSelectionsNames[static_cast<std::size_t>(cluster.selections)]},
        {"staging", kStagingNames[static_cast<std::size_t>(cluster.staging)]},
        {"buffers", kBuffersNames[static_cast<std::size_t>(cluster.buffers)]}}},
      {"card", cluster.card ? json{{"name", cluster.card->name},
                                   {"kind", cluster.card->kind},
                                   {"hardware", cluster.card->hardware}}
                            : json()},
      {"warnings", cluster.calibrated_on.empty() ? Warnings(cluster) : std::vector<std::string>()},
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
  if (!cluster.compute.empty() || cluster.card)
    fmt::print("{}\n", Render(ComputeTable(cluster), TableFormat::kMarkdown));
  if (!cluster.references.empty())
    fmt::print("{}\n", Render(ReferenceTable(cluster), TableFormat::kMarkdown));
  return kDone;
}

}  // namespace sparfuse::harness
