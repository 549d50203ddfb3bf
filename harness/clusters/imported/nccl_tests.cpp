// Reads the table that nccl-tests prints (src/util.cu: writeDeviceReport, writeResultHeader,
// writeBenchmarkLineBody, writeResultFooter), and the JSON that it writes with -J (version 2 of the
// form). Reads, too, the files that rccl-tests writes with -x and -Z csv or json: a line a size,
// out of place and in place. Older versions write objects without a list around them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.hpp"
#include "harness/clusters/imported/link_log_readers.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/csv_reader.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kColumns = "size count type redop root time algbw busbw #wrong";

struct NcclProgram {
  std::string_view name;
  LinkOperation operation;
};
constexpr NcclProgram kNcclPrograms[] = {{"all_reduce_perf", LinkOperation::kAllReduce},
                                         {"all_gather_perf", LinkOperation::kAllGather},
                                         {"sendrecv_perf", LinkOperation::kSendReceive}};

// The unit below a column; "" if it has none.
std::string_view UnitOf(std::string_view column) {
  if (column == "size") return "(B)";
  if (column == "count") return "(elements)";
  if (column == "algbw" || column == "busbw") return "(GB/s)";
  if (column == "i_cv%") return "(%)";
  if (column == "time" || column.starts_with("i_")) return "(us)";
  return "";
}

// The row of a size, out of place. Rates are as printed: 10^9 bytes a second.
struct NcclTestsRow {
  double bytes = 0, seconds = 0, algorithm_gbytes = 0, bus_gbytes = 0;
  std::optional<double> wrong;  // elements; nothing: not compared (-c 0)
};

// Sets the operation from the program's name ("all_reduce_perf_mpi"), or from `asked` if the log
// does not name it. Throws Error{kConfig} for other programs.
void SetOperation(const std::string& file, std::string_view program, const AskedOfLog& asked,
                  LinkLog& log) {
  const std::size_t slash = program.rfind('/');
  if (slash != std::string_view::npos) program.remove_prefix(slash + 1);
  for (const NcclProgram& each : kNcclPrograms) {
    const bool said = !program.empty() && program.starts_with(each.name);
    if (!said && (!program.empty() || asked.operation != each.operation)) continue;
    log.program = each.name;
    log.operation = each.operation;
    return;
  }
  if (program.empty()) {
    FailAt(file, 0,
           "the log does not name its program: expected --operation all-reduce, all-gather or "
           "send-receive");
  }
  FailAt(file, 0,
         fmt::format("{}: expected all_reduce_perf, all_gather_perf or sendrecv_perf", program));
}

// Adds the row to a log that states its ranks. `where`: a key of JSON with line 0, or a line.
// Throws Error{kConfig} for wrong results, and for rates that are not size over time.
void AddRow(const std::string& file, int line, const std::string& where, const NcclTestsRow& row,
            LinkLog& log) {
  const auto fail = [&](const std::string& message) {
    FailAt(file, line, (where.empty() ? "" : where + ": ") + message);
  };
  if (row.bytes == 0) return;  // a size below one byte a rank, for which an all-gather does nothing
  if (row.wrong && *row.wrong != 0) {
    fail(fmt::format(
        "#wrong = {:g}: the results are wrong, and their times mean nothing; expected 0",
        *row.wrong));
  }
  log.verified = log.verified && row.wrong.has_value();
  const LinkSample sample{row.bytes, row.seconds};
  AddSample(file, line, sample, log);
  // Rates are printed with two decimals; larger ones have at least four digits.
  const auto far = [](double printed, double computed, double decimals) {
    return std::abs(printed - computed) > 0.01 * computed + decimals;
  };
  const double algorithm = 1e-9 * row.bytes / row.seconds;
  if (far(row.algorithm_gbytes, algorithm, 0.006)) {
    fail(
        fmt::format("algbw = {:g} GB/s, and {:g} bytes in {:g} us are {:.4g}: expected sizes in "
                    "bytes, times in us and rates in 10^9 bytes a second",
                    row.algorithm_gbytes, row.bytes, 1e6 * row.seconds, algorithm));
  }
  const double bus = 1e-9 * log.BusBandwidth(sample);
  if (far(row.bus_gbytes, bus, 0.012)) {
    fail(
        fmt::format("busbw = {:g} GB/s, and {} of {} ranks has {:.4g} of {:.4g}: expected the "
                    "log's own number of ranks and operation",
                    row.bus_gbytes, log.program, log.ranks, bus, algorithm));
  }
}

