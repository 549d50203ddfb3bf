#include "harness/clusters/imported/link_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/base/error.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::string_view WithoutTag(std::string_view text) {
  constexpr std::string_view kEnd = "<stdout>:";
  const std::size_t end = text.find(kEnd);
  if (!text.starts_with('[') || end == std::string_view::npos) return text;
  const std::string_view tag = text.substr(0, end);
  const bool is_tag = tag.find_first_not_of("[]0123456789,") == std::string_view::npos;
  return is_tag ? Trimmed(text.substr(end + kEnd.size())) : text;
}

LinkLog LogOf(const std::string& file, const std::string& sha256, const char* program,
              LinkOperation operation, int ranks, int nodes) {
  LinkLog log;
  log.file = file;
  log.sha256 = sha256;
  log.program = program;
  log.operation = operation;
  log.ranks = ranks;
  log.nodes = nodes;
  return log;
}

// A message of no bytes takes as long as one of a byte.
void AddCurve(const ProfileCurve& curve, LinkLog& log) {
  for (const ProfilePoint& point : curve)
    log.samples.push_back({std::max(1.0, point.size), point.seconds});
}

}  // namespace

double LinkLog::BusBandwidth(const LinkSample& sample) const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const double factor = operation == LinkOperation::kAllReduce   ? 2 * others
                        : operation == LinkOperation::kAllGather ? others
                                                                 : 1;
  return factor * sample.bytes / sample.seconds;
}

std::string LinkLog::Source() const {
  return fmt::format("{} of {} ranks on {} node{}: {}, sha256 {}", program, ranks, nodes,
                     nodes == 1 ? "" : "s", std::filesystem::path(file).filename().string(),
                     sha256);
}

std::vector<LogLine> LinesOf(std::string_view text) {
  std::vector<LogLine> lines;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    const std::string_view line = WithoutTag(Trimmed(text.substr(0, end)));
    if (!line.empty()) lines.push_back({number, line});
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<std::string_view> WordsOf(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return words;
}

void FailAt(const std::string& file, int line, std::string_view message) {
  SPARFUSE_THROW(kConfig, line > 0 ? fmt::format("{}:{}: {}", file, line, message)
                                   : fmt::format("{}: {}", file, message));
}

double NumberAt(const std::string& file, const LogLine& line, std::string_view word,
                std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc() && end == word.data() + word.size() && std::isfinite(value) &&
      value >= 0) {
    return value;
  }
  FailAt(file, line.number, fmt::format("{} = {}: expected a number", what, word));
}

void AddSample(const std::string& file, int line, LinkSample sample, LinkLog& log) {
  constexpr double kMostBytes = 1e15, kLeastSeconds = 1e-12, kMostSeconds = 1e3;
  if (sample.bytes > kMostBytes || sample.bytes != std::floor(sample.bytes))
    FailAt(file, line, fmt::format("{:g} bytes: expected a whole number up to 1e15", sample.bytes));
  if (!(sample.seconds >= kLeastSeconds && sample.seconds <= kMostSeconds)) {
    FailAt(file, line,
           fmt::format("{:g} bytes take {:g} us: expected a time from 1e-6 to 1e9", sample.bytes,
                       1e6 * sample.seconds));
  }
  if (!log.samples.empty() && sample.bytes <= log.samples.back().bytes) {
    FailAt(file, line,
           fmt::format("{} bytes after {}: expected sizes that grow, of one run, one type of "
                       "element and one operation a file",
                       sample.bytes, log.samples.back().bytes));
  }
  log.samples.push_back(sample);
}

int SaidOrAsked(const std::string& file, const LinkLog& log, const char* option, int said,
                int asked) {
  if (said == 0 && asked == 0) {
    FailAt(file, 0,
           fmt::format("the log of {} does not say on how many {} it ran: expected --{} N",
                       log.program, option, option));
  }
  if (said > 0 && asked > 0 && said != asked) {
    FailAt(file, 0,
           fmt::format("--{} {}, and the log of {} says {}: expected one of the two", option, asked,
                       log.program, said));
  }
  return said > 0 ? said : asked;
}

std::vector<LinkLog> ReadFingerprintLogs(const std::string& file) {
  const std::string sha256 = Sha256Hex(ReadFile(file));
  std::vector<LinkLog> logs;
  for (const ProfileOutcome& outcome : ReadProfiles(file)) {
    const int ranks = outcome.config.workers, per_node = outcome.config.ranks_per_node;
    const Profile& profile = outcome.profile;
    if (!outcome.is_fingerprint() || ranks < 2 || !profile.link) continue;
    const int nodes = (ranks + per_node - 1) / per_node;
    const auto add = [&](const char* program, LinkOperation operation, int of_ranks, int of_nodes,
                         const ProfileCurve& curve) {
      logs.push_back(LogOf(file, sha256, program, operation, of_ranks, of_nodes));
      AddCurve(curve, logs.back());
    };
    add("fingerprint's ring", LinkOperation::kSendReceive, ranks, nodes,
        profile.link->round_seconds);
    if (profile.node_link) {
      add("fingerprint's ring of a node", LinkOperation::kSendReceive, per_node, 1,
          profile.node_link->round_seconds);
    }
    if (profile.native_all_reduce.empty()) continue;
    add("fingerprint's all-reduce", LinkOperation::kAllReduce, ranks, nodes,
        profile.native_all_reduce);
  }
  if (logs.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: expected a fingerprint of two ranks or more, which "
                                        "`sparfuse system fingerprint` writes",
                                        file));
  }
  return logs;
}

}  // namespace sparfuse::harness
