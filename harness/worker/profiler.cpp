#include "harness/worker/profiler.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <span>

#include "core/collective/accumulate.hpp"
#include "core/engine/live_engine.hpp"
#include "harness/profile_data.hpp"
#include "harness/statistics.hpp"
#include "harness/worker/link_profile.hpp"
#include "harness/worker/timing.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
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
  Profiler(const Rank& rank, const ProfileSubject& subject, const ProfileEffort& effort)
      : rank_(rank), subject_(subject), workload_(subject.workload), effort_(effort) {
    for (const std::size_t parameter : subject.ready_order) {
      const ParameterInfo& info = workload_.Parameters()[parameter];
      layout_.Add(info.name, info.shape, info.numel);
    }
    gradient_ = Gaussian(layout_.numel(), 1 + static_cast<std::uint64_t>(rank.rank()));
  }

  json Measure() {
    json profile;
    profile["backward"] = Backward();
    profile["dispatch_seconds"] = Dispatch();
    profile["exchange_dispatch_seconds"] = ExchangeDispatch();
    Copies(profile);
    Decompression(profile);
    profile["selection"] = Selections(rank_.pool);
    if (rank_.pool.threads() > 1) {  // the host lane has one thread
      ThreadPool host(1);
      profile["host_selection"] = Selections(host);
    }
    profile["encode"] = Encodings();
    if (rank_.size() > 1) ProfileLinks(rank_, effort_.repeats, profile);
    return profile;
  }

 private:
  using Samples = std::map<std::string, std::vector<double>>;

  LiveConfig EngineConfig(GradientLayout layout, std::unique_ptr<Strategy> strategy) const {
    LiveConfig config;
    config.plan = {{Unit{0, layout.tensors(), Sparsified::kNever, 1.0}}};
    config.layout = std::move(layout);
    config.topology = {rank_.size(), rank_.config.at("ranks_per_node").get<int>()};
    config.strategy = std::move(strategy);
    return config;
  }

  double MeanTimeOf(const std::function<void()>& body) const {
    return MeanOverRanks(rank_, TimeOf(body, effort_.repeats));
  }

  json Backward() {
    LiveEngine engine(EngineConfig(layout_, std::make_unique<Idle>()), rank_.loop, rank_.pool);
    std::vector<std::size_t> position(workload_.Parameters().size());
    std::vector<const float*> gradients(position.size());
    for (std::size_t t = 0; t < layout_.tensors(); ++t) position[subject_.ready_order[t]] = t;
    workload_.SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t numel) {
      gradients[parameter] = gradient;
      engine.AnnounceGradient(position[parameter], {gradient, numel});
    });
    double last_seconds = 0;
    std::uint64_t step = 0;
    const auto next_step = [&] {
      rank_.Synchronise();
      const auto begin = Clock::now();
      const StepRecord record = Step(engine, step++, gradients);
      last_seconds = SecondsSince(begin);
      return record;
    };
    for (int i = 0; i < effort_.warmup_steps; ++i) next_step();
    // As many on every rank: the slowest decides.
    const auto nanoseconds =
        static_cast<double>(rank_.Max({std::llround(1e9 * last_seconds)}).front());
    const int fitting =
        nanoseconds > 0 ? static_cast<int>(effort_.seconds / (1e-9 * nanoseconds)) : 0;
    const int steps = std::max(effort_.steps, fitting);
    Samples samples;
    for (int i = 0; i < steps; ++i) Sample(next_step(), engine.timeline(), samples);
    workload_.SetGradientHook({});
    return BackwardJson(samples, steps);
  }

  StepRecord Step(LiveEngine& engine, std::uint64_t step,
                  const std::vector<const float*>& gradients) {
    const int micro_steps = rank_.config.at("accumulation");
    engine.BeginStep(step, false);
    workload_.ClearGradients();
    for (int micro = 0; micro < micro_steps; ++micro) {
      engine.BeginForward();
      workload_.Forward(step, micro);
      engine.EndForward();
      workload_.Backward(micro + 1 == micro_steps);
      if (micro + 1 < micro_steps) engine.EndMicroStep();
    }
    engine.EndBackward();
    for (const std::size_t parameter : subject_.ready_order)
      workload_.SetGradient(parameter, gradients[parameter]);
    engine.BeginUpdate();
    workload_.Update(step);
    return engine.EndStep();
  }

  static void Sample(const StepRecord& record, const Timeline& timeline, Samples& samples) {
    samples["begin"].push_back(record.step_seconds - record.forward_seconds -
                               record.backward_seconds - record.update_seconds);
    samples["forward"].push_back(record.forward_seconds);
    samples["update"].push_back(record.update_seconds);
    for (const Span& span : timeline.Sorted()) {
      if (span.kind == SpanKind::kBackward) {
        samples["backward " + span.label].push_back(span.end_seconds - span.begin_seconds);
      }
    }
  }

  json BackwardJson(const Samples& samples, int steps) const {
    const auto median = [&](const std::string& name) {
      const auto it = samples.find(name);
      return MeanOverRanks(rank_, it == samples.end() ? 0 : Median(it->second));
    };
    json tensors = json::array();
    for (std::size_t t = 0; t < layout_.tensors(); ++t) {
      const TensorEntry& tensor = layout_.tensor(t);
      tensors.push_back({{"name", tensor.name},
                         {"shape", tensor.shape},
                         {"numel", tensor.numel},
                         {"seconds", median("backward " + tensor.name)}});
    }
    const int micro_steps = rank_.config.at("accumulation");
    return {
        {"steps", steps},
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
    for (int repeat = 0; repeat < effort_.repeats; ++repeat) {
      engine.BeginStep(static_cast<std::uint64_t>(repeat), false);
      const auto begin = Clock::now();
      for (std::size_t t = 0; t < kTensors; ++t) engine.AnnounceGradient(t, {&gradient, 1});
      times.push_back(SecondsSince(begin) / kTensors);
      engine.EndBackward();
    }
    return Median(times);
  }

  double Dispatch() {
    rank_.Synchronise();
    const double with = SecondsPerAnnouncement(std::make_unique<PackOnly>());
    rank_.Synchronise();
    const double without = SecondsPerAnnouncement(std::make_unique<Idle>());
    return MeanOverRanks(rank_, std::max(0.0, with - without));
  }

  static Task Nothing() { co_return; }

  double ExchangeDispatch() {
    rank_.Synchronise();
    return MeanTimeOf([this] { rank_.loop.RunBlocking([](Communicator&) { return Nothing(); }); });
  }

  void Copies(json& profile) {
    const std::size_t largest = layout_.numel();
    const std::vector<std::size_t> sizes = Sizes(largest);
    const std::span<const float> gradient(gradient_);
    std::vector<float> work(largest);
    rank_.Synchronise();
    profile["pack"] = Curve(sizes, [&](std::size_t n) {
      return MeanTimeOf(
          [&] { CopyFinite(gradient.first(n), std::span(work).first(n), rank_.pool); });
    });
    profile["scale"] = Curve(sizes, [&](std::size_t n) {
      return MeanTimeOf(
          [&] { ScaleDense(gradient.first(n), 0.5f, std::span(work).first(n), rank_.pool); });
    });
    const std::size_t added = std::min<std::size_t>(largest, 262144);
    profile["seconds_per_reduced_element"] =
        MeanTimeOf([&] { AddInto(gradient.first(added), std::span(work).first(added)); }) /
        static_cast<double>(added);
  }

  // {sparsifier: [{"density", "seconds": [[elements, seconds, shape], ...]}, ...]}
  json Selections(ThreadPool& pool) {
    const std::vector<TimedShape> shapes = ShapesToTime(layout_);
    json selections = json::object();
    rank_.Synchronise();
    for (const TimedSparsifier& timed : subject_.sparsifiers) {
      json& curves = selections[std::string(timed.descriptor->name)];
      for (const double density : timed.densities) {
        json points = json::array();
        for (const TimedShape& shape : shapes) {
          points.push_back(
              {shape.numel, SelectionSeconds(timed, shape, density, pool), shape.shape});
        }
        curves.push_back({{"density", density}, {"seconds", std::move(points)}});
      }
    }
    return selections;
  }

  double SelectionSeconds(const TimedSparsifier& timed, const TimedShape& shape, double density,
                          ThreadPool& pool) {
    const Sparsifier& sparsifier = *timed.sparsifier;
    const std::size_t n = shape.numel;
    SelectCounters counters;
    const SelectContext context{&pool, &workspace_, &counters, {}};
    Buffer<float> residual(n);
    const std::size_t capacity =
        SlotCapacityFor(*timed.descriptor, sparsifier, n, shape.shape, density);
    Buffer<std::uint32_t> indices(capacity);
    Buffer<float> values(capacity);
    Slot slot{indices.view(), values.view(), capacity, 0};
    const auto state = sparsifier.MakeState(n);
    TensorInfo info;
    info.name = "profile";
    info.shape = shape.shape;
    const SelectSource source{{gradient_.data(), n, {}}, residual.view()};
    return MeanTimeOf([&] {
      ++info.step;
      sparsifier.Select(context, source, density, info, state.get(), slot);
    });
  }

  // {quantizer: [[elements, seconds], ...]} up to the largest tensor, with error feedback.
  json Encodings() {
    json encodings = json::object();
    const QuantizeContext context{&rank_.pool, &workspace_, rank_.rank()};
    for (const auto& quantizer : subject_.quantizers) {
      encodings[std::string(quantizer->name())] = Curve(Sizes(LargestTensor()), [&](std::size_t n) {
        Buffer<float> residual(n);
        Buffer<std::byte> out(quantizer->EncodedBytes(n));
        TensorInfo info;
        info.name = "profile";
        const SelectSource source{{gradient_.data(), n, {}}, residual.view()};
        return MeanTimeOf([&] {
          ++info.step;
          quantizer->Encode(context, source, info, out.host());
        });
      });
    }
    return encodings;
  }

  std::size_t LargestTensor() const {
    std::size_t largest = 1;
    for (std::size_t t = 0; t < layout_.tensors(); ++t)
      largest = std::max(largest, layout_.tensor(t).numel);
    return largest;
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
    return MeanTimeOf([&] { AccumulateSparse(payloads, 0.5f, out, rank_.pool); });
  }

  void Decompression(json& profile) {
    constexpr double kDense = 0.02;
    rank_.Synchronise();
    const std::size_t n = layout_.numel();
    profile["clear"] =
        Curve(Sizes(n), [&](std::size_t elements) { return DecompressSeconds(elements, 0); });
    const double entries = std::max(2, rank_.size()) * kDense * static_cast<double>(n);
    profile["seconds_per_entry"] =
        std::max(0.0, (DecompressSeconds(n, kDense) - DecompressSeconds(n, 0)) / entries);
  }

  const Rank& rank_;
  const ProfileSubject& subject_;
  TrainingWorkload& workload_;
  ProfileEffort effort_;
  GradientLayout layout_;
  std::vector<float> gradient_;  // made up: what kernels work on
  Workspace workspace_;
};

}  // namespace

json MeasureProfile(const Rank& rank, const ProfileSubject& subject, const ProfileEffort& effort) {
  const auto begin = Clock::now();
  json profile = Profiler(rank, subject, effort).Measure();
  profile["seconds"] = MeanOverRanks(rank, SecondsSince(begin));
  return profile;
}

}  // namespace sparfuse
