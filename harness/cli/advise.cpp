// Answers which method trains faster on a cluster: `sparfuse advise`.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <optional>

#include "harness/advise/advice.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/cli/drawing.hpp"
#include "harness/cli/traces/trace.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/run/progress.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kPhaseBandwidths[] = {0.25, 0.5, 1, 2, 4};

template <class Value>
std::optional<Value> NumberOf(const std::string& text) {
  Value value{};
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stopped != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class Value>
std::vector<Value> NumbersOf(const char* option, const std::string& text, const char* expected) {
  std::vector<Value> values;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto value = NumberOf<Value>(text.substr(begin, end - begin));
    if (!value) {
      SPARFUSE_THROW(kConfig, fmt::format("--{} {}: expected {}", option, text, expected));
    }
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

// Reads "200:4". Unlike an emulated link, it may have any speed.
LinkShape GivenLink(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto gbps = NumberOf<double>(text.substr(0, colon));
  const auto alpha_us =
      colon == std::string::npos ? std::nullopt : NumberOf<double>(text.substr(colon + 1));
  if (!gbps || !alpha_us ||
      !WhatIsWrong("link", {{"gbps", *gbps}, {"alpha_us", *alpha_us}}).empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("--link {}: expected GBPS:ALPHA_US, {} Gbit/s and a "
                                        "start-up time of {} us, as in 100:4",
                                        text, Text(kLinkGbps), Text(kLinkAlphaMicroseconds)));
  }
  return {*gbps, *alpha_us};
}

// The measured profiles of this store, or of a named file. A declared cluster has none.
ProfileOutcomes MeasuredOutcomes(Program& program, const std::string& cluster) {
  const Store& store = program.store();
  if (IsDeclared(store.profiles(), cluster)) return {};
  ProfileOutcomes outcomes;
  if (!IsOwnCluster(cluster)) return MeasuredOf(store.profiles(), cluster);
  const std::string machine = HashOf(DescribeSystem());
  for (const TrialRow& row : program.Rows()) {
    if (row.config.value("kind", "") != "profile" || !row.counts() || row.system_hash != machine)
      continue;
    const CellConfig config = CellConfigOf(row.config);
    if (row.revisions != RevisionsOf(program.catalog(), config)) continue;
    json outcome = ReadJsonFile(store.results() / row.directory / "outcome.json");
    outcome["config"] = row.config;
    PutProfile(outcomes, ProfileOutcomeOf(outcome, row.directory));  // keeps the newest of each
  }
  return outcomes;
}

// Prints progress: one updated line on a terminal, else a line now and then.
class ProgressLine {
 public:
  void operator()(const std::string& doing, std::size_t done, std::size_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (doing != doing_) begun_ = now;
    const std::chrono::duration<double> since = now - shown_;
    constexpr double kSeldom = 10;  // seconds
    const bool terminal = ::isatty(::fileno(stderr)) != 0;
    if (!terminal && doing == doing_ && since.count() < kSeldom) return;
    doing_ = doing;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    const std::string left =
        done == 0
            ? ""
            : TimeLeft(seconds / static_cast<double>(done) * static_cast<double>(total - done));
    const std::string text = total == 0 ? doing
                                        : fmt::format("[{}/{}] {}{}{}", done, total, doing,
                                                      left.empty() ? "" : ", ", left);
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", text, terminal ? "" : "\n");
    std::fflush(stderr);
  }
  ~ProgressLine() {
    if (!doing_.empty() && ::isatty(::fileno(stderr)) != 0) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::string doing_;
  std::chrono::steady_clock::time_point begun_, shown_;
};

// Numbers of workers that double, from two nodes to all. Keeps the largest of them, as many as a
// diagram has columns by default.
std::vector<int> PhaseWorkers(const DeclaredCluster& cluster) {
  constexpr std::size_t kColumns = 4;
  std::vector<int> workers;
  for (int count = cluster.ranks(); workers.size() < kColumns && count > cluster.ranks_per_node;
       count /= 2) {
    workers.insert(workers.begin(), count);
    if (count % 2 != 0) break;
  }
  return workers.empty() ? std::vector<int>{cluster.ranks()} : workers;
}

PhaseDiagram PhaseOf(Program& program, const AdviseOptions& asked, const Advice& advice,
                     Adviser& adviser) {
  const DeclaredCluster& cluster =
      LoadDeclaredCluster(program.store().profiles(), advice.request.cluster);
  const std::vector<int> workers =
      asked.workers.empty() ? PhaseWorkers(cluster) : advice.request.workers;
  return {cluster.Value("inter_node_gbps"),
          adviser.Phase({std::begin(kPhaseBandwidths), std::end(kPhaseBandwidths)}, workers)};
}

// The request, but for the workload of a trace.
AdviceRequest RequestOf(const AdviseOptions& asked) {
  AdviceRequest request;
  request.workload = asked.workload;
  request.cluster = asked.cluster;
  request.workers = NumbersOf<int>("workers", asked.workers,
                                   "whole numbers separated by commas, such as 8,16,64");
  request.densities = NumbersOf<double>("density", asked.densities,
                                        "numbers in (0, 1] separated by commas, such as 0.01,0.1");
  request.methods = asked.methods;
  request.sparsifier = asked.sparsifier;
  request.batch = asked.batch;
  if (asked.link) request.link = GivenLink(*asked.link);
  return request;
}

// The traces that are asked about; null for none.
std::unique_ptr<TraceForAdvice> TraceOf(Program& program, const AdviseOptions& asked) {
  if (asked.trace.files.empty()) return nullptr;
  TraceImport trace = asked.trace;
  trace.workload = asked.workload;
  trace.batch = asked.batch.value_or(0);
  if (asked.toml) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format(
            "--toml with --trace: an experiment needs the files that `sparfuse import kineto {} "
            "{}` writes: expected this import first, and its table as --workload",
            asked.cluster, trace.files.front()));
  }
  auto traced = std::make_unique<TraceForAdvice>(program.store().profiles(), asked.cluster, trace);
  if (!program.json()) fmt::print("{}\n", traced->summary);
  return traced;
}

