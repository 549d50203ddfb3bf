#include "harness/clusters/imported/imported_links.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/base/error.hpp"
#include "harness/clusters/imported/link_log_readers.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/log_text.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::string_view kSpace = " \t\r";

constexpr double kSmallBytes = 64;
constexpr double kLargeBytes = 1 << 20;
constexpr double kImportedGbps = 1e9 / 8;  // bytes a second
constexpr double kImportedSpread = 1.05;   // spread of the kinds "imported" and "measured: trace"

bool IsBetweenNodes(const LinkLog& log) { return log.nodes > 1; }
bool IsOfOnePair(const LinkLog& log) { return log.operation >= LinkOperation::kSendReceive; }

void CheckFits(const DeclaredCluster& cluster, const LinkLog& log) {
  const auto fail = [&](const std::string& what) {
    SPARFUSE_THROW(
        kConfig, fmt::format("{}: {}, and cluster {} has {} nodes of {}: expected a log "
                             "of this cluster, or its nodes and ranks_per_node",
                             log.file, what, cluster.name, cluster.nodes, cluster.ranks_per_node));
  };
  if (log.ranks < 2) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: {} of one rank uses no link: expected two or more",
                                        log.file, log.program));
  }
  if (log.nodes > log.ranks) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}: {} nodes for {} ranks: expected at most as many nodes as ranks",
                               log.file, log.nodes, log.ranks));
  }
  if (log.nodes > cluster.nodes) fail(fmt::format("{} nodes", log.nodes));
  if (log.ranks > log.nodes * cluster.ranks_per_node)
    fail(fmt::format("{} ranks on {} node(s)", log.ranks, log.nodes));
}

// The network cards that the ranks of a node share. A pair uses one card.
double CardsOf(const DeclaredCluster& cluster, const LinkLog& log) {
  if (IsOfOnePair(log)) return 1;
  const double in_node = std::ceil(static_cast<double>(log.ranks) / log.nodes);
  return std::ceil(cluster.Value("network_cards") * in_node / cluster.ranks_per_node);
}

DeliveredRate RateOf(const DeclaredCluster& cluster, const LinkLog& log) {
  const LinkSample& largest = log.samples.back();
  DeliveredRate rate;
  rate.log = &log;
  rate.bytes = largest.bytes;
  rate.delivered = log.BusBandwidth(largest) / kImportedGbps;
  if (IsBetweenNodes(log)) {
    const double cards = CardsOf(cluster, log);
    rate.label =
        cards > 1 ? fmt::format("inter_node_gbps of {:g} network_cards", cards) : "inter_node_gbps";
    rate.nominal = cluster.Value("inter_node_gbps") * cards;
    rate.declared = std::min(rate.nominal * cluster.Value("inter_node_efficiency"),
                             cluster.Value("host_path_gbps"));
  } else {
    rate.label = "intra_node_gbps";
    rate.nominal = cluster.Value("intra_node_gbps");
    rate.declared = rate.nominal * cluster.Value("intra_node_efficiency");
  }
  if (rate.delivered > kImportedSpread * rate.nominal) {
    rate.conflict = fmt::format(
        "{}: {:.4g} Gbit/s, and {} is {:g}: the label is too low, or the log belongs to another "
        "link",
        log.file, rate.delivered, rate.label, rate.nominal);
  } else if (rate.delivered < 0.5 * rate.declared) {
    rate.conflict = fmt::format(
        "{}: {:.4g} Gbit/s is less than half of the {:.4g} that are declared as delivered ({} is "
        "{:g}): the link is slower than its label, it was shared, or the log belongs to another "
        "link",
        log.file, rate.delivered, rate.declared, rate.label, rate.nominal);
  }
  return rate;
}

