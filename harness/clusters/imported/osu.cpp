// Reads what the OSU micro-benchmarks print (versions 3 to 7).
#include <fmt/format.h>

#include <algorithm>

#include "harness/clusters/imported/imported_links.hpp"
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

constexpr std::string_view kOsuHead = "# OSU MPI";

// Names of columns, which single spaces may be within: "Avg Latency(us)", "Bandwidth (MB/s)".
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
  OsuTable(std::string_view text, const std::string& file, const AskedOfLog& asked)
      : file_(file), asked_(asked), lines_(LinesOf(text)), whole_(text.ends_with('\n')) {
    log_.file = file;
    log_.sha256 = Sha256Hex(text);
    log_.verified = false;
  }

  LinkLog Read() {
    for (const LogLine& line : lines_) {
      if (line.text.starts_with(kOsuHead)) {
        Title(line);
      } else if (line.text.starts_with("# Size")) {
        Header(line);
      } else if (!columns_.empty() && line.text.front() >= '0' && line.text.front() <= '9') {
        Row(line);
      }
    }
    if (log_.program.empty())
      FailAt(file_, 0, "no output of an OSU micro-benchmark: expected \"# OSU MPI ... Test v...\"");
    if (log_.samples.empty()) FailAt(file_, lines_.back().number, "the table has no rows");
    if (!whole_) {
      FailAt(file_, lines_.back().number,
             "the last line does not end: was the log cut off? If it is whole, end it");
    }
    return std::move(log_);
  }

 private:
  // "# OSU MPI-CUDA Allreduce Latency Test v7.0"
  void Title(const LogLine& line) {
    if (!log_.program.empty())
      FailAt(file_, line.number, "a second run begins: expected one a file");
    std::string_view title = line.text.substr(kOsuHead.size());
    title.remove_prefix(std::min(title.find(' '), title.size()));
    if (title.starts_with(' ')) title.remove_prefix(1);
    title = title.substr(0, title.rfind(" v"));
    const auto found = std::ranges::find(kOsuPrograms, title, &OsuProgram::title);
    if (found == std::end(kOsuPrograms)) {
      FailAt(file_, line.number,
             fmt::format("\"{}\": expected osu_latency, osu_bw, osu_allreduce or osu_allgather",
                         title));
    }
    log_.program = found->name;
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
    if (rate && value == 0) return;  // sizes whose rate rounds to nothing
    AddSample(file_, line.number, {bytes, rate ? bytes / (1e6 * value) : 1e-6 * value}, log_);
  }

  const std::string& file_;
  const AskedOfLog& asked_;
  std::vector<LogLine> lines_;
  bool whole_;
  LinkLog log_;
  std::vector<std::string> columns_;
};

}  // namespace

LinkLog ReadOsu(std::string_view text, const std::string& file, const AskedOfLog& asked) {
  return OsuTable(text, file, asked).Read();
}

}  // namespace sparfuse::harness
