// Runs a profile trial or a fingerprint. A profile measures the costs that the model needs, on as
// many ranks at once as it is for. A fingerprint measures quantities that tell systems apart.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/base/clock.hpp"
#include "core/collective/collective.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/systems/fingerprint.hpp"
#include "harness/worker/profiling/links.hpp"
#include "harness/worker/profiling/measurement.hpp"
#include "harness/worker/profiling/profiler.hpp"
#include "harness/worker/profiling/timed_kernels.hpp"
#include "harness/worker/rank/rank.hpp"
#include "harness/worker/rank/replica.hpp"
#include "harness/worker/rank/timing.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Say = std::function<void(const std::string&)>;

// --- fingerprint ---

constexpr int kFingerprintRounds = 15;
constexpr int kFewestRounds = 5;
constexpr double kMostSeconds = 10;  // all rounds together
constexpr double kDensity = 0.01;    // density of top-k with error feedback

std::size_t SelectedElements(const Rank& rank) {
  return std::size_t{1} << (rank.device.kind == DeviceKind::kHost ? 20 : 24);
}

// The collectives with which the backend of all ranks sums and gathers.
class TimedCollectives {
 public:
  explicit TimedCollectives(const Rank& rank) : rank_(rank) {
    rank.loop.RunBlocking([this](Communicator& world) {
      device_ = world.stream().device;
      reduce_name_ = world.has_native_all_reduce() ? "native-allreduce" : "ring-allreduce";
      gather_name_ = world.backend() == "nccl" ? "nccl-allgather" : "sparse-allgather";
      return Task();
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

  // The mean over ranks. A collective call.
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

// The values of a quantity that one rank measured, or the lower rank of a pair.
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
  explicit Fingerprinting(const Rank& rank)
      : rank_(rank),
        gradient_(Gaussian(SelectedElements(rank), 1 + static_cast<std::uint64_t>(rank.rank()))),
        kernels_(KernelsOfRank(rank, gradient_)),
        read_(kernels_->Read()),
        multiply_(kernels_->Multiply()) {
    const SparsifierDescriptor& descriptor = ResolveSparsifier("topk");
    topk_ = {&descriptor,
             descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1),
             {kDensity}};
    select_ = kernels_->Select(topk_, {gradient_.size(), {}}, kDensity);
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
    Add("memory_read", 1e-9 * kernels_->read_bytes() / SecondsOf(read_));
    Add("matrix_product", 1e-9 * kernels_->product_operations() / SecondsOf(multiply_));
    Add("top_k", SecondsOf(select_));
  }

  // Excludes earlier values from the result.
  void Forget() { seen_.clear(); }

  // Returns the same result on all ranks.
  Fingerprint Result() const {
    Fingerprint result;
    result.ranks = rank_.size();
    result.ranks_per_node = rank_.config.ranks_per_node;
    result.threads = rank_.config.threads_per_worker;
    result.device = rank_.config.device;
    result.transport = rank_.config.transport;
    result.link = rank_.config.link;
    if (collectives_) {
      result.all_reduce = collectives_->reduce_name();
      result.all_gather = collectives_->gather_name();
    }
    std::map<std::string, std::vector<json>> by_name;
    for (const json& own : GatherJson(rank_, Own())) {
      for (const auto& [name, seen] : own.items()) by_name[name].push_back(seen);
    }
    for (const auto& [name, seen] : by_name)
      result.quantities[name] = Summary(QuantityOf(name), seen);
    return result;
  }

 private:
  double SecondsOf(const TimedKernels::Body& body) const {
    rank_.Synchronise();
    return kernels_->Seconds(body, 1).value;
  }

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
      // A node's first rank has up to two neighbours of a class. It is the lower rank in only one
      // of the two phases.
      Add(name, value);
      seen_[name].ranks = {pair->lower, pair->upper};
    }
  }

  json Own() const {
    json own = json::object();
    for (const auto& [name, seen] : seen_) {
      const Estimate median = MedianEstimate(seen.values);
      own[name] = {{"value", median.value},
                   {"error", median.standard_error},
                   {"n", seen.values.size()},
                   {"ranks", seen.ranks}};
    }
    return own;
  }

  static FingerprintValue Summary(const FingerprintQuantity& quantity,
                                  const std::vector<json>& seen) {
    constexpr double kNormal = 1.96;  // quantile of a 95 % interval
    const auto count = static_cast<double>(seen.size());
    FingerprintValue summary;
    double error = 0;
    const json* worst = &seen.front();
    summary.n = seen.front()["n"];
    for (const json& each : seen) {
      summary.value += each["value"].get<double>() / count;
      error += each["error"].get<double>() / count;
      summary.n = std::min(summary.n, each["n"].get<int>());
      const bool less = each["value"] < (*worst)["value"];
      if (each["value"] != (*worst)["value"] && less == quantity.more_is_better) worst = &each;
    }
    summary.low = std::max(0.0, summary.value - kNormal * error);
    summary.high = summary.value + kNormal * error;
    summary.unit = quantity.unit;
    if (seen.size() > 1 && quantity.scope != FingerprintScope::kCollective)
      summary.worst = {(*worst)["value"].get<double>(), (*worst)["ranks"].get<std::vector<int>>()};
    return summary;
  }

  const Rank& rank_;
  const std::vector<float> gradient_;
  const std::unique_ptr<TimedKernels> kernels_;
  TimedSparsifier topk_;
  TimedKernels::Body read_, multiply_, select_;
  std::optional<PairLinks> pairs_;
  std::optional<TimedCollectives> collectives_;
  std::map<std::string, Seen> seen_;
};

