// A profile trial: what the model computes with, measured one operation at a time, on as many ranks
// at once as the profile is for. No step of a method is timed here.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <random>

#include "core/collective/accumulate.hpp"
#include "core/engine/live_engine.hpp"
#include "harness/composition.hpp"
#include "harness/python_file.hpp"
#include "harness/statistics.hpp"
#include "harness/worker/calibration.hpp"
#include "harness/worker/rank.hpp"
#include "harness/worker/replica.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kWarmupSteps = 4;
constexpr int kProfiledSteps = 16;
constexpr int kRepeats = 9;
constexpr double kDensities[] = {0.001, 0.01, 0.1};
constexpr int kTag = 16;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double ProcessCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median seconds of one call, from kRepeats batches that each last long enough for the clock.
double TimeOf(const std::function<void()>& body) {
  body();
  const auto probe = Clock::now();
  body();
  const double once = std::max(1e-7, Seconds(Clock::now() - probe));
  const int batch = std::max(1, static_cast<int>(2e-4 / once));
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = Clock::now();
    for (int i = 0; i < batch; ++i) body();
    times.push_back(Seconds(Clock::now() - begin) / batch);
  }
  return Median(times);
}

std::vector<float> Gaussian(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// 64, 512, ... up to and including `largest`.
std::vector<std::size_t> Sizes(std::size_t largest) {
  std::vector<std::size_t> sizes;
  for (std::size_t n = 64; n < largest; n *= 8) sizes.push_back(n);
  sizes.push_back(largest);
  return sizes;
}

json Curve(std::span<const std::size_t> sizes, const std::function<double(std::size_t)>& seconds) {
  json points = json::array();
  for (const std::size_t n : sizes) points.push_back({n, seconds(n)});
  return points;
}

// Announces everything and asks for nothing, so that what remains is forward, backward and the
// hooks.
class Idle final : public Strategy {
 public:
  void GradientReady(Engine&, std::size_t) override {}
};

// Asks for one copy a tensor: with a layout of tiny tensors, the cost of asking.
class PackOnly final : public Strategy {
 public:
  void GradientReady(Engine& engine, std::size_t tensor) override {
    engine.Pack({.tensor = tensor});
  }
};

class Profiler {
 public:
  explicit Profiler(const Rank& rank) : rank_(rank), workload_(MakeTrialWorkload(rank)) {
    BroadcastState(rank_, *workload_);
    order_ = ObserveReadyOrder(rank_, *workload_);
    for (const std::size_t parameter : order_) {
      const ParameterInfo& info = workload_->Parameters()[parameter];
      layout_.Add(info.name, info.shape, info.numel);
    }
  }

  void Run() {
    json profile;
    profile["backward"] = Backward();
    profile["dispatch_seconds"] = Dispatch();
    profile["exchange_dispatch_seconds"] = ExchangeDispatch();
    Kernels(profile);
    if (rank_.size() > 1) Links(profile);
    json machine = MachineOf(rank_);
    if (rank_.rank() != 0) return;
    json outcome;
    outcome["status"] = "ok";
    outcome["reason"] = "";
    outcome["checks"] = json::object();
    const auto seconds = [](const json& value) {
      return json{{"value", value}, {"unit", "seconds"}};
    };
    double backward = profile["backward"]["tail_seconds"];
    for (const json& tensor : profile["backward"]["tensors"])
      backward += tensor["seconds"].get<double>();
    outcome["metrics"] = {{"forward_seconds", seconds(profile["backward"]["forward_seconds"])},
                          {"backward_seconds", seconds(backward)},
                          {"update_seconds", seconds(profile["backward"]["update_seconds"])}};
    outcome["profile"] = std::move(profile);
    outcome["machine"] = std::move(machine);
    outcome["software"] = SoftwareOfWorker();
    outcome["sampling"] = "medians of " + std::to_string(kProfiledSteps) + " steps, of " +
                          std::to_string(kRepeats) + " repeats of a kernel; mean over ranks";
    WriteOutcome(rank_.directory, outcome);
  }

 private:
  LiveConfig EngineConfig(GradientLayout layout, std::unique_ptr<Strategy> strategy) const {
    LiveConfig config;
    config.plan = {{Unit{0, layout.tensors(), Sparsified::kNever, 1.0}}};
    config.layout = std::move(layout);
    config.topology = {rank_.size(), rank_.config.at("ranks_per_node").get<int>()};
    config.strategy = std::move(strategy);
    return config;
  }

  double MeanOverRanks(double own) const {
    double sum = 0;
    for (const auto& bytes : rank_.Gather(std::as_bytes(std::span(&own, 1)))) {
      double value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      sum += value;
    }
    return sum / rank_.size();
  }

  json Backward() {
    LiveEngine engine(EngineConfig(layout_, std::make_unique<Idle>()), rank_.loop, rank_.pool);
    std::vector<std::size_t> position(workload_->Parameters().size());
    std::vector<const float*> gradients(position.size());
    for (std::size_t t = 0; t < order_.size(); ++t) position[order_[t]] = t;
    workload_->SetGradientHook(
        [&](std::size_t parameter, const float* gradient, std::size_t numel) {
          gradients[parameter] = gradient;
          engine.AnnounceGradient(position[parameter], {gradient, numel});
        });
    std::map<std::string, std::vector<double>> samples;
    const int micro_steps = rank_.config.at("accumulation");
    for (int step = 0; step < kWarmupSteps + kProfiledSteps; ++step) {
      rank_.Synchronise();
      engine.BeginStep(static_cast<std::uint64_t>(step), false);
      workload_->ClearGradients();
      for (int micro = 0; micro < micro_steps; ++micro) {
        engine.BeginForward();
        workload_->Forward(static_cast<std::uint64_t>(step), micro);
        engine.EndForward();
        workload_->Backward(micro + 1 == micro_steps);
        if (micro + 1 < micro_steps) engine.EndMicroStep();
      }
      engine.EndBackward();
      for (const std::size_t parameter : order_)
        workload_->SetGradient(parameter, gradients[parameter]);
      engine.BeginUpdate();
      workload_->Update(static_cast<std::uint64_t>(step));
      const StepRecord record = engine.EndStep();
      if (step < kWarmupSteps) continue;
      samples["begin"].push_back(record.step_seconds - record.forward_seconds -
                                 record.backward_seconds - record.update_seconds);
      samples["forward"].push_back(record.forward_seconds);
      samples["update"].push_back(record.update_seconds);
      for (const Span& span : engine.timeline().Sorted()) {
        if (span.kind == SpanKind::kBackward) {
          samples["backward " + span.label].push_back(span.end_seconds - span.begin_seconds);
        }
      }
    }
    const auto median = [&](const std::string& name) {
      const auto it = samples.find(name);
      return MeanOverRanks(it == samples.end() ? 0 : Median(it->second));
    };
    json tensors = json::array();
    for (std::size_t t = 0; t < layout_.tensors(); ++t) {
      const TensorEntry& tensor = layout_.tensor(t);
      tensors.push_back({{"name", tensor.name},
                         {"shape", tensor.shape},
                         {"numel", tensor.numel},
                         {"seconds", median("backward " + tensor.name)}});
    }
    return {
        {"begin_seconds", median("begin")},
        {"forward_seconds", median("forward") + (micro_steps - 1) * median("backward micro-step")},
        {"tensors", std::move(tensors)},
        {"tail_seconds", median("backward end")},
        {"update_seconds", median("update")}};
  }

  double SecondsPerAnnouncement(std::unique_ptr<Strategy> strategy) {
    constexpr std::size_t kTensors = 256;
    GradientLayout tiny;
    for (std::size_t t = 0; t < kTensors; ++t) tiny.Add("t" + std::to_string(t), {1}, 1);
    LiveEngine engine(EngineConfig(std::move(tiny), std::move(strategy)), rank_.loop, rank_.pool);
    const float gradient = 1;
    std::vector<double> times;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      engine.BeginStep(static_cast<std::uint64_t>(repeat), false);
      const auto begin = Clock::now();
      for (std::size_t t = 0; t < kTensors; ++t) engine.AnnounceGradient(t, {&gradient, 1});
      times.push_back(Seconds(Clock::now() - begin) / kTensors);
      engine.EndBackward();
    }
    return Median(times);
  }

  double Dispatch() {
    rank_.Synchronise();
    const double with = SecondsPerAnnouncement(std::make_unique<PackOnly>());
    rank_.Synchronise();
    const double without = SecondsPerAnnouncement(std::make_unique<Idle>());
    return MeanOverRanks(std::max(0.0, with - without));
  }

  static Task Nothing() { co_return; }

  double ExchangeDispatch() {
    rank_.Synchronise();
    return MeanOverRanks(
        TimeOf([this] { rank_.loop.RunBlocking([](Communicator&) { return Nothing(); }); }));
  }

  void Kernels(json& profile) {
    const std::size_t largest = layout_.numel();
    const std::vector<std::size_t> sizes = Sizes(largest);
    const std::vector<float> gradient =
        Gaussian(largest, 1 + static_cast<std::uint64_t>(rank_.rank()));
    std::vector<float> work(largest);
    rank_.Synchronise();
    profile["pack"] = Curve(sizes, [&](std::size_t n) {
      return MeanOverRanks(TimeOf(
          [&] { CopyFinite(std::span(gradient).first(n), std::span(work).first(n), rank_.pool); }));
    });
    profile["scale"] = Curve(sizes, [&](std::size_t n) {
      return MeanOverRanks(TimeOf([&] {
        ScaleDense(std::span(gradient).first(n), 0.5f, std::span(work).first(n), rank_.pool);
      }));
    });
    const std::size_t added = std::min<std::size_t>(largest, 262144);
    profile["seconds_per_reduced_element"] =
        MeanOverRanks(TimeOf(
            [&] { AddInto(std::span(gradient).first(added), std::span(work).first(added)); })) /
        static_cast<double>(added);
    Selections(profile, sizes, gradient);
    Decompression(profile, sizes);
  }

  void Selections(json& profile, std::span<const std::size_t> sizes,
                  std::span<const float> gradient) {
    Workspace workspace;
    SelectCounters counters;
    const SelectContext context{&rank_.pool, &workspace, &counters, {}};
    for (const json& name : rank_.config.at("sparsifiers")) {
      const SparsifierDescriptor& descriptor = ResolveSparsifier(name.get<std::string>());
      const Options options = ResolveOptions(descriptor.name, descriptor.options, {});
      const auto sparsifier = descriptor.make(options, 1);
      for (const double density : kDensities) {
        json points = Curve(sizes, [&](std::size_t n) {
          Buffer<float> residual(n);
          const std::size_t capacity = SlotCapacityFor(descriptor, n, density);
          Buffer<std::uint32_t> indices(capacity);
          Buffer<float> values(capacity);
          Slot slot{indices.view(), values.view(), capacity, 0};
          const auto state = sparsifier->MakeState(n);
          TensorInfo info;
          info.name = "profile";
          const SelectSource source{{gradient.data(), n, {}}, residual.view()};
          return MeanOverRanks(TimeOf([&] {
            ++info.step;
            sparsifier->Select(context, source, density, info, state.get(), slot);
          }));
        });
        profile["selection"][std::string(descriptor.name)].push_back(
            {{"density", density}, {"seconds", std::move(points)}});
      }
    }
  }

  // Decompression of this many ranks' payloads of `density`; the least is one entry a rank.
  double DecompressSeconds(std::size_t n, double density) {
    const std::size_t count =
        std::max<std::size_t>(1, static_cast<std::size_t>(density * static_cast<double>(n)));
    std::vector<std::vector<std::uint32_t>> indices;
    std::vector<std::vector<float>> values;
    std::vector<SparsePayload> payloads;
    for (int r = 0; r < std::max(2, rank_.size()); ++r) {
      std::mt19937_64 generator(static_cast<std::uint64_t>(r));
      std::vector<std::uint32_t> drawn(count);
      for (auto& index : drawn) index = static_cast<std::uint32_t>(generator() % n);
      std::sort(drawn.begin(), drawn.end());
      drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
      values.emplace_back(drawn.size(), 1.0f);
      indices.push_back(std::move(drawn));
    }
    for (std::size_t r = 0; r < indices.size(); ++r) payloads.push_back({indices[r], values[r]});
    std::vector<float> out(n);
    return TimeOf([&] { AccumulateSparse(payloads, 0.5f, out, rank_.pool); });
  }

  void Decompression(json& profile, std::span<const std::size_t> sizes) {
    constexpr double kDense = 0.02;
    rank_.Synchronise();
    profile["clear"] =
        Curve(sizes, [&](std::size_t n) { return MeanOverRanks(DecompressSeconds(n, 0)); });
    const std::size_t n = layout_.numel();
    const double entries = std::max(2, rank_.size()) * kDense * static_cast<double>(n);
    profile["seconds_per_entry"] = std::max(
        0.0, MeanOverRanks(DecompressSeconds(n, kDense) - DecompressSeconds(n, 0)) / entries);
  }

  // `rounds` times: every rank sends to the next and receives from the one before.
  static Task RingRounds(Communicator& world, std::span<std::byte> out, std::span<std::byte> in,
                         int rounds) {
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    for (int round = 0; round < rounds; ++round) {
      co_await Complete(world.Irecv(previous, kTag, in), world.Isend(next, kTag, out));
    }
  }

  // `messages` small ones to the next rank at once.
  static Task Burst(Communicator& world, std::span<std::byte> out, std::span<std::byte> in,
                    int messages) {
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    std::vector<std::unique_ptr<Request>> requests;
    for (int m = 0; m < messages; ++m) {
      requests.push_back(
          world.Irecv(previous, kTag, in.subspan(8 * static_cast<std::size_t>(m), 8)));
      requests.push_back(world.Isend(next, kTag, out.first(8)));
    }
    co_await Complete(std::move(requests));
  }

  struct TaskTime {
    double wall_seconds = 0;
    double cpu_seconds = 0;  // of this process, in which nothing else runs
  };

  TaskTime TimeTask(int repeats, const std::function<Task(Communicator&)>& task) {
    std::vector<double> wall;
    std::vector<double> cpu;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      rank_.Synchronise();
      const double cpu_begin = ProcessCpuSeconds();
      const auto begin = Clock::now();
      rank_.loop.RunBlocking(task);
      wall.push_back(Seconds(Clock::now() - begin));
      cpu.push_back(ProcessCpuSeconds() - cpu_begin);
    }
    return {MeanOverRanks(Median(wall)), MeanOverRanks(Median(cpu))};
  }

  TaskTime TimeRing(std::size_t bytes, int rounds, std::span<std::byte> out,
                    std::span<std::byte> in) {
    return TimeTask(7, [=](Communicator& world) {
      return RingRounds(world, out.first(bytes), in.first(bytes), rounds);
    });
  }

  // Processor time of an exchange: once + a round + a fraction of the time under way; from a short
  // exchange, one of many rounds, and a long one.
  json CommunicationCpu(std::span<std::byte> out, std::span<std::byte> in) {
    constexpr int kRounds = 16;
    const TaskTime one = TimeRing(0, 1, out, in);
    const TaskTime many = TimeRing(0, kRounds, out, in);
    const TaskTime large = TimeRing(out.size(), 1, out, in);
    const double longer = large.wall_seconds - one.wall_seconds;
    const double fraction =
        longer <= 0 ? 0 : std::max(0.0, (large.cpu_seconds - one.cpu_seconds) / longer);
    const auto busy = [&](const TaskTime& time) {
      return time.cpu_seconds - fraction * time.wall_seconds;
    };
    const double round = std::max(0.0, (busy(many) - busy(one)) / (kRounds - 1));
    return {{"fraction", fraction}, {"round", round}, {"once", std::max(0.0, busy(one) - round)}};
  }

  static Task NativeAllReduce(Communicator& world, std::span<float> data) {
    co_await Complete(world.NativeAllReduceSum(data));
  }

  void Links(json& profile) {
    constexpr std::size_t kLargest = 4u << 20;
    std::vector<std::byte> out(kLargest);
    std::vector<std::byte> in(kLargest);
    const double dispatch = profile["exchange_dispatch_seconds"];
    json points = json::array();
    for (std::size_t bytes = 0; bytes <= kLargest; bytes = bytes == 0 ? 1024 : bytes * 4) {
      const int rounds = bytes >= 262144 ? 2 : 10;
      points.push_back(
          {bytes,
           std::max(0.0, TimeRing(bytes, rounds, out, in).wall_seconds - dispatch) / rounds});
    }
    const json cpu = CommunicationCpu(out, in);
    constexpr int kBurst = 16;
    const auto burst = [&](int messages) {
      return TimeTask(
                 5, [&, messages](Communicator& world) { return Burst(world, out, in, messages); })
          .wall_seconds;
    };
    profile["link"] = {
        {"round_seconds", std::move(points)},
        {"seconds_per_extra_message", std::max(0.0, (burst(kBurst) - burst(1)) / (kBurst - 1))},
        {"cpu_seconds", cpu.at("once")},
        {"round_cpu_seconds", cpu.at("round")},
        {"cpu_fraction", cpu.at("fraction")}};
    bool native = false;
    rank_.loop.RunBlocking([&native](Communicator& world) {
      native = world.has_native_all_reduce();
      return Nothing();
    });
    if (!native) return;
    std::vector<float> data(kLargest / sizeof(float));
    json reduced = json::array();
    for (std::size_t bytes = 1024; bytes <= kLargest; bytes *= 4) {
      const TaskTime time = TimeTask(7, [&](Communicator& world) {
        return NativeAllReduce(world, std::span(data).first(bytes / sizeof(float)));
      });
      reduced.push_back({bytes, std::max(0.0, time.wall_seconds - dispatch)});
    }
    profile["native_all_reduce"] = std::move(reduced);
  }

  const Rank& rank_;
  std::unique_ptr<TrainingWorkload> workload_;
  std::vector<std::size_t> order_;
  GradientLayout layout_;
};

}  // namespace

void RunProfile(const Rank& rank) { Profiler(rank).Run(); }

}  // namespace sparfuse
