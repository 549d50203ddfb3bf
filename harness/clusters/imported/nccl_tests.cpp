// Reads the table that nccl-tests prints (src/util.cu: writeDeviceReport, writeResultHeader,
// writeBenchmarkLineBody, writeResultFooter), and the JSON that it writes with -J (version 2 of the
// form).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.hpp"
#include "harness/clusters/imported/link_log_readers.hpp"
#include "harness/files/canonical.hpp"
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

class NcclTable {
 public:
  NcclTable(std::string_view text, const std::string& file, const AskedOfLog& asked)
      : file_(file), asked_(asked), decoded_(DecodedLog(text, file, "any")) {
    LogText log = LinesOfLog(decoded_);
    lines_ = std::move(log.lines);
    log_.notes = std::move(log.notes);
    log_.file = file;
    log_.sha256 = Sha256Hex(text);
  }

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
  std::string decoded_;
  std::vector<LogLine> lines_, rows_;
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
  log.file = file;
  log.sha256 = Sha256Hex(text);
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

}  // namespace

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

LinkLog ReadNcclTests(std::string_view text, const std::string& file, const AskedOfLog& asked) {
  // The table may follow lines of NCCL or of the launcher.
  const std::string decoded = DecodedLog(text, file, "any");
  const LogText log = LinesOfLog(decoded);
  if (IsOfRcclTests(log)) return ReadRcclTests(log, text, file, asked);
  const auto opens = [](const LogLine& line) { return line.text.starts_with('{'); };
  const auto closes = [](const LogLine& line) { return line.text.ends_with('}'); };
  const auto begin = std::ranges::find_if(log.lines, opens);
  if (begin == log.lines.end()) return NcclTable(text, file, asked).Read();
  auto end = log.lines.end();
  while (end != begin && !closes(*(end - 1))) --end;
  if (end == begin) end = log.lines.end();
  std::string object;
  for (auto line = begin; line != end; ++line) object += fmt::format("{}\n", line->text);
  LinkLog read = ReadNcclTestsJson(object, file, asked);
  read.sha256 = Sha256Hex(text);
  read.notes = log.notes;
  return read;
}

}  // namespace sparfuse::harness
