// Prints what experiment files may name, and the experiments that there are: `sparfuse list`.
#include "harness/cli/list/list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/report/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string Text(const json& entry, const char* key) { return entry.value(key, std::string()); }

// "safusion; 112 cells, modelled; about 2 min"
std::string ExperimentLine(const json& entry) {
  if (!entry.contains("cells")) return "";
  const json& minutes = entry["minutes"];
  return fmt::format(
      "{}{} cells, {}{}", entry["source"] == "" ? "" : entry["source"].get<std::string>() + "; ",
      entry["cells"].dump(), fmt::join(entry["modes"].get<std::vector<std::string>>(), " and "),
      minutes.is_null() ? "" : fmt::format("; about {} min", minutes.get<double>()));
}

std::string MethodLine(const json& method) {
  return fmt::format("{}; strategy {}, planner {}, sparsifier {}, collective {}",
                     Text(method, "source"), Text(method, "strategy"), Text(method, "planner"),
                     Text(method, "sparsifier"), Text(method, "collective"));
}

std::string WorkloadLine(const json& workload) {
  return fmt::format("{} parameters in {} tensors{}", workload["parameters"].get<std::size_t>(),
                     workload["tensors"].get<std::size_t>(),
                     workload["synthetic"].get<bool>()
                         ? "; synthetic: batches are made up from the seed; " +
                               Text(workload, "small") + " has real data"
                         : "");
}

std::string SparsifierLine(const json& sparsifier) {
  return Text(sparsifier, "source") + (sparsifier["on_device"].get<bool>()
                                           ? ""
                                           : "; on a GPU: selects on the host, copies included");
}

std::string QuantizerLine(const json& quantizer) {
  return fmt::format("{}{}", quantizer["unbiased"].get<bool>() ? "unbiased" : "biased",
                     quantizer["needs_feedback"].get<bool>() ? "; needs feedback" : "");
}

std::string CollectiveLine(const json& collective) {
  return fmt::format("{} payloads{}", Text(collective, "payload"),
                     collective["native"].get<bool>() ? "; the transport's own" : "");
}

// What is to be said of an entry beside its summary; "" where that is nothing.
std::string DetailLine(const std::string& what, const json& entry) {
  if (what == "methods") return MethodLine(entry);
  if (what == "workloads") return WorkloadLine(entry);
  if (what == "sparsifiers") return SparsifierLine(entry);
  if (what == "quantizers") return QuantizerLine(entry);
  if (what == "collectives") return CollectiveLine(entry);
  if (what == "experiments") return ExperimentLine(entry);
  if (what == "figure-kinds") {
    return entry["keys"].empty()
               ? ""
               : fmt::format("keys: {}",
                             fmt::join(entry["keys"].get<std::vector<std::string>>(), ", "));
  }
  return "";
}

// A Markdown table of the collective's rounds, as docs/algorithms.md has it.
std::string RoundsText(const json& collective) {
  Table table;
  table.title = Text(collective, "name");
  table.caption =
      fmt::format("{}; {} payloads", Text(collective, "summary"), Text(collective, "payload"));
  table.columns = {"payload of a rank", "ranks",       "steps",           "messages a rank",
                   "sent by a rank",    "in payloads", "additions a rank"};
  for (const json& row : collective["rounds"]) {
    const double payload = row["payload_bytes"], sent = row["sent_bytes"];
    table.rows.push_back({Quantity(payload, "B"), row["ranks"].dump(), row["steps"].dump(),
                          row["messages"].dump(), Quantity(sent, "B"),
                          fmt::format("{:.3f}", sent / payload), row["reduced_elements"].dump()});
  }
  return Render(table, TableFormat::kMarkdown);
}

std::string Summary(const std::string& what, const json& entry) {
  if (what == "clusters") return Text(entry, "kind") + ": " + Text(entry, "summary");
  const std::string unit = what == "metrics" ? Text(entry, "unit") : "";
  return Text(entry, "summary") + (unit.empty() ? "" : ", in " + unit);
}

}  // namespace

std::string ListText(const std::string& what, const json& entries) {
  std::size_t width = 0;
  for (const json& entry : entries) width = std::max(width, Text(entry, "name").size());
  const std::string indent(width + 2, ' ');
  std::string text;
  for (const json& entry : entries) {
    if (entry.contains("rounds")) {
      text += RoundsText(entry) + "\n";
      continue;
    }
    text += fmt::format("{:{}}  {}\n", Text(entry, "name"), width, Summary(what, entry));
    if (const std::string line = DetailLine(what, entry); !line.empty())
      text += indent + line + "\n";
    if (const std::string deviations = Text(entry, "deviations"); !deviations.empty())
      text += fmt::format("{}deviates: {}\n", indent, deviations);
    if (!entry.contains("options") || !entry["options"].is_array()) continue;
    for (const json& option : entry["options"]) {
      text += fmt::format("{}{} = {}: {}\n", indent, Text(option, "name"), Shown(option["default"]),
                          Text(option, "meaning"));
    }
  }
  return text;
}

int ListVerb(Program& program, const ListRequest& request) {
  const json entries = Listing(program, request);
  if (program.json()) {
    PrintJson(entries);
  } else {
    fmt::print("{}", ListText(request.what, entries));
  }
  return kDone;
}

}  // namespace sparfuse::harness