class NcclTable {
 public:
  NcclTable(const std::vector<LogLine>& lines, const std::string& file, const AskedOfLog& asked)
      : file_(file), asked_(asked), lines_(lines) {}

  LinkLog Read() {
    for (const LogLine& line : lines_) {
      if (line.text.front() == '#') {
        Comment(line, line.text.substr(1));
      } else if (!columns_.empty() && IsRow(line.text)) {
        rows_.push_back(line);
      }
    }
    if (runs_ > 1) FailAt(file_, second_run_, "a second run begins: expected one run in a file");
    if (columns_.empty())
      FailAt(file_, 0, fmt::format("no table of nccl-tests: expected a line \"# {}\"", kColumns));
    if (!units_) FailAt(file_, header_, "no line of units below: expected (B) (elements) (us) ...");
    SetOperation(file_, program_, asked_, log_);
    log_.ranks = SaidOrAsked(file_, log_, "ranks", static_cast<int>(ranks_.size()), asked_.ranks);
    // Two ranks that share a card of one host are really on several nodes with equal names.
    const auto hosts = static_cast<int>(hosts_.size());
    if (same_card_ && asked_.nodes == 0) {
      FailAt(file_, 0,
             fmt::format("two ranks have the same device of one host, so nodes have equal names: "
                         "expected --nodes N, of more than {}",
                         hosts));
    }
    const bool equal_names = same_card_ && asked_.nodes > hosts;
    log_.nodes = SaidOrAsked(file_, log_, "nodes", equal_names ? 0 : hosts, asked_.nodes);
    for (const LogLine& line : rows_) Row(line);
    const int last = lines_.back().number;
    if (!ended_) {
      FailAt(file_, last,
             "the log ends without \"# Out of bounds values\": it was cut off; expected the "
             "program's whole output");
    }
    if (log_.samples.empty()) FailAt(file_, last, "the table has no rows");
    return std::move(log_);
  }

 private:
  // A line of NCCL itself begins with a host's name, which may begin with a digit.
  static bool IsRow(std::string_view line) {
    const std::size_t end = line.find_first_of(" \t");
    return line.substr(0, end).find_first_not_of("0123456789.eE+") == std::string_view::npos &&
           line.front() >= '0' && line.front() <= '9';
  }

  void Comment(const LogLine& line, std::string_view text) {
    const auto words = WordsOf(text);
    if (words.empty()) return;
    constexpr std::string_view kStarting = "Collective test starting:";
    if (const auto at = text.find(kStarting); at != std::string_view::npos) {
      program_ = WordsOf(text.substr(at + kStarting.size())).empty()
                     ? ""
                     : std::string(WordsOf(text.substr(at + kStarting.size())).front());
    } else if (words[0] == "nThread") {
      if (++runs_ == 2) second_run_ = line.number;
    } else if (words[0] == "Rank") {
      Rank(line, words);
    } else if (words[0] == "size") {
      Header(line, words);
    } else if (words[0].front() == '(') {
      Units(line, words);
    } else if (text.find("Out of bounds values") != std::string_view::npos) {
      ended_ = true;
      if (words.back() != "OK")
        FailAt(file_, line.number, fmt::format("{}: its results are wrong; expected 0 OK", text));
    }
  }

  // "Rank  0 Group  0 Pid 1887 on worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3"
  void Rank(const LogLine& line, const std::vector<std::string_view>& words) {
    const auto after = [&](std::string_view word) {
      const auto found = std::ranges::find(words, word);
      return found == words.end() || found + 1 == words.end() ? std::string_view() : *(found + 1);
    };
    if (const auto group = after("Group"); !group.empty() && group != "0") {
      FailAt(file_, line.number,
             fmt::format("group {}: ranks in several groups (NCCL_TESTS_SPLIT) run side by side; "
                         "expected one group",
                         group));
    }
    // A second run repeats its ranks after a row. Processes without MPI print theirs at once.
    if (!ranks_.insert(std::string(after("Rank"))).second && rows_.empty()) {
      FailAt(file_, line.number,
             fmt::format("rank {} for the second time: each process ran alone, since nccl-tests "
                         "was built without MPI; expected a build with MPI=1",
                         after("Rank")));
    }
    hosts_.insert(std::string(after("on")));
    const std::string card = fmt::format("{} {}", after("on"), after("device"));
    same_card_ = same_card_ || !cards_.insert(card).second;
  }

