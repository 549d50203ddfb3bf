#include "harness/worker/fingerprint/fingerprint.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "baselines/registry.hpp"
#include "core/base/clock.hpp"
#include "core/collective/collective.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/systems/fingerprint.hpp"
#include "harness/worker/fingerprint/pairs.hpp"
#include "harness/worker/fingerprint/single_operations.hpp"
#include "harness/worker/profiling/link_profile.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using nlohmann::operator""_json_pointer;

constexpr int kRounds = 15;
constexpr int kFewestRounds = 5;
constexpr double kMostSeconds = 10;  // of the rounds
constexpr int kRepeats = 9;          // of what the model computes with, as in profiles

Task NoExchange() { co_return; }

// What all ranks' backend sums and gathers with.
class TimedCollectives {
 public:
  explicit TimedCollectives(const Rank& rank) : rank_(rank) {
    rank.loop.RunBlocking([this](Communicator& world) {
      device_ = world.stream().device;
      reduce_name_ = world.has_native_all_reduce() ? "native-allreduce" : "ring-allreduce";
      gather_name_ = world.backend() == "nccl" ? "nccl-allgather" : "sparse-allgather";
      return NoExchange();
    });
    reduce_ = MakeCollective(FindCollective(reduce_name_), {});
    gather_ = MakeCollective(FindCollective(gather_name_), {});
    const std::size_t most = kFingerprintBytes.back();
    dense_ = Buffer<float>(most / sizeof(float), device_);
    const auto ranks = static_cast<std::size_t>(rank.size());
    own_ = Buffer<std::byte>(OfRank(most), device_);
    gathered_ = Buffer<std::byte>(ranks * OfRank(most), device_);
  }

  const std::string& reduce_name() const { return reduce_name_; }
  const std::string& gather_name() const { return gather_name_; }

  // Means over ranks. Collective.
  double ReduceSeconds(std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(float);
    ExchangeBuffers buffers;
    buffers.shape.elements = elements;
    buffers.dense = {dense_.data(), elements};
    return Seconds(*reduce_, buffers);
  }
  double GatherSeconds(std::size_t bytes) {
    ExchangeBuffers buffers;
    buffers.element_bytes = 1;
    buffers.own = {own_.data(), OfRank(bytes)};
    buffers.capacity_bytes = OfRank(bytes);
    buffers.gathered = {gathered_.data(), gathered_.size()};
    return Seconds(*gather_, buffers);
  }

 private:
  std::size_t OfRank(std::size_t bytes) const {
    const auto ranks = static_cast<std::size_t>(rank_.size());
    return (bytes + ranks - 1) / ranks;
  }
  double Seconds(const Collective& collective, ExchangeBuffers& buffers) {
    const auto task = [&](Communicator& world) { return collective.Run(world, buffers, 0); };
    return TimeExchange(rank_, task, 1).wall.value;
  }

  const Rank& rank_;
  Device device_;
  std::string reduce_name_, gather_name_;
  std::unique_ptr<Collective> reduce_, gather_;
  Buffer<float> dense_;
  Buffer<std::byte> own_, gathered_;
};

// What one rank, or the lower one of a pair, saw of a quantity.
struct Seen {
  std::vector<double> values;
  std::vector<int> ranks;
};

const FingerprintQuantity& QuantityOf(const std::string& name) {
  return *std::ranges::find_if(FingerprintQuantities(),
                               [&](const FingerprintQuantity& each) { return each.name == name; });
}

class Fingerprinting {
 public:
  explicit Fingerprinting(const Rank& rank) : rank_(rank), single_(SingleOperationsOf(rank)) {
    if (rank.size() < 2) return;
    pairs_.emplace(rank);
    collectives_.emplace(rank);
  }

  void Round() {
    if (pairs_) {
      for (std::size_t phase = 0; phase < pairs_->phases().size(); ++phase) Pair(phase);
      for (const std::size_t bytes : kFingerprintBytes) {
        Add(CollectiveQuantity("all_reduce", bytes), collectives_->ReduceSeconds(bytes));
        Add(CollectiveQuantity("all_gather", bytes), collectives_->GatherSeconds(bytes));
      }
    }
    constexpr double kGiga = 1e9;
    rank_.Synchronise();
    Add("memory_read", single_->ReadBytesPerSecond() / kGiga);
    rank_.Synchronise();
    Add("matrix_product", single_->ProductOperationsPerSecond() / kGiga);
    rank_.Synchronise();
    Add("top_k", single_->TopKSeconds());
  }

  // What was seen before is left out of the result.
  void Forget() { seen_.clear(); }

  // Returns the same on all ranks.
  json Result() const {
    std::map<std::string, std::vector<json>> by_name;
    const std::string text = OwnText();
    for (const auto& bytes : rank_.Gather(std::as_bytes(std::span(text)))) {
      const json own =
          json::parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      for (const auto& [name, seen] : own.items()) by_name[name].push_back(seen);
    }
    json result = {{"ranks", rank_.size()},
                   {"ranks_per_node", rank_.config.ranks_per_node},
                   {"threads", rank_.config.threads_per_worker},
                   {"device", NameOf(rank_.config.device)},
                   {"transport", NameOf(rank_.config.transport)},
                   {"link", ToJson(rank_.config.link)},
                   {"quantities", json::object()}};
    if (collectives_) {
      result["all_reduce"] = collectives_->reduce_name();
      result["all_gather"] = collectives_->gather_name();
    }
    for (const auto& [name, seen] : by_name)
      result["quantities"][name] = Summary(QuantityOf(name), seen);
    return result;
  }

