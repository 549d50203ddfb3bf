// Reads the output of the OSU micro-benchmarks (versions 3 to 7) and of IMB-MPI1.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/clusters/imported/link_log_readers.hpp"
#include "harness/files/canonical.hpp"

namespace sparfuse::harness {
namespace {

struct OsuProgram {
  std::string_view title;
  const char* name;
  LinkOperation operation;
};
constexpr OsuProgram kOsuPrograms[] = {
    {"Latency Test", "osu_latency", LinkOperation::kLatency},
    {"Bandwidth Test", "osu_bw", LinkOperation::kBandwidth},
    {"Allreduce Latency Test", "osu_allreduce", LinkOperation::kAllReduce},
    {"Allgather Latency Test", "osu_allgather", LinkOperation::kAllGather}};

// "# OSU MPI Latency Test v7.5"; osu_xccl prints "NCCL-CUDA", "RCCL-ROCM" and the like.
constexpr std::string_view kOsuHead = "# OSU ";
constexpr std::string_view kMpi = "MPI", kXccl[] = {"NCCL", "RCCL", "XCCL", "HCCL", "OneCCL"};

// Names of columns, which may contain single spaces: "Avg Latency(us)", "Bandwidth (MB/s)".
std::vector<std::string> ColumnsOf(std::string_view head) {
  std::vector<std::string> columns;
  while (!head.empty()) {
    const std::size_t begin = head.find_first_not_of(" \t");
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min({head.find("  ", begin), head.find('\t', begin), head.size()});
    columns.emplace_back(head.substr(begin, end - begin));
    head.remove_prefix(end);
  }
  return columns;
}

class OsuTable {
 public:
  OsuTable(const std::vector<LogLine>& lines, bool whole, const std::string& file,
           const AskedOfLog& asked)
      : file_(file), asked_(asked), lines_(lines), whole_(whole) {
    log_.verified = false;
  }

  LinkLog Read() {
    for (const LogLine& line : lines_) {
      if (IsTitle(line.text)) {
        Title(line);
      } else if (line.text.starts_with("# Size")) {
        Header(line);
      } else if (!columns_.empty() && line.text.front() >= '0' && line.text.front() <= '9') {
        Row(line);
      }
    }
    if (log_.program.empty())
      FailAt(file_, 0,
             "no output of an OSU micro-benchmark: expected \"# OSU MPI ... Test v...\" or, of "
             "osu_xccl, \"# OSU NCCL-CUDA ... Test v...\"; of IMB-MPI1, its whole output");
    if (log_.samples.empty()) FailAt(file_, lines_.back().number, "the table has no rows");
    if (!whole_) {
      FailAt(file_, lines_.back().number,
             "the last line does not end: was the log cut off? If it is whole, end its last line");
    }
    return std::move(log_);
  }

 private:
  static bool IsTitle(std::string_view line) {
    return line.starts_with(kOsuHead) && line.find(" Test v") != std::string_view::npos;
  }

  // Reads "# OSU MPI-CUDA Allreduce Latency Test v7.0".
  void Title(const LogLine& line) {
    if (!log_.program.empty())
      FailAt(file_, line.number, "a second run begins: expected one run in a file");
    std::string_view title = line.text.substr(kOsuHead.size());
    const std::string_view library = title.substr(0, title.find(' '));
    const bool xccl = std::ranges::any_of(
        kXccl, [&](std::string_view each) { return library.starts_with(each); });
    if (!xccl && !library.starts_with(kMpi)) {
      FailAt(file_, line.number,
             fmt::format("a test of \"{}\": expected MPI or one of {}", library,
                         fmt::join(kXccl, ", ")));
    }
    title.remove_prefix(library.size());
    if (title.starts_with(' ')) title.remove_prefix(1);
    title = title.substr(0, title.rfind(" v"));
    const auto found = std::ranges::find(kOsuPrograms, title, &OsuProgram::title);
    if (found == std::end(kOsuPrograms)) {
      FailAt(file_, line.number,
             fmt::format("\"{}\": expected osu_latency, osu_bw, osu_allreduce or osu_allgather",
                         title));
    }
    log_.program = found->name;
    if (xccl) log_.program.replace(0, 3, "osu_xccl");
    log_.operation = found->operation;
    const bool pair = log_.operation >= LinkOperation::kLatency;
    log_.ranks = SaidOrAsked(file_, log_, "ranks", pair ? 2 : 0, asked_.ranks);
    log_.nodes = SaidOrAsked(file_, log_, "nodes", 0, asked_.nodes);
  }

  void Header(const LogLine& line) {
    if (log_.program.empty()) return;
    columns_ = ColumnsOf(line.text.substr(std::string_view("# Size").size()));
    const bool rate = log_.operation == LinkOperation::kBandwidth;
    const std::string_view unit = rate ? "(MB/s)" : "(us)";
    if (columns_.empty() || !columns_.front().ends_with(unit)) {
      FailAt(file_, line.number,
             fmt::format("column \"{}\": expected a {} in {}",
                         columns_.empty() ? "" : columns_.front(), rate ? "bandwidth" : "latency",
                         unit));
    }
  }