  void Header(const LogLine& line, const std::vector<std::string_view>& words) {
    if (!columns_.empty()) return;
    header_ = line.number;
    columns_.assign(words.begin(), words.end());
    if (Column("cputime")) {
      FailAt(file_, line.number,
             "a column cputime: the run had -C 1 and timed the processor; expected time");
    }
    for (const char* needed : {"time", "algbw", "busbw"}) {
      if (Column(needed)) continue;
      FailAt(file_, line.number, fmt::format("no column {}: expected \"# {}\"", needed, kColumns));
    }
    if (!Column("#wrong") && !Column("error"))
      FailAt(file_, line.number, fmt::format("no column #wrong: expected \"# {}\"", kColumns));
  }

  void Units(const LogLine& line, const std::vector<std::string_view>& words) {
    if (columns_.empty() || units_) return;
    units_ = true;
    std::size_t next = 0;
    for (const std::string& column : columns_) {
      const std::string_view expected = UnitOf(column);
      if (expected.empty()) continue;
      const std::string_view given = next < words.size() ? words[next] : "nothing";
      ++next;
      if (given == expected) continue;
      FailAt(file_, line.number, fmt::format("{} is in {}: expected {}", column, given, expected));
    }
  }

  // The first column of this name: columns out of place come before columns in place.
  std::optional<std::size_t> Column(std::string_view name) const {
    const auto found = std::ranges::find(columns_, name);
    if (found == columns_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns_.begin());
  }

  void Row(const LogLine& line) {
    const auto words = WordsOf(line.text);
    // A time stamp (-T) is two words, after the row.
    const bool stamped = columns_.back() == "timestamp";
    if (words.size() != columns_.size() + (stamped ? 1 : 0)) {
      if (const std::size_t info = line.text.find("NCCL "); info != std::string_view::npos) {
        FailAt(file_, line.number,
               fmt::format("\"{}\" is within the row: expected NCCL_DEBUG unset, or its output in "
                           "NCCL_DEBUG_FILE",
                           line.text.substr(info, 40)));
      }
      FailAt(file_, line.number,
             fmt::format("{} columns: expected {}, as in line {}; was the log cut off?",
                         words.size(), columns_.size(), header_));
    }
    const auto number = [&](const char* column) {
      return NumberAt(file_, line, words[*Column(column)], column);
    };
    NcclTestsRow row{number("size"), 1e-6 * number("time"), number("algbw"), number("busbw"), {}};
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c] != "#wrong" || words[c] == "N/A") continue;
      const double wrong = NumberAt(file_, line, words[c], "#wrong");
      row.wrong = std::max(wrong, row.wrong.value_or(0));
    }
    // Some versions print the largest error instead. There the last line of the log judges.
    if (!Column("#wrong")) row.wrong = 0;
    AddRow(file_, line.number, "", row, log_);
  }

  const std::string& file_;
  const AskedOfLog& asked_;
  const std::vector<LogLine>& lines_;
  std::vector<LogLine> rows_;
  LinkLog log_;
  std::string program_;
  int runs_ = 0, second_run_ = 0, header_ = 0;
  std::set<std::string> ranks_, hosts_, cards_;
  std::vector<std::string> columns_;
  bool units_ = false, ended_ = false, same_card_ = false;
};

class NcclJson {
 public:
  NcclJson(const json& root, const std::string& file) : root_(root), file_(file) {}

  const json& Need(const std::string& key, const char* expected) const {
    const json::json_pointer at(key);
    if (!root_.contains(at)) Fail(key, fmt::format("is missing: expected {}", expected));
    return root_.at(at);
  }
  double Number(const std::string& key) const {
    const json& value = Need(key, "a number");
    if (!value.is_number() || value.get<double>() < 0) Fail(key, "expected a number");
    return value.get<double>();
  }
  std::string String(const std::string& key) const {
    const json& value = Need(key, "a string");
    if (!value.is_string()) Fail(key, "expected a string");
    return value.get<std::string>();
  }
  std::size_t Length(const std::string& key) const {
    const json& list = Need(key, "a list");
    if (!list.is_array() || list.empty()) Fail(key, "expected a list that is not empty");
    return list.size();
  }
  [[noreturn]] void Fail(const std::string& key, const std::string& message) const {
    FailAt(file_, 0, key + ": " + message);
  }

 private:
  const json& root_;
  const std::string& file_;
};

json Parsed(std::string_view text, const std::string& file) {
  try {
    return ParseJson(text, file);
  } catch (const Error& error) {  // the file was cut off, say
    SPARFUSE_THROW(kConfig, error.what());
  }
}