// The start-up time from the smallest messages; nothing if they do not give the time of a hop.
std::optional<DeclaredInput> StartUpOf(const LinkLog& log) {
  double hops = 1;
  if (log.operation == LinkOperation::kBandwidth) return std::nullopt;
  if (!IsOfOnePair(log)) {
    // An all-reduce may use a tree. A ring over nodes of several ranks has two sorts of hops.
    const bool alike = !IsBetweenNodes(log) || log.nodes == log.ranks;
    if (log.operation != LinkOperation::kAllGather || !alike) return std::nullopt;
    hops = log.ranks - 1;
  }
  const double most = kSmallBytes * (log.operation == LinkOperation::kAllGather ? log.ranks : 1);
  std::vector<double> us;
  for (const LinkSample& sample : log.samples) {
    if (sample.bytes <= most) us.push_back(1e6 * sample.seconds / hops);
  }
  if (us.empty()) return std::nullopt;
  std::ranges::sort(us);
  const double value = us[us.size() / 2];
  return DeclaredInput{.name = IsBetweenNodes(log) ? "inter_node_us" : "intra_node_us",
                       .value = value,
                       .low = std::min(us.front(), value / kImportedSpread),
                       .high = std::max(us.back(), value * kImportedSpread),
                       .kind = log.kind,
                       .source = log.Source()};
}

DeclaredInput EfficiencyOf(const DeliveredRate& rate) {
  const LinkLog& log = *rate.log;
  const double value = std::min(1.0, rate.delivered / rate.nominal);
  return {.name = IsBetweenNodes(log) ? "inter_node_efficiency" : "intra_node_efficiency",
          .value = value,
          .low = value / kImportedSpread,
          .high = std::min(1.0, value * kImportedSpread),
          .kind = log.kind,
          .source = log.Source()};
}

// The priority of a log among those that give an input: the least wins. A pair measures a start-up
// time best, and a ring the rate of all cards of a node.
int Preference(const LinkLog& log, const DeclaredInput& input) {
  static constexpr int kOfStartUp[] = {0, 2, 1, 0, 0};
  static constexpr int kOfRate[] = {1, 0, 2, 0, 3};
  const bool start = input.name.ends_with("_us");
  return (start ? kOfStartUp : kOfRate)[static_cast<std::size_t>(log.operation)];
}

// These marks separate imported text from the text of the file's owner.
constexpr std::string_view kBegin = "# >>> sparfuse cluster import: ";
constexpr std::string_view kEnd = "# <<< sparfuse cluster import";

struct ImportedBlock {
  std::size_t begin = 0, end = 0;  // in the text, including both marks
  int line = 0;                    // of the first mark
  std::string title;
  bool as_written = false;
};

std::string CurveText(const LinkLog& log) {
  std::vector<std::string> bytes, us;
  for (const LinkSample& sample : log.samples) {
    bytes.push_back(fmt::format("{:.0f}", sample.bytes));
    us.push_back(fmt::format("{:.5g}", 1e6 * sample.seconds));
  }
  return fmt::format(
      "[[curve]]\noperation = \"all-reduce\"\nranks     = {}\nbytes     = [{}]\nus        = [{}]\n"
      "kind      = \"{}\"\nsource    = {}\n",
      log.ranks, fmt::join(bytes, ", "), fmt::join(us, ", "), log.kind, Shown(log.Source()));
}