  void Row(const LogLine& line) {
    const auto words = WordsOf(line.text);
    if (words.size() != columns_.size() + 1) {
      FailAt(file_, line.number,
             fmt::format("{} columns: expected {}; was the log cut off?", words.size(),
                         columns_.size() + 1));
    }
    if (std::ranges::count(columns_, "Validation") > 0) {
      log_.verified = true;
      if (words.back() != "Pass") {
        FailAt(file_, line.number,
               fmt::format("Validation = {}: the results are wrong; expected Pass", words.back()));
      }
    }
    double bytes = NumberAt(file_, line, words[0], "Size");
    const double value = NumberAt(file_, line, words[1], columns_.front());
    const bool rate = log_.operation == LinkOperation::kBandwidth;
    if (log_.operation == LinkOperation::kAllGather) bytes *= log_.ranks;  // Size is a rank's part
    if (rate && value == 0) return;  // the rate rounds to nothing
    AddSample(file_, line.number, {bytes, rate ? bytes / (1e6 * value) : 1e-6 * value}, log_);
  }

  const std::string& file_;
  const AskedOfLog& asked_;
  const std::vector<LogLine>& lines_;
  bool whole_;
  LinkLog log_;
  std::vector<std::string> columns_;
};

// The benchmarks of IMB-MPI1, whose tables have "#bytes #repetitions" and times in microseconds.
constexpr OsuProgram kImbPrograms[] = {
    {"PingPong", "IMB-MPI1 PingPong", LinkOperation::kLatency},
    {"Allreduce", "IMB-MPI1 Allreduce", LinkOperation::kAllReduce},
    {"Allgather", "IMB-MPI1 Allgather", LinkOperation::kAllGather}};

LinkLog ReadImb(const std::vector<LogLine>& lines, const std::string& file,
                const AskedOfLog& asked) {
  constexpr std::string_view kBenchmark = "# Benchmarking ", kProcesses = "# #processes = ";
  LinkLog log;
  log.verified = false;
  int processes = 0;
  std::size_t time = 0, columns = 0;
  for (const LogLine& line : lines) {
    if (line.text.starts_with(kBenchmark)) {
      if (!log.program.empty()) {
        FailAt(file, line.number,
               fmt::format("a second benchmark after {}: expected one benchmark in a file",
                           log.program));
      }
      const std::string_view name = WordsOf(line.text.substr(kBenchmark.size())).front();
      const auto found = std::ranges::find(kImbPrograms, name, &OsuProgram::title);
      if (found == std::end(kImbPrograms)) {
        FailAt(file, line.number,
               fmt::format("\"{}\" of IMB-MPI1: expected PingPong, Allreduce or Allgather", name));
      }
      log.program = found->name;
      log.operation = found->operation;
    } else if (line.text.starts_with(kProcesses) && !log.program.empty()) {
      const std::string_view given = WordsOf(line.text.substr(kProcesses.size())).front();
      const double count = NumberAt(file, line, given, "#processes");
      if (!(count >= 1 && count <= 1e6)) {
        FailAt(file, line.number,
               fmt::format("#processes = {}: expected a number from 1 to 1000000", given));
      }
      processes = static_cast<int>(count);
    } else if (line.text.starts_with("#bytes") && !log.program.empty()) {
      const auto words = WordsOf(line.text);
      const auto found = std::ranges::find_if(
          words, [](std::string_view word) { return word == "t_avg[usec]" || word == "t[usec]"; });
      if (found == words.end())
        FailAt(file, line.number, "no column t_avg[usec] or t[usec]: expected one of them");
      if (log.ranks > 0)
        FailAt(file, line.number,
               "a second table: expected one table in a file; -npmin leaves the others out");
      time = static_cast<std::size_t>(found - words.begin());
      columns = words.size();
      log.ranks = SaidOrAsked(file, log, "ranks", processes, asked.ranks);
      log.nodes = SaidOrAsked(file, log, "nodes", 0, asked.nodes);
    } else if (columns > 0 && line.text.front() >= '0' && line.text.front() <= '9') {
      const auto words = WordsOf(line.text);
      if (words.size() != columns) {
        FailAt(file, line.number,
               fmt::format("{} columns: expected {}; was the log cut off?", words.size(), columns));
      }
      const double parts = log.operation == LinkOperation::kAllGather ? log.ranks : 1;
      const double bytes = parts * NumberAt(file, line, words[0], "#bytes");
      const double us = NumberAt(file, line, words[time], "t_avg[usec]");
      if (bytes > 0) AddSample(file, line.number, {bytes, 1e-6 * us}, log);
    }
  }
  if (log.samples.empty())
    FailAt(file, lines.back().number, "no table of IMB-MPI1: expected \"#bytes #repetitions ...\"");
  return log;
}

}  // namespace

LinkLog ReadOsu(std::string_view text, const std::string& file, const AskedOfLog& asked) {
  const std::string decoded = DecodedLog(text, file, "any");
  LogText lines = LinesOfLog(decoded);
  const bool imb = std::ranges::any_of(lines.lines, [](const LogLine& line) {
    return line.text.starts_with("#") &&
           line.text.find("MPI Benchmarks") != std::string_view::npos &&
           line.text.find("Intel") != std::string_view::npos;
  });
  LinkLog log = imb ? ReadImb(lines.lines, file, asked)
                    : OsuTable(lines.lines, decoded.ends_with('\n'), file, asked).Read();
  log.file = file;
  log.sha256 = Sha256Hex(text);
  log.notes = std::move(lines.notes);
  return log;
}

}  // namespace sparfuse::harness
