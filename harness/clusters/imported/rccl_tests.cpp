// Reads the files that rccl-tests writes with -x and -Z csv or json: a line a size, out of place
// and in place. Older versions write objects without a list around them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "harness/clusters/imported/link_log_readers.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/csv_reader.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The values of a line by the names of the CSV, in small letters.
struct RcclRow {
  const LogLine* line;
  std::map<std::string, std::string> values;
};

constexpr std::pair<std::string_view, std::string_view> kRcclPrograms[] = {
    {"AllReduce", "all_reduce_perf"},
    {"AllGather", "all_gather_perf"},
    {"SendRecv", "sendrecv_perf"}};

std::string Small(std::string_view text) {
  std::string small;
  for (const char c : text) small += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

bool IsHeader(std::string_view line) {
  return (line.starts_with("collective,") || line.starts_with("numCycle,")) &&
         Small(line).find("busbw") != std::string::npos;
}

std::vector<std::string> CellsOf(const LogLine& line, const std::string& file) {
  const std::string text(line.text);
  std::vector<std::string> cells;
  try {
    cells = CsvReader(text, file, ',').Record();
  } catch (const Error& error) {
    FailAt(file, line.number, error.what());
  }
  // Older versions write ", " between cells, also before a quote.
  for (std::string& cell : cells) {
    cell = std::string(Trimmed(cell));
    if (cell.size() > 1 && cell.front() == '"' && cell.back() == '"')
      cell = cell.substr(1, cell.size() - 2);
  }
  return cells;
}

std::vector<RcclRow> RowsOfCsv(const LogText& log, const std::string& file) {
  std::vector<RcclRow> rows;
  std::vector<std::string> header;
  for (const LogLine& line : log.lines) {
    if (IsHeader(line.text)) {
      if (!header.empty())
        FailAt(file, line.number, "a second run begins: expected one run in a file");
      header = CellsOf(line, file);
      for (std::string& name : header) name = Small(name);
      continue;
    }
    if (header.empty() || line.text.find(',') == std::string_view::npos) continue;
    std::vector<std::string> cells = CellsOf(line, file);
    std::vector<std::string> names = header;
    // Some versions write the number of nodes and do not name its column.
    const auto ranks = std::ranges::find(names, "ranks");
    if (cells.size() == names.size() + 1 && ranks != names.end() &&
        std::ranges::find(names, "nodes") == names.end())
      names.insert(ranks, "nodes");
    if (cells.size() != names.size()) {
      FailAt(
          file, line.number,
          fmt::format("{} cells: expected {}; was the file cut off?", cells.size(), names.size()));
    }
    RcclRow& row = rows.emplace_back(RcclRow{&line, {}});
    for (std::size_t i = 0; i < names.size(); ++i) row.values[names[i]] = cells[i];
  }
  return rows;
}

std::vector<RcclRow> RowsOfJson(const LogText& log, const std::string& file) {
  std::vector<RcclRow> rows;
  for (const LogLine& line : log.lines) {
    if (!line.text.starts_with('{')) continue;
    std::string_view text = line.text;
    if (text.ends_with(',')) text.remove_suffix(1);
    const json object = json::parse(text, nullptr, false);
    if (!object.is_object())
      FailAt(file, line.number, "no JSON object: expected one a line; was the file cut off?");
    RcclRow& row = rows.emplace_back(RcclRow{&line, {}});
    for (const auto& [key, value] : object.items()) {
      const std::string name = key == "name" ? "collective" : key == "wrong" ? "#wrong" : key;
      row.values[Small(name)] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  return rows;
}

class RcclReader {
 public:
  RcclReader(std::vector<RcclRow> rows, const std::string& file, const AskedOfLog& asked)
      : rows_(std::move(rows)), file_(file), asked_(asked) {}

  LinkLog Read() {
    if (rows_.empty()) FailAt(file_, 0, "the file has no rows");
    Setting();
    for (const RcclRow& row : rows_) {
      if (Number(row, "inplace") != 0) continue;
      NcclTestsRow read{Number(row, "size"),
                        1e-6 * Number(row, "time"),
                        Number(row, "algbw"),
                        Number(row, "busbw"),
                        {}};
      if (Text(row, "#wrong") != "N/A") read.wrong = Number(row, "#wrong");
      AddRow(file_, row.line->number, "", read, log_);
    }
    if (log_.samples.empty())
      FailAt(file_, 0, "no row of more than 0 bytes is out of place: expected a run without -O 0");
    return std::move(log_);
  }

 private:
  void Setting() {
    const RcclRow& first = rows_.front();
    const std::string collective = Text(first, "collective");
    const auto* const known = std::ranges::find(
        kRcclPrograms, collective, &std::pair<std::string_view, std::string_view>::first);
    if (known == std::end(kRcclPrograms)) {
      FailAt(file_, first.line->number,
             fmt::format("\"{}\": expected AllReduce, AllGather or SendRecv", collective));
    }
    SetOperation(file_, known->second, asked_, log_);
    for (const RcclRow& row : rows_) {
      if (Text(row, "collective") != collective)
        FailAt(file_, row.line->number, "a second run begins: expected one run in a file");
    }
    const bool mpi = first.values.contains("ranks");
    const double ranks =
        mpi ? Number(first, "ranks") * Number(first, "gpusperrank") : Number(first, "gpus");
    constexpr double kMostRanks = 1 << 20;
    if (!(ranks >= 1 && ranks <= kMostRanks))
      FailAt(file_, first.line->number, fmt::format("{:g} ranks: expected at least 1", ranks));
    log_.ranks = SaidOrAsked(file_, log_, "ranks", static_cast<int>(ranks), asked_.ranks);
    // The number of nodes in these files is that of the groups of ranks, which is 1 for any run of
    // one group.
    log_.nodes = SaidOrAsked(file_, log_, "nodes", mpi ? 0 : 1, asked_.nodes);
  }

  std::string Text(const RcclRow& row, const std::string& key) const {
    const auto found = row.values.find(key);
    if (found == row.values.end())
      FailAt(file_, row.line->number, fmt::format("no {}: expected one in each row", key));
    return found->second;
  }
  double Number(const RcclRow& row, const std::string& key) const {
    return NumberAt(file_, *row.line, Text(row, key), key);
  }

  const std::vector<RcclRow> rows_;
  const std::string& file_;
  const AskedOfLog& asked_;
  LinkLog log_;
};

bool IsObject(const LogLine& line) {
  return line.text.starts_with('{') && line.text.find("\"busBw\":") != std::string_view::npos;
}

}  // namespace

bool IsOfRcclTests(const LogText& log) {
  return std::ranges::any_of(
      log.lines, [](const LogLine& line) { return IsHeader(line.text) || IsObject(line); });
}

LinkLog ReadRcclTests(const LogText& log, std::string_view text, const std::string& file,
                      const AskedOfLog& asked) {
  const bool is_json = std::ranges::any_of(log.lines, IsObject);
  LinkLog read =
      RcclReader(is_json ? RowsOfJson(log, file) : RowsOfCsv(log, file), file, asked).Read();
  read.file = file;
  read.sha256 = Sha256Hex(text);
  read.notes = log.notes;
  return read;
}

}  // namespace sparfuse::harness