// Measures links, collectives and single operations, in rounds of one repetition each, so that a
// short disturbance of the machine does not hit one quantity alone. Returns the number of rounds
// that count; the fingerprint is the same on all ranks. Seconds; collective.
int MeasureFingerprint(const Rank& rank, const Say& say, Fingerprint& fingerprint) {
  say("warming up");
  Fingerprinting measured(rank);
  measured.Round();
  measured.Forget();
  const auto begin = std::chrono::steady_clock::now();
  int rounds = 0;
  while (rounds < kFingerprintRounds) {
    say("round " + std::to_string(rounds + 1) + " of " + std::to_string(kFingerprintRounds));
    measured.Round();
    ++rounds;
    // All ranks decide alike, because they use the slowest rank's time.
    const auto milliseconds = static_cast<std::int64_t>(1000 * SecondsSince(begin));
    if (rounds >= kFewestRounds &&
        1e-3 * static_cast<double>(rank.Max({milliseconds})[0]) > kMostSeconds)
      break;
  }
  fingerprint = measured.Result();
  return rounds;
}

// --- trials ---

constexpr int kRepeats = 9;
constexpr std::size_t kElements = 1'000'000;
constexpr double kDensities[] = {0.001, 0.01, 0.1};

ProfileSubject SubjectOf(const Rank& rank, workloads::TrainingWorkload& workload) {
  ProfileSubject subject{workload, ObserveReadyOrder(rank, workload), {}, {}};
  for (const std::string& name : rank.config.sparsifiers) {
    const SparsifierDescriptor& descriptor = ResolveSparsifier(name);
    subject.sparsifiers.push_back(
        {&descriptor,
         descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1),
         {std::begin(kDensities), std::end(kDensities)}});
  }
  for (const std::string& name : rank.config.quantizers) {
    const QuantizerDescriptor& descriptor = FindQuantizer(name);
    subject.quantizers.push_back(
        descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1));
  }
  return subject;
}

// Adds the profile of the rank's workload and of the links.
void AddProfile(const Rank& rank, const Say& say, json& outcome) {
  const int steps = rank.config.steps;
  const ProfileEffort effort{
      .backward = {.warmup_steps = rank.config.warmup_steps, .steps = steps, .seconds = 0},
      .repeats = kRepeats,
      .elements = kElements,
      // A sleeping workload leaves the cores idle, and a card's passes do not use them.
      .beside = rank.device.kind == DeviceKind::kHost &&
                !workloads::FindWorkload(rank.config.workload).sleeps};
  const auto workload = MakeTrialWorkload(rank);
  BroadcastState(rank, *workload);
  const Profile profile = MeasureProfile(rank, SubjectOf(rank, *workload), effort, say);
  const auto seconds = [](double value) { return json{{"value", value}, {"unit", "seconds"}}; };
  outcome["profile"] = ToJson(profile);
  outcome["metrics"] = {{"forward_seconds", seconds(profile.backward->forward_seconds)},
                        {"backward_seconds", seconds(*profile.backward->unhooked_seconds)},
                        {"update_seconds", seconds(profile.backward->update_seconds)}};
  outcome["n"] = steps;
  outcome["sampling"] =
      "medians of " + std::to_string(steps) + " steps with hooks and as many passes without, of " +
      std::to_string(kRepeats) + " repeats of a kernel or an exchange; mean over ranks";
}

// Adds a fingerprint and, for two ranks or more, the link costs of the model.
void AddFingerprint(const Rank& rank, const Say& say, json& outcome) {
  const auto begin = std::chrono::steady_clock::now();
  Fingerprint fingerprint;
  const int rounds = MeasureFingerprint(rank, say, fingerprint);
  Profile profile;
  profile.exchange_dispatch_seconds =
      Measurement(profile).Value("/exchange_dispatch_seconds", ExchangeDispatch(rank, kRepeats));
  if (rank.size() > 1) {
    say("links, for models");
    ProfileLinks(rank, kRepeats, profile);
  }
  profile.seconds = SecondsSince(begin);
  outcome["fingerprint"] = ToJson(fingerprint);
  outcome["profile"] = ToJson(profile);
  outcome["n"] = rounds;
  outcome["sampling"] = "medians of " + std::to_string(rounds) +
                        " rounds, of links for models of " + std::to_string(kRepeats) +
                        " repeats; mean over ranks";
}

}  // namespace

void RunProfile(const Rank& rank) {
  const Say say = [&rank](const std::string& what) { SayMeasuring(rank, what); };
  double load = 0;  // load of other programs, to explain odd times
  if (getloadavg(&load, 1) != 1) load = 0;
  json outcome = {
      {"status", "ok"}, {"reason", ""}, {"checks", json::object()}, {"metrics", json::object()}};
  if (rank.config.is_fingerprint()) {
    AddFingerprint(rank, say, outcome);
  } else {
    AddProfile(rank, say, outcome);
  }
  PrivateFacts facts;
  Machine machine = MachineOf(rank, facts);
  if (rank.rank() != 0) return;
  machine.load_before = load;
  outcome["machine"] = ToJson(machine);
  outcome["software"] = ToJson(SoftwareOfWorker());
  WriteOutcome(rank.directory, outcome, facts);
}

}  // namespace sparfuse::harness