// Writes `found` as NAME-WORKLOAD-on-CLUSTER.json, and draws it with the verb of sparfuse_report.
void DrawFound(Program& program, const AdviseOptions& asked, const Advice& advice, const char* verb,
               const char* name, const std::string& found) {
  const fs::path out = asked.out.empty() ? fs::current_path() : asked.out;
  MakeDirectories(out);
  const fs::path file =
      out / fmt::format("{}-{}-on-{}.json", name, advice.label, advice.request.cluster);
  WriteFileDurably(file, found);
  RenderFile(program, {verb, "--data", file.string(), "--out", out.string()},
             asked.toml || program.json());
}

}  // namespace

int AdviseVerb(Program& program, const AdviseOptions& asked) {
  AdviceRequest request = RequestOf(asked);
  const std::unique_ptr<TraceForAdvice> traced = TraceOf(program, asked);
  if (traced) request.workload = traced->workload;
  const auto& profiles = traced ? traced->profiles : program.store().profiles();
  ProfileOutcomes measured = MeasuredOutcomes(program, request.cluster);
  Advice advice;
  std::optional<PhaseDiagram> phase;
  std::optional<std::vector<NeededRates>> rates;
  {
    ProgressLine shown;
    Adviser adviser(program.catalog(), profiles, request, std::move(measured), std::ref(shown));
    advice = adviser.Answer();
    if (asked.phase) phase = PhaseOf(program, asked, advice, adviser);
    if (asked.utilisation) rates = adviser.Rates();
  }
  const DeclaredCluster* declared = IsDeclared(profiles, request.cluster)
                                        ? &LoadDeclaredCluster(profiles, request.cluster)
                                        : nullptr;
  if (asked.toml) {
    fmt::print("{}", AdviceToml(advice, declared));
  } else if (program.json()) {
    fmt::print("{}", AdviceJson(advice, phase ? &*phase : nullptr, rates ? &*rates : nullptr,
                                traced ? traced->record : json()));
  } else {
    fmt::print(
        "{}{}\nNothing is stored: `sparfuse advise ... --toml > advice.toml` writes an experiment "
        "of the same cells, for `sparfuse run advice.toml`.\n",
        AdviceText(advice), rates ? RatesText(advice, *rates) : "");
  }
  std::fflush(stdout);
  if (phase) DrawFound(program, asked, advice, "phase", "phase", PhaseJson(advice, *phase));
  if (rates && !asked.out.empty())
    DrawFound(program, asked, advice, "rates", "utilisation", RatesJson(advice, *rates));
  return kDone;
}

}  // namespace sparfuse::harness
