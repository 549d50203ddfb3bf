#include "harness/published/published.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/catalog/method_file.hpp"
#include "harness/files/csv_reader.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::string_view kColumns[] = {
    "paper",      "artifact", "workload", "model", "dataset", "workers", "network",   "method",
    "sparsifier", "density",  "metric",   "value", "unit",    "source",  "confidence"};

std::optional<double> NumberOf(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

}  // namespace

std::vector<PublishedNumber> ParsePublished(std::string_view text, const std::string& name) {
  CsvReader reader(text, name);
  if (const auto header = reader.Record();
      !std::equal(header.begin(), header.end(), std::begin(kColumns), std::end(kColumns))) {
    reader.Fail(
        fmt::format("columns {}: expected {}", fmt::join(header, ","), fmt::join(kColumns, ",")));
  }
  std::vector<PublishedNumber> rows;
  while (!reader.AtEnd()) {
    std::vector<std::string> fields = reader.Record();
    if (fields.size() != std::size(kColumns)) {
      reader.Fail(fmt::format("{} fields: expected {}", fields.size(), std::size(kColumns)));
    }
    PublishedNumber row;
    std::string* const texts[] = {&row.paper,      &row.artifact, &row.workload,  &row.model,
                                  &row.dataset,    &row.workers,  &row.network,   &row.method,
                                  &row.sparsifier, &row.density,  &row.metric,    &row.stated,
                                  &row.unit,       &row.source,   &row.confidence};
    for (std::size_t i = 0; i < fields.size(); ++i) *texts[i] = std::move(fields[i]);
    if (row.stated.empty())
      reader.Fail("value is empty: expected a number, or what the paper says");
    constexpr std::string_view kBetween = " +- ";
    const std::string_view stated = row.stated;
    const std::size_t mean = stated.find(kBetween);
    row.value = NumberOf(stated.substr(0, mean));
    if (mean != std::string_view::npos) {
      row.deviation = NumberOf(stated.substr(mean + kBetween.size()));
      if (!row.value || !row.deviation)
        reader.Fail(fmt::format("value \"{}\": expected two numbers beside +-", stated));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<PublishedNumber> ReadPublished(const std::filesystem::path& file) {
  std::string text;
  try {
    text = ReadFile(file);
  } catch (const Error& error) {
    SPARFUSE_THROW(kConfig, error.what());
  }
  return ParsePublished(text, file.string());
}

std::vector<PublishedNumber> ReadAllPublished(const std::filesystem::path& folder) {
  std::vector<PublishedNumber> numbers = ReadPublished(folder / "published-numbers.csv");
  if (const auto more = folder / "ddl-benchmarks.csv"; std::filesystem::exists(more)) {
    for (PublishedNumber& number : ReadPublished(more)) numbers.push_back(std::move(number));
  }
  return numbers;
}

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// One object {column: text} a number.
json RowsOf(const std::vector<PublishedNumber>& numbers) {
  json rows = json::array();
  for (const auto& number : numbers) {
    rows.push_back({{"paper", number.paper},
                    {"artifact", number.artifact},
                    {"workload", number.workload},
                    {"model", number.model},
                    {"dataset", number.dataset},
                    {"workers", number.workers},
                    {"network", number.network},
                    {"method", number.method},
                    {"sparsifier", number.sparsifier},
                    {"density", number.density},
                    {"metric", number.metric},
                    {"value", number.stated},
                    {"unit", number.unit},
                    {"source", number.source},
                    {"confidence", number.confidence}});
  }
  return rows;
}

std::vector<std::string> ValuesOf(const json& rows, const char* column) {
  std::set<std::string> values;
  for (const json& row : rows) values.insert(row[column].get<std::string>());
  return {values.begin(), values.end()};
}

// The rows whose `column` is one of what the file gives at `pointer`: a string or a list of them.
json RowsWith(const TomlFile& file, const std::string& pointer, const json& rows,
              const char* column, const std::string& of_what) {
  const json& given = *file.Find(pointer);
  const json names = given.is_array() ? given : json::array({given});
  json found = json::array();
  for (const json& name : names) {
    if (!name.is_string()) file.FailValue(pointer, "a string, or a list of strings");
    const std::size_t before = found.size();
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
                 [&](const json& row) { return row[column] == name; });
    if (found.size() == before) {
      const auto known = ValuesOf(rows, column);
      file.Fail(pointer, fmt::format("{} has no number with {} {}{}", of_what, column, Shown(name),
                                     Suggestion(name.get<std::string>(), known)));
    }
  }
  return found;
}

}  // namespace

std::optional<Published> ReadPublished(const TomlFile& file, const Catalog& catalog,
                                       const fs::path& folder) {
  if (file.Find("/published") == nullptr) return std::nullopt;
  static const std::vector<std::string> kKeys = {"paper", "methods"};
  file.CheckKeys("/published", "[published]", kKeys);
  Published published;
  published.paper = file.RequiredString("/published", "paper");
  published.rows = RowsWith(file, "/published/paper", RowsOf(ReadAllPublished(folder)), "paper",
                            "results/published");
  published.methods = json::object();
  const json* methods = file.Find("/published/methods");
  if (methods == nullptr) return published;
  if (!methods->is_object()) {
    file.FailValue("/published/methods", "{ our-method = \"the paper's name\", ... }");
  }
  const auto ours = Names(catalog.methods);
  for (const auto& [given, theirs] : methods->items()) {
    const std::string at = "/published/methods/" + given;
    const std::string name = MethodNameOf(given);
    const bool known = IsMethodFile(given)
                           ? fs::exists(fs::path(file.name()).parent_path() / given)
                           : std::find(ours.begin(), ours.end(), name) != ours.end();
    if (!known) {
      file.Fail(at, fmt::format("[published] methods: unknown method \"{}\"{}", given,
                                Suggestion(given, ours)));
    }
    RowsWith(file, at, published.rows, "method", published.paper);
    published.methods[name] = theirs.is_array() ? theirs : json::array({theirs});
  }
  return published;
}

json PublishedOfFigure(const TomlFile& file, const std::string& at, const Published& published,
                       const std::string& metric, std::span<const std::string> workloads) {
  static const std::vector<std::string> kKeys = {"artifact", "artifacts", "models", "metric",
                                                 "networks", "x",         "stated"};
  file.CheckKeys(at, "published of a figure", kKeys);
  const json* artifacts = file.Find(at + "/artifacts");
  const bool one = file.Find(at + "/artifact") != nullptr;
  if (one == (artifacts != nullptr)) {
    file.Fail(at,
              "published: expected either artifact = \"Fig17\" or artifacts = { our-workload = "
              "\"Fig14a\", ... }");
  }
  if (one && workloads.size() > 1) {
    file.FailValue(at + "/artifact",
                   fmt::format("artifacts = {{ workload = \"...\" }}: the figure shows {}",
                               fmt::join(workloads, ", ")));
  }
  if (artifacts != nullptr && (!artifacts->is_object() || artifacts->empty())) {
    file.FailValue(at + "/artifacts", "{ our-workload = \"Fig14a\", ... }");
  }
  const auto check_workload = [&](const std::string& pointer, const std::string& name) {
    if (std::find(workloads.begin(), workloads.end(), name) == workloads.end()) {
      file.Fail(pointer, fmt::format("published: no cell of the figure has workload \"{}\"{}", name,
                                     Suggestion(name, workloads)));
    }
  };
  if (const json* models = file.Find(at + "/models"); models != nullptr) {
    if (!models->is_object()) file.FailValue(at + "/models", "{ our-workload = \"ResNet-152\" }");
    for (const auto& [workload, model] : models->items()) {
      check_workload(at + "/models/" + workload, workload);
    }
  }
  const json* networks = file.Find(at + "/networks");
  if (networks != nullptr) {
    if (!networks->is_object() || networks->empty())
      file.FailValue(at + "/networks", "{ our-cluster = \"10GbE with TCP/IP\", ... }");
    for (const auto& [cluster, name] : networks->items())
      RowsWith(file, at + "/networks/" + cluster, published.rows, "network", published.paper);
  }
  json rows = json::array();
  const auto add = [&](const std::string& pointer, const std::string& workload) {
    json found = RowsWith(file, pointer, published.rows, "artifact", published.paper);
    if (const std::string model = at + "/models/" + workload; file.Find(model) != nullptr) {
      found = RowsWith(file, model, found, "model", Shown(*file.Find(pointer)));
    }
    const auto models = ValuesOf(found, "model");
    if (file.Find(at + "/metric") != nullptr) {
      found = RowsWith(file, at + "/metric", found, "metric", Shown(*file.Find(pointer)));
    } else if (!metric.empty()) {
      json with = json::array();
      std::copy_if(found.begin(), found.end(), std::back_inserter(with),
                   [&](const json& row) { return row["metric"] == metric; });
      if (with.empty()) {
        file.Fail(pointer, fmt::format("{} has no number of metric \"{}\"; it has {}",
                                       Shown(*file.Find(pointer)), metric,
                                       fmt::join(ValuesOf(found, "metric"), ", ")));
      }
      found = std::move(with);
    }
    if (file.Find(at + "/stated") != nullptr) {
      for (json& row :
           RowsWith(file, at + "/stated", published.rows, "artifact", published.paper)) {
        const auto model = row["model"].get<std::string>();
        if (std::find(models.begin(), models.end(), model) == models.end()) continue;
        row["stated"] = true;
        found.push_back(std::move(row));
      }
    }
    for (json& row : found) {
      row["of"] = workload.empty() ? json() : json(workload);
      if (networks != nullptr) {
        const auto cluster = std::find(networks->begin(), networks->end(), row["network"]);
        if (cluster == networks->end()) continue;
        row["cluster"] = cluster.key();
      }
      rows.push_back(std::move(row));
    }
  };
  if (one) {
    add(at + "/artifact", workloads.empty() ? "" : workloads.front());
  } else {
    for (const auto& [workload, artifact] : artifacts->items()) {
      check_workload(at + "/artifacts/" + workload, workload);
      add(at + "/artifacts/" + workload, workload);
    }
  }
  return {{"paper", published.paper}, {"methods", published.methods}, {"rows", std::move(rows)}};
}

}  // namespace sparfuse::harness