// Reads the form that -J writes.
LinkLog ReadNcclTestsJson(std::string_view text, const std::string& file, const AskedOfLog& asked) {
  const json root = Parsed(text, file);
  const NcclJson in(root, file);
  LinkLog log;
  if (!root.is_object() || !root.contains("args")) {
    SPARFUSE_THROW(kConfig,
                   file +
                       ": JSON without \"args\": expected the file that nccl-tests itself writes "
                       "with -J, which names the program; for another program, its table");
  }
  SetOperation(file, in.String("/args/0"), asked, log);
  // Each entry is a process, which may have several threads with several cards each.
  const std::size_t processes = in.Length("/config/devices");
  const double each = in.Number("/config/nthreads") * in.Number("/config/ngpus");
  constexpr double kMostRanks = 1 << 20;
  const double ranks = static_cast<double>(processes) * each;
  if (!(ranks >= 1 && ranks <= kMostRanks)) in.Fail("/config/ngpus", "expected at least 1");
  std::set<std::string> hosts;
  for (std::size_t d = 0; d < processes; ++d) {
    const std::string device = fmt::format("/config/devices/{}", d);
    hosts.insert(in.String(device + "/hostname"));
    if (in.Number(device + "/group") != 0) in.Fail(device + "/group", "expected one group, 0");
  }
  log.ranks = SaidOrAsked(file, log, "ranks", static_cast<int>(ranks), asked.ranks);
  log.nodes = SaidOrAsked(file, log, "nodes", static_cast<int>(hosts.size()), asked.nodes);
  const std::size_t rows = in.Length("/results");
  for (std::size_t r = 0; r < rows; ++r) {
    const std::string row = fmt::format("/results/{}", r);
    const std::string times = row + "/out_of_place";
    if (root.contains(json::json_pointer(times + "/cpu_time"))) {
      in.Fail(times + "/cpu_time",
              "the run had -C 1 and timed the processor; expected the key time");
    }
    NcclTestsRow read{in.Number(row + "/size"),
                      1e-6 * in.Number(times + "/time"),
                      in.Number(times + "/alg_bw"),
                      in.Number(times + "/bus_bw"),
                      {}};
    if (!in.Need(times + "/nwrong", "a number or null").is_null())
      read.wrong = in.Number(times + "/nwrong");
    AddRow(file, 0, row, read, log);
  }
  if (in.Number("/out_of_bounds/count") != 0)
    in.Fail("/out_of_bounds/count", "the results are wrong; expected 0");
  if (log.samples.empty()) in.Fail("/results", "expected rows of more than 0 bytes");
  return log;
}

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

// Whether the lines are a file that rccl-tests itself writes (-x), as CSV or JSON (-Z).
bool IsOfRcclTests(const LogText& log) {
  return std::ranges::any_of(
      log.lines, [](const LogLine& line) { return IsHeader(line.text) || IsObject(line); });
}

LinkLog ReadRcclTests(const LogText& log, const std::string& file, const AskedOfLog& asked) {
  const bool is_json = std::ranges::any_of(log.lines, IsObject);
  return RcclReader(is_json ? RowsOfJson(log, file) : RowsOfCsv(log, file), file, asked).Read();
}

// The JSON of nccl-tests, or its table. The JSON may follow lines of NCCL or of the launcher.
LinkLog ReadJsonOrTable(const std::vector<LogLine>& lines, const std::string& file,
                        const AskedOfLog& asked) {
  const auto opens = [](const LogLine& line) { return line.text.starts_with('{'); };
  const auto closes = [](const LogLine& line) { return line.text.ends_with('}'); };
  const auto begin = std::ranges::find_if(lines, opens);
  if (begin == lines.end()) return NcclTable(lines, file, asked).Read();
  auto end = lines.end();
  while (end != begin && !closes(*(end - 1))) --end;
  if (end == begin) end = lines.end();
  std::string object;
  for (auto line = begin; line != end; ++line) object += fmt::format("{}\n", line->text);
  return ReadNcclTestsJson(object, file, asked);
}

}  // namespace

LinkLog ReadNcclTests(std::string_view text, const std::string& file, const AskedOfLog& asked) {
  const std::string decoded = DecodedLog(text, file, "any");
  LogText log = LinesOfLog(decoded);
  LinkLog read = IsOfRcclTests(log) ? ReadRcclTests(log, file, asked)
                                    : ReadJsonOrTable(log.lines, file, asked);
  read.file = file;
  read.sha256 = Sha256Hex(text);
  read.notes = std::move(log.notes);
  return read;
}

}  // namespace sparfuse::harness
