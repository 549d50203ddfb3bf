#include "harness/published/published.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/catalog/method_file.hpp"
#include "harness/files/csv_reader.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/given_record.hpp"

namespace sparfuse::harness {
namespace {

// The columns of a file, in order.
struct Column {
  std::string_view name;
  std::string PublishedNumber::*text;
};
using N = PublishedNumber;
constexpr Column kColumns[] = {
    {"paper", &N::paper},     {"artifact", &N::artifact}, {"workload", &N::workload},
    {"model", &N::model},     {"dataset", &N::dataset},   {"workers", &N::workers},
    {"network", &N::network}, {"method", &N::method},     {"sparsifier", &N::sparsifier},
    {"density", &N::density}, {"metric", &N::metric},     {"value", &N::stated},
    {"unit", &N::unit},       {"source", &N::source},     {"confidence", &N::confidence}};

std::optional<double> NumberOf(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

namespace fs = std::filesystem;
using nlohmann::json;
using Rows = std::vector<PublishedNumber>;

// The files of one's own numbers, in order of name; what the project's folder has, too, is its.
std::vector<fs::path> OwnFiles(const fs::path& folder, const fs::path& own) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(own, none)) {
    const fs::path name = entry.path().filename();
    if (name.extension() == ".csv" && !fs::exists(folder / name)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// The JSON members are tables by our names, or a string or a list of strings (RowsWith).
struct GivenPublished {
  std::string paper;
  json methods = json::object();
};
struct GivenOfFigure {
  std::string artifact, metric, x;
  json artifacts = json::object(), models = json::object(), networks = json::object(), stated;
};

std::vector<std::string> ValuesOf(const Rows& rows, std::string PublishedNumber::*column) {
  std::set<std::string> values;
  for (const PublishedNumber& row : rows) values.insert(row.*column);
  return {values.begin(), values.end()};
}

// The rows with one of the values of `column` that the file gives at `pointer`: a string or a list
// of strings.
Rows RowsWith(const TomlFile& file, const std::string& pointer, const Rows& rows,
              std::string PublishedNumber::*column, const std::string& of_what) {
  const json& given = *file.Find(pointer);
  Rows found;
  for (const json& name : given.is_array() ? given : json::array({given})) {
    if (!name.is_string()) file.FailValue(pointer, "a string, or a list of strings");
    const std::size_t before = found.size();
    std::ranges::copy_if(rows, std::back_inserter(found),
                         [&](const PublishedNumber& row) { return row.*column == name; });
    if (found.size() > before) continue;
    const auto as = std::ranges::find(kColumns, column, &Column::text);
    file.Fail(pointer, fmt::format("{} has no number with {} {}{}", of_what, as->name, Shown(name),
                                   Suggestion(name.get<std::string>(), ValuesOf(rows, column))));
  }
  return found;
}

}  // namespace

std::vector<PublishedNumber> ParsePublished(std::string_view text, const std::string& name) {
  CsvReader reader(text, name);
  std::vector<std::string_view> names;
  for (const Column& column : kColumns) names.push_back(column.name);
  if (const auto header = reader.Record(); !std::ranges::equal(header, names)) {
    reader.Fail(
        fmt::format("columns {}: expected {}", fmt::join(header, ","), fmt::join(names, ",")));
  }
  std::vector<PublishedNumber> rows;
  while (!reader.AtEnd()) {
    std::vector<std::string> fields = reader.Record();
    if (fields.size() != std::size(kColumns)) {
      reader.Fail(fmt::format("{} fields: expected {}", fields.size(), std::size(kColumns)));
    }
    PublishedNumber row;
    for (std::size_t i = 0; i < fields.size(); ++i) row.*kColumns[i].text = std::move(fields[i]);
    if (row.stated.empty()) reader.Fail("value is empty: expected a number, or the paper's words");
    constexpr std::string_view kBetween = " +- ";
    const std::string_view stated = row.stated;
    const std::size_t mean = stated.find(kBetween);
    row.value = NumberOf(stated.substr(0, mean));
    if (mean != std::string_view::npos) {
      row.deviation = NumberOf(stated.substr(mean + kBetween.size()));
      if (!row.value || !row.deviation)
        reader.Fail(fmt::format("value \"{}\": expected two numbers around +-", stated));
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

std::vector<PublishedNumber> ReadAllPublished(const fs::path& folder, const fs::path& own) {
  Rows numbers = ReadPublished(folder / "published-numbers.csv");
  std::vector<fs::path> more = OwnFiles(folder, own);
  if (const fs::path file = folder / "ddl-benchmarks.csv"; fs::exists(file))
    more.insert(more.begin(), file);
  for (const fs::path& file : more) {
    for (PublishedNumber& number : ReadPublished(file)) numbers.push_back(std::move(number));
  }
  return numbers;
}

template <>
RecordKeys KeysOf<GivenPublished>() {
  using P = GivenPublished;
  static constexpr auto kKeys = KeyTable<P>(
      Given<&P::paper>(
          "paper", "",
          "the paper, as a file of results/published or of your own published/ names it"),
      Given<&P::methods>("methods", "{}",
                         "the paper's names of our methods: { our-method = \"its name\" } or a "
                         "list of names; a method's file goes by its path",
                         {.type = "table"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<GivenOfFigure>() {
  using F = GivenOfFigure;
  static constexpr auto kKeys = KeyTable<F>(
      Given<&F::artifact>("artifact", "none",
                          "the paper's figure or table, for a figure that shows one workload"),
      Given<&F::artifacts>("artifacts", "none", "by workload: { our-workload = \"Fig14a\" }",
                           {.type = "table"}),
      Given<&F::models>(
          "models", "{}",
          "by workload, if an artifact shows several: { our-workload = \"ResNet-152\" }",
          {.type = "table"}),
      Given<&F::metric>("metric", "the figure's y", "the paper's name of the metric"),
      Given<&F::networks>(
          "networks", "all",
          "by cluster, if an artifact shows several: { our-cluster = \"10GbE with TCP/IP\" }",
          {.type = "table"}),
      Given<&F::stated>("stated", "none", "artifacts of the text whose gains \"A vs B\" are drawn",
                        {.type = "string or list"}),
      Given<&F::x>("x", "the figure's x", "the key along the axis", {.type = "a key of cells"}));
  return kKeys;
}

std::vector<GivenKey> PublishedKeys() { return GivenKeysOf(KeysOf<GivenPublished>()); }
std::vector<GivenKey> PublishedKeysOfFigures() { return GivenKeysOf(KeysOf<GivenOfFigure>()); }

std::optional<Published> ReadPublished(const TomlFile& file, const Catalog& catalog,
                                       const fs::path& folder, const fs::path& own) {
  if (file.Find("/published") == nullptr) return std::nullopt;
  GivenPublished given;
  ReadTable(file, "/published", "[published]", given);
  Published published{given.paper, {}, {}};
  published.rows = RowsWith(file, "/published/paper", ReadAllPublished(folder, own), &N::paper,
                            "results/published");
  const auto ours = Names(catalog.methods);
  for (const auto& [method, theirs] : given.methods.items()) {
    const std::string at = "/published/methods/" + method;
    const std::string name = MethodNameOf(method);
    const bool known = IsMethodFile(method)
                           ? fs::exists(fs::path(file.name()).parent_path() / method)
                           : std::ranges::find(ours, name) != ours.end();
    if (!known) {
      file.Fail(at, fmt::format("[published] methods: unknown method \"{}\"{}", method,
                                Suggestion(method, ours)));
    }
    RowsWith(file, at, published.rows, &N::method, published.paper);
    published.methods[name] = theirs.is_array() ? theirs.get<std::vector<std::string>>()
                                                : std::vector{theirs.get<std::string>()};
  }
  return published;
}

json PublishedOfFigure(const TomlFile& file, const std::string& at, const Published& published,
                       const std::string& metric, std::span<const std::string> workloads) {
  GivenOfFigure given;
  ReadTable(file, at, "published of a figure", given);
  const bool one = !given.artifact.empty();
  if (one != given.artifacts.empty()) {
    file.Fail(at,
              "published: expected either artifact = \"Fig17\" or artifacts = { our-workload = "
              "\"Fig14a\", ... }");
  }
  if (one && workloads.size() > 1) {
    file.FailValue(at + "/artifact",
                   fmt::format("artifacts = {{ workload = \"...\" }}: the figure shows {}",
                               fmt::join(workloads, ", ")));
  }
  const auto check_workload = [&](const std::string& pointer, const std::string& name) {
    if (std::ranges::find(workloads, name) == workloads.end()) {
      file.Fail(pointer, fmt::format("published: no cell of the figure has workload \"{}\"{}", name,
                                     Suggestion(name, workloads)));
    }
  };
  for (const auto& [workload, model] : given.models.items())
    check_workload(at + "/models/" + workload, workload);
  for (const auto& [cluster, name] : given.networks.items())
    RowsWith(file, at + "/networks/" + cluster, published.rows, &N::network, published.paper);
  json rows = json::array();
  const auto add_rows = [&](const Rows& numbers, const std::string& workload, bool stated) {
    for (const PublishedNumber& number : numbers) {
      json row = {{"of", workload.empty() ? json() : json(workload)}};
      for (const Column& column : kColumns) row[std::string(column.name)] = number.*column.text;
      if (stated) row["stated"] = true;
      if (!given.networks.empty()) {
        const auto cluster =
            std::find(given.networks.begin(), given.networks.end(), number.network);
        if (cluster == given.networks.end()) continue;
        row["cluster"] = cluster.key();
      }
      rows.push_back(std::move(row));
    }
  };
  const auto add = [&](const std::string& pointer, const std::string& workload) {
    Rows found = RowsWith(file, pointer, published.rows, &N::artifact, published.paper);
    if (const std::string model = at + "/models/" + workload; file.Find(model) != nullptr)
      found = RowsWith(file, model, found, &N::model, Shown(*file.Find(pointer)));
    const auto models = ValuesOf(found, &N::model);
    if (!given.metric.empty()) {
      found = RowsWith(file, at + "/metric", found, &N::metric, Shown(*file.Find(pointer)));
    } else if (!metric.empty()) {
      const auto known = ValuesOf(found, &N::metric);
      std::erase_if(found, [&](const PublishedNumber& row) { return row.metric != metric; });
      if (found.empty()) {
        file.Fail(pointer, fmt::format("{} has no number of metric \"{}\"; it has {}",
                                       Shown(*file.Find(pointer)), metric, fmt::join(known, ", ")));
      }
    }
    add_rows(found, workload, false);
    if (given.stated.is_null()) return;
    Rows gains = RowsWith(file, at + "/stated", published.rows, &N::artifact, published.paper);
    std::erase_if(gains, [&](const PublishedNumber& row) {
      return std::ranges::find(models, row.model) == models.end();
    });
    add_rows(gains, workload, true);
  };
  if (one) {
    add(at + "/artifact", workloads.empty() ? "" : workloads.front());
  } else {
    for (const auto& [workload, artifact] : given.artifacts.items()) {
      check_workload(at + "/artifacts/" + workload, workload);
      add(at + "/artifacts/" + workload, workload);
    }
  }
  return {{"paper", published.paper}, {"methods", published.methods}, {"rows", std::move(rows)}};
}

}  // namespace sparfuse::harness