 private:
  void Add(const std::string& name, double value) {
    Seen& seen = seen_[name];
    seen.values.push_back(value);
    seen.ranks = {rank_.rank()};
  }

  void Pair(std::size_t phase) {
    const auto sample = pairs_->Measure(phase);
    const auto pair = pairs_->Own(phase);
    if (!sample || pair->lower != rank_.rank()) return;
    const std::string link(LinkClassName(pair->link));
    for (const auto& [name, value] :
         {std::pair(link + "_start", sample->start_seconds), {link + "_bandwidth", sample->gbps}}) {
      // A node's first rank has up to two neighbours of a class, of which the lower one is itself
      // in one phase alone.
      Add(name, value);
      seen_[name].ranks = {pair->lower, pair->upper};
    }
  }

  std::string OwnText() const {
    json own = json::object();
    for (const auto& [name, seen] : seen_) {
      const Estimate median = MedianEstimate(seen.values);
      own[name] = {{"value", median.value},
                   {"error", median.standard_error},
                   {"n", seen.values.size()},
                   {"ranks", seen.ranks}};
    }
    return own.dump();
  }

  static json Summary(const FingerprintQuantity& quantity, const std::vector<json>& seen) {
    constexpr double kNormal = 1.96;  // of 95 %
    const auto count = static_cast<double>(seen.size());
    double value = 0, error = 0;
    const json* worst = &seen.front();
    std::size_t fewest = seen.front()["n"];
    for (const json& each : seen) {
      value += each["value"].get<double>() / count;
      error += each["error"].get<double>() / count;
      fewest = std::min(fewest, each["n"].get<std::size_t>());
      const bool less = each["value"] < (*worst)["value"];
      if (each["value"] != (*worst)["value"] && less == quantity.more_is_better) worst = &each;
    }
    json summary = {{"value", value},
                    {"low", std::max(0.0, value - kNormal * error)},
                    {"high", value + kNormal * error},
                    {"n", fewest},
                    {"unit", quantity.unit}};
    if (seen.size() > 1 && quantity.scope != FingerprintScope::kCollective)
      summary["worst"] = {{"value", (*worst)["value"]}, {"ranks", (*worst)["ranks"]}};
    return summary;
  }

  const Rank& rank_;
  std::unique_ptr<SingleOperations> single_;
  std::optional<PairLinks> pairs_;
  std::optional<TimedCollectives> collectives_;
  std::map<std::string, Seen> seen_;
};

void Say(const Rank& rank, const std::string& what) {
  if (rank.rank() != 0) return;
  std::printf("%s%s\n", kMeasuringLine, what.c_str());
  std::fflush(stdout);  // the controller follows the log
}

// In rounds, the first of which warms up; returns how many count.
int MeasureRounds(const Rank& rank, Fingerprinting& measured) {
  measured.Round();
  measured.Forget();
  const auto begin = std::chrono::steady_clock::now();
  int rounds = 0;
  while (rounds < kRounds) {
    Say(rank, "round " + std::to_string(rounds + 1) + " of " + std::to_string(kRounds));
    measured.Round();
    ++rounds;
    // All ranks decide alike, by the slowest one's time.
    const auto milliseconds = static_cast<std::int64_t>(1000 * SecondsSince(begin));
    if (rounds >= kFewestRounds &&
        1e-3 * static_cast<double>(rank.Max({milliseconds})[0]) > kMostSeconds)
      break;
  }
  return rounds;
}

// Of two ranks and more what a model takes of links.
json MeasureLinkCurves(const Rank& rank) {
  ProfileRecord record;
  rank.Synchronise();
  const Estimate dispatch = TimeOf(
      [&rank] { rank.loop.RunBlocking([](Communicator&) { return NoExchange(); }); }, kRepeats);
  record.Number("/exchange_dispatch_seconds"_json_pointer, MeanOverRanks(rank, dispatch));
  if (rank.size() > 1) {
    Say(rank, "links, for models");
    ProfileLinks(rank, kRepeats, record);
  }
  return record.Take();
}

}  // namespace

void RunFingerprint(const Rank& rank) {
  double load = 0;  // of what runs beside it
  if (getloadavg(&load, 1) != 1) load = 0;
  const auto begin = std::chrono::steady_clock::now();
  Say(rank, "warming up");
  Fingerprinting measured(rank);
  const int rounds = MeasureRounds(rank, measured);
  const json fingerprint = measured.Result();
  json profile = MeasureLinkCurves(rank);
  PrivateFacts facts;
  Machine machine = MachineOf(rank, facts);
  if (rank.rank() != 0) return;
  profile["seconds"] = SecondsSince(begin);
  machine.load_before = load;
  WriteOutcome(
      rank.directory,
      {{"status", "ok"},
       {"reason", ""},
       {"checks", json::object()},
       {"metrics", json::object()},
       {"n", rounds},
       {"fingerprint", fingerprint},
       {"profile", std::move(profile)},
       {"machine", ToJson(machine)},
       {"software", ToJson(SoftwareOfWorker())},
       {"sampling", "medians of " + std::to_string(rounds) + " rounds, of links for models of " +
                        std::to_string(kRepeats) + " repeats; mean over ranks"}},
      facts);
}

}  // namespace sparfuse::harness
