// Prints the names that experiment files may use, and the existing experiments: `sparfuse list`.
#include "harness/cli/list/list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/files/range.hpp"

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
  if (!method.contains("strategy")) return "";  // the file was refused
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

std::string RecipeLine(const json& recipe) {
  return fmt::format("{} of {} workers with {} on {}; {}", Text(recipe, "workload"),
                     recipe["workers"].get<int>(), recipe["batch_per_worker"].get<int>(),
                     Text(recipe, "data"), Text(recipe, "source"));
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
  return fmt::format(
      "{} payloads{}{}", Text(collective, "payload"),
      collective["native"].get<bool>() ? "; the transport's own" : "",
      collective["sums_on_host"].get<bool>() ? "; published to sum on the host" : "");
}

// The details of an entry beside its summary; "" if it has none.
std::string DetailLine(const std::string& what, const json& entry) {
  if (what == "methods") return MethodLine(entry);
  if (what == "workloads") return WorkloadLine(entry);
  if (what == "recipes") return RecipeLine(entry);
  if (what == "sparsifiers") return SparsifierLine(entry);
  if (what == "quantizers") return QuantizerLine(entry);
  if (what == "collectives") return CollectiveLine(entry);
  if (what == "experiments") return ExperimentLine(entry);
  if (what == "presets") {
    return fmt::format("{} a node: {}", entry["ranks_per_node"].dump(), Text(entry, "hardware"));
  }
  if (what == "parts") return "named by " + Text(entry, "source");
  return "";
}

using Rows = std::vector<std::vector<std::string>>;

// A Markdown table whose head is the first row. docs/ contains these tables as printed.
std::string MarkdownTable(const Rows& rows) {
  const std::size_t columns = rows.front().size();
  std::vector<std::size_t> widths(columns);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c + 1 < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < columns; ++c) text += fmt::format("| {:{}} ", row[c], widths[c]);
    text += "|\n";
    if (&row != &rows.front()) continue;
    for (const std::size_t width : widths) text += "|" + std::string(width + 2, '-');
    text += "|\n";
  }
  return text;
}

std::string RoundsText(const json& collectives) {
  Rows rows = {{"collective", "payload of a rank", "ranks", "steps", "messages a rank",
                "bytes sent by a rank", "in payloads", "elements worked on"}};
  for (const json& collective : collectives) {
    for (const json& row : collective["rounds"]) {
      const double payload = row["payload_bytes"], sent = row["sent_bytes"];
      rows.push_back({Text(collective, "name"), row["payload_bytes"].dump() + " B",
                      row["ranks"].dump(), row["steps"].dump(), row["messages"].dump(),
                      row["sent_bytes"].dump(), fmt::format("{:.3f}", sent / payload),
                      row["worked_elements"].dump()});
    }
  }
  return MarkdownTable(rows);
}

std::string FiguresText(const json& kinds) {
  Rows rows = {{"kind", "keys in addition to those of every figure", "shows"}};
  for (const json& kind : kinds) {
    rows.push_back(
        {"`" + Text(kind, "name") + "`",
         fmt::format("{}", fmt::join(kind["keys"].get<std::vector<std::string>>(), ", ")),
         Text(kind, "summary")});
  }
  return MarkdownTable(rows);
}

std::string KeysText(const json& keys) {
  Rows rows = {{"table", "key", "type", "unit", "default", "meaning"}};
  for (const json& key : keys) {
    rows.push_back({Text(key, "table"), "`" + Text(key, "name") + "`", Text(key, "type"),
                    Text(key, "unit"), Text(key, "default"), Text(key, "summary")});
  }
  return MarkdownTable(rows);
}

std::string InputsText(const json& inputs) {
  Rows rows = {{"input", "group", "range", "default", "of a stack", "meaning"}};
  for (const json& input : inputs) {
    const Range range{input["range"][0], input["range"][1]};
    rows.push_back({"`" + Text(input, "name") + "`", Text(input, "group"), Text(range),
                    input["default"].is_null()
                        ? "must be there"
                        : fmt::format("{:g}", input["default"].get<double>()),
                    input["of_stack"].get<bool>() ? "yes" : "", Text(input, "summary")});
  }
  return MarkdownTable(rows);
}

std::string Summary(const std::string& what, const json& entry) {
  if (what == "clusters") return Text(entry, "kind") + ": " + Text(entry, "summary");
  const std::string unit = what == "metrics" ? Text(entry, "unit") : "";
  return Text(entry, "summary") + (unit.empty() ? "" : ", in " + unit);
}

}  // namespace

std::string ListText(const std::string& what, const json& entries) {
  if (what == "figures") return FiguresText(entries);
  if (what == "keys") return KeysText(entries);
  if (what == "inputs") return InputsText(entries);
  if (what == "parts" && entries.empty())
    return "no names: SPARFUSE_PATH, --plugins and installed packages name no part\n";
  if (what == "collectives" && entries.front().contains("rounds")) return RoundsText(entries);
  std::size_t width = 0;
  for (const json& entry : entries) width = std::max(width, Text(entry, "name").size());
  const std::string indent(width + 2, ' ');
  std::string text;
  for (const json& entry : entries) {
    text += fmt::format("{:{}}  {}\n", Text(entry, "name"), width, Summary(what, entry));
    if (const std::string line = DetailLine(what, entry); !line.empty())
      text += indent + line + "\n";
    if (const std::string plugin = Text(entry, "plugin"); !plugin.empty())
      text += fmt::format("{}of the plugin {}\n", indent, plugin);
    if (const std::string file = Text(entry, "file"); what == "methods" && !file.empty())
      text += fmt::format("{}of the file {}\n", indent, file);
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