// The first imported block from `from` on.
std::optional<ImportedBlock> NextBlock(const std::string& text, const std::string& file,
                                       std::size_t from) {
  const std::size_t begin = text.find(kBegin, from);
  if (begin == std::string::npos) return std::nullopt;
  ImportedBlock block;
  block.begin = begin;
  block.line = 1 + static_cast<int>(std::count(
                       text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  const std::size_t body = std::min(text.find('\n', begin), text.size() - 1) + 1;
  const std::size_t end = text.find(kEnd, body);
  if (end == std::string::npos) {
    SPARFUSE_THROW(kConfig, fmt::format("{}:{}: no line \"{}\" below: expected both marks of an "
                                        "import, or neither, which makes the block yours",
                                        file, block.line, kEnd));
  }
  block.end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const std::string head = text.substr(begin + kBegin.size(), body - begin - kBegin.size());
  block.title = head.substr(0, head.find(", "));
  block.as_written = head.find(ShortHash(text.substr(body, end - body))) != std::string::npos;
  return block;
}

std::string TitleOf(const LinkLog& log) { return fmt::format("all-reduce of {} ranks", log.ranks); }

std::string MarkedBlock(const std::string& title, const std::string& body) {
  return fmt::format("{}{}, {}; the next import of this replaces it\n{}{}\n", kBegin, title,
                     ShortHash(body), body, kEnd);
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
                     nodes == 1 ? "" : "s", AsUtf8(std::filesystem::path(file).filename().string()),
                     sha256);
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
           fmt::format("the log of {} does not state on how many {} it ran: expected --{} N",
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
      LinkLog& log = logs.emplace_back(LinkLog{.file = file,
                                               .sha256 = sha256,
                                               .program = program,
                                               .operation = operation,
                                               .ranks = of_ranks,
                                               .nodes = of_nodes});
      for (const ProfilePoint& point : curve)  // no bytes take as long as one
        log.samples.push_back({std::max(1.0, point.size), point.seconds});
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

ImportedLinks LinksOf(const DeclaredCluster& cluster, std::span<const LinkLog> logs) {
  ImportedLinks found;
  std::vector<int> preferences;  // of the inputs found so far
  const auto take = [&](const LinkLog& log, DeclaredInput input) {
    const int preference = Preference(log, input);
    const auto there = std::ranges::find(found.inputs, input.name, &DeclaredInput::name);
    if (there == found.inputs.end()) {
      found.inputs.push_back(std::move(input));
      preferences.push_back(preference);
      return;
    }
    int& other = preferences[static_cast<std::size_t>(there - found.inputs.begin())];
    if (preference >= other) return;
    *there = std::move(input);
    other = preference;
  };
  for (const LinkLog& log : logs) {
    CheckFits(cluster, log);
    if (!log.verified) {
      found.notes.push_back(fmt::format("{}: its results were not verified", log.file));
    }
    if (log.operation == LinkOperation::kAllReduce && IsBetweenNodes(log)) {
      const auto other = std::ranges::find(found.curves, log.ranks, &LinkLog::ranks);
      if (other != found.curves.end()) {
        SPARFUSE_THROW(
            kConfig, fmt::format("{} and {} are both all-reduces of {} ranks: expected one of them",
                                 (*other)->file, log.file, log.ranks));
      }
      if (log.samples.size() < 2) {
        SPARFUSE_THROW(kConfig,
                       fmt::format("{}: one size makes no curve: expected two or more", log.file));
      }
      found.curves.push_back(&log);
    }
    if (auto input = StartUpOf(log)) take(log, std::move(*input));
    if (log.operation == LinkOperation::kLatency) continue;
    if (log.samples.back().bytes < kLargeBytes) {
      found.notes.push_back(fmt::format(
          "{}: its largest message, {:g} bytes, is too small for a rate: expected 1 MiB or more",
          log.file, log.samples.back().bytes));
      continue;
    }
    found.rates.push_back(RateOf(cluster, log));
    const DeliveredRate& rate = found.rates.back();
    if (rate.delivered <= kImportedSpread * rate.nominal) take(log, EfficiencyOf(rate));
  }
  return found;
}

std::string LineOf(const DeclaredInput& input) {
  return fmt::format(
      "{:<24} = {{ value = {:.4g}, low = {:.4g}, high = {:.4g}, kind = \"{}\", source = {} }}",
      input.name, input.value, std::min(input.low, input.value), std::max(input.high, input.value),
      input.kind, Shown(input.source));
}

std::string BlockOf(const LinkLog& log) { return MarkedBlock(TitleOf(log), CurveText(log)); }

std::string WithMarkedBlock(std::string text, const std::string& file, const std::string& title,
                            const std::string& body) {
  const std::string now = body.empty() ? "" : MarkedBlock(title, body);
  std::size_t from = 0;
  while (const auto block = NextBlock(text, file, from)) {
    from = block->end;
    if (block->title != title) continue;
    if (!block->as_written) {
      SPARFUSE_THROW(
          kConfig,
          fmt::format("{}:{}: the block of an earlier import was edited: expected it unchanged, or "
                      "without its two lines \"# >>>\" and \"# <<<\", which makes it yours",
                      file, block->line));
    }
    return text.replace(block->begin, block->end - block->begin, now);
  }
  if (body.empty()) return text;
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text + "\n" + now;
}

std::string WithBlocks(std::string text, const std::string& file,
                       std::span<const LinkLog* const> logs) {
  for (const LinkLog* log : logs)
    text = WithMarkedBlock(std::move(text), file, TitleOf(*log), CurveText(*log));
  return text;
}

}  // namespace sparfuse::harness
