#include "harness/traces/kineto_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::ordered_json;

constexpr int kHostThread = 1;  // thread of the rank's process
constexpr int kComputeStream = 7, kSideStream = 13, kFirstChannel = 20;
constexpr double kLaunchUs = 1;

bool OnDevice(const Span& span) {
  return span.kind != SpanKind::kExposed && span.kind != SpanKind::kAlign &&
         !span.lane.starts_with("host");
}

// Whether DDP's hook would do the work, which lies between a gradient and the next backward work.
bool IsOfHook(const Span& span) {
  return span.lane == "compute" &&
         (span.kind == SpanKind::kPack || span.kind == SpanKind::kSparsify);
}

class KinetoWriter {
 public:
  explicit KinetoWriter(const KinetoStep& step) : step_(step) {
    FindSteps();
    for (const Span& span : step.spans) {
      end_ = std::max(end_, Us(span.end_seconds));
      if (span.kind != SpanKind::kBackward) continue;
      Step& of = StepAt(Us(span.begin_seconds));
      if (of.backward_end == 0) of.backward_begin = Us(span.begin_seconds);
      of.backward_end = std::max(of.backward_end, Us(span.end_seconds));
    }
  }

  std::string Write() {
    Annotations();
    for (std::size_t i = 0; i < step_.spans.size(); ++i) Add(i);
    return Head() + Events() + "\n]}\n";
  }

 private:
  static double Us(double seconds) { return 1e6 * seconds; }

  struct Step {
    double begin = 0, backward_begin = 0, backward_end = 0;
  };

  // With local steps a trial keeps the spans of a window: the forward pass after an update begins a
  // step, and what is before the first one belongs to it.
  void FindSteps() {
    bool updated = true;  // since the last step's begin
    std::vector<const Span*> passes;
    for (const Span& span : step_.spans) {
      if (span.kind == SpanKind::kForward || span.kind == SpanKind::kUpdate)
        passes.push_back(&span);
    }
    std::ranges::stable_sort(passes, {}, &Span::begin_seconds);
    for (const Span* span : passes) {
      const bool forward = span->kind == SpanKind::kForward;
      if (forward && updated) steps_.push_back({Us(span->begin_seconds)});
      updated = !forward;
    }
    if (steps_.empty()) steps_.push_back({});
    steps_.front().begin = 0;
  }
  Step& StepAt(double us) {
    const auto after = std::ranges::upper_bound(steps_, us, {}, &Step::begin);
    return after == steps_.begin() ? *after : *std::prev(after);
  }

  // HolisticTraceAnalysis reads line by line, and finds "rank": by the white space after it.
  std::string Head() const {
    return fmt::format(
        "{{\n\"schemaVersion\": 1,\n\"deviceProperties\": [],\n\"distributedInfo\": {{\"backend\": "
        "\"nccl\", \"rank\": {}, \"world_size\": {}, \"pg_count\": 1}},\n{}\"displayTimeUnit\": "
        "\"ms\",\n\"baseTimeNanoseconds\": 0,\n\"traceEvents\": [\n",
        step_.rank, step_.world,
        step_.modelled ? "\"sparfuse\": {\"modelled\": true},\n" : "\"sparfuse\": {},\n");
  }

  void Emit(const char* category, const std::string& name, int process, int thread, double begin,
            double end, ordered_json arguments) {
    ordered_json event = {
        {"ph", "X"},     {"cat", category}, {"name", name}, {"pid", process},
        {"tid", thread}, {"ts", 0},         {"dur", 0},     {"args", std::move(arguments)}};
    std::string text = event.dump();
    // Times are in nanoseconds, as in the profiler. If an event begins at another's end, both times
    // are the same nanosecond.
    const auto put = [&](const char* key, std::int64_t ns) {
      const std::string from = fmt::format("\"{}\":0", key);
      text.replace(text.find(from), from.size(),
                   fmt::format("\"{}\":{}.{:03}", key, ns / 1000, ns % 1000));
    };
    const std::int64_t first = std::llround(1e3 * begin);
    put("ts", first);
    put("dur", std::max<std::int64_t>(0, std::llround(1e3 * end) - first));
    events_.emplace_back(begin, std::move(text));
  }
  int Host() const { return 1000 + step_.rank; }
  static ordered_json Synthetic() { return {{"sparfuse", "synthetic"}}; }

  void Annotations() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const double end = i + 1 < steps_.size() ? steps_[i + 1].begin : end_ + 2 * kLaunchUs;
      Emit("user_annotation", fmt::format("ProfilerStep#{}", i), Host(), kHostThread,
           steps_[i].begin, end, Synthetic());
      ordered_json forward = Synthetic();
      forward["Sequence number"] = i + 1;
      forward["Fwd thread id"] = 0;
      Emit("cpu_op", "sparfuse::forward", Host(), kHostThread, steps_[i].begin,
           steps_[i].backward_begin, forward);
    }
    // HolisticTraceAnalysis drops the last of several steps: an empty one.
    if (steps_.size() == 1) return;
    const double last = end_ + 2 * kLaunchUs;
    Emit("user_annotation", fmt::format("ProfilerStep#{}", steps_.size()), Host(), kHostThread,
         last, last + kLaunchUs, Synthetic());
  }

  void Evaluation(const std::string& node, double begin, double end) {
    Emit("cpu_op", "autograd::engine::evaluate_function: " + node, Host(), kHostThread, begin, end,
         Synthetic());
  }

  // The gradient is ready at the end of its kernel. A launch is at its kernel's begin.
  void Gradient(std::size_t i) {
    const Span& span = step_.spans[i];
    const double end = Us(span.end_seconds);
    const auto tensor = std::ranges::find(step_.tensors, span.label, &LayoutTensor::name);
    if (tensor == step_.tensors.end()) return;
    // The hook's work follows at once, if there is any.
    double hook_end = end;
    for (std::size_t next = i + 1; next < step_.spans.size(); ++next) {
      const Span& other = step_.spans[next];
      if (other.lane != "compute" || !OnDevice(other)) continue;
      if (!IsOfHook(other)) break;
      hook_end = std::max(hook_end, Us(other.end_seconds));
    }
    Evaluation("torch::autograd::AccumulateGrad", end, hook_end);
    ordered_json shape = Synthetic();
    shape["Input Dims"] = {tensor->shape};
    shape["Input type"] = {"float"};
    Emit("cpu_op", "torch::autograd::AccumulateGrad", Host(), kHostThread, end, end, shape);
    if (hook_end > end)
      Emit("cpu_op", "sparfuse::hook", Host(), kHostThread, end, hook_end, Synthetic());
  }

  void Launched(const Span& span, int stream, const std::string& name, double launch,
                ordered_json arguments) {
    const std::int64_t correlation = ++correlation_;
    ordered_json of_launch = Synthetic();
    of_launch["correlation"] = correlation;
    of_launch["External id"] = correlation;
    Emit("cuda_runtime", "cudaLaunchKernel", Host(), kHostThread, launch,
         std::min(launch + kLaunchUs, Us(span.end_seconds)), of_launch);
    arguments["device"] = 0;
    arguments["stream"] = stream;
    arguments["correlation"] = correlation;
    arguments["External id"] = correlation;
    Emit("kernel", name, step_.rank, stream, Us(span.begin_seconds), Us(span.end_seconds),
         std::move(arguments));
  }

  void Broadcast(const Span& span) {
    Launched(span, kFirstChannel, fmt::format("ncclDevKernel_Broadcast_RING_LL {}", span.label),
             Us(span.begin_seconds),
             {{"Collective name", "broadcast"},
              {"In msg nelems", span.bytes},
              {"Out msg nelems", span.bytes},
              {"dtype", "Byte"},
              {"Group size", step_.world},
              {"Process Group Name", "0"},
              {"bytes", span.bytes}});
  }

  void Exchange(const Span& span) {
    ordered_json arguments = {{"Collective name", step_.dense ? "allreduce" : "allgather"},
                              {"In msg nelems", span.bytes / sizeof(float)},
                              {"Out msg nelems", span.bytes / sizeof(float)},
                              {"dtype", "Float"},
                              {"Group size", step_.world},
                              {"Process Group Name", "0"},
                              {"bytes", span.bytes}};
    const std::string name = fmt::format(
        "{} exchange {}",
        step_.dense ? "ncclDevKernel_AllReduce_Sum_f32_RING_LL" : "ncclDevKernel_AllGather_RING_LL",
        span.label);
    const int channel =
        channels_.try_emplace(span.lane, static_cast<int>(channels_.size())).first->second;
    // A hook makes the last launch at the latest, because backward does not wait.
    const double begin = Us(span.begin_seconds);
    const Step& step = StepAt(begin);
    const double launch =
        std::clamp(begin, step.backward_begin, std::max(step.backward_begin, step.backward_end));
    Launched(span, kFirstChannel + channel, name, launch, std::move(arguments));
  }

  void Add(std::size_t i) {
    const Span& span = step_.spans[i];
    const std::string name =
        fmt::format("{}{}{}", SpanKindName(span.kind), span.label.empty() ? "" : " ", span.label);
    const double begin = Us(span.begin_seconds), end = Us(span.end_seconds);
    if (!OnDevice(span)) {
      if (span.lane.starts_with("host"))
        Emit("cpu_op", "sparfuse::" + name, Host(), kHostThread + 1, begin, end, Synthetic());
      return;
    }
    if (span.kind == SpanKind::kExchange) {
      span.label == kBuffersLabel ? Broadcast(span) : Exchange(span);
      return;
    }
    if (span.kind == SpanKind::kNegotiate) {
      Emit("cpu_op", "sparfuse::" + name, Host(), kHostThread + 2, begin, end, Synthetic());
      return;
    }
    if (span.kind == SpanKind::kBackward)
      Evaluation(span.label.empty() ? "Backward" : span.label, begin, begin);
    if (span.kind == SpanKind::kUpdate) {
      Emit("user_annotation", "Optimizer.step#sparfuse.step", Host(), kHostThread, begin, end,
           Synthetic());
    }
    Launched(span, span.lane == "side" ? kSideStream : kComputeStream, name, begin, Synthetic());
    if (span.kind == SpanKind::kBackward) Gradient(i);
    // The last evaluation ends backward, which goes on after the last gradient.
    if (span.kind == SpanKind::kBackward && end >= StepAt(begin).backward_end)
      Evaluation("End", end, end);
  }

  std::string Events() {
    std::ranges::stable_sort(events_, {}, &std::pair<double, std::string>::first);
    std::string text;
    for (const auto& [begin, event] : events_) text += (text.empty() ? "" : ",\n") + event;
    return text;
  }

  const KinetoStep& step_;
  std::vector<Step> steps_;
  double end_ = 0;
  std::int64_t correlation_ = 0;
  std::map<std::string, int> channels_;
  std::vector<std::pair<double, std::string>> events_;
};

// trace.json has whole nanoseconds of begins and durations, so that the end of a span may miss the
// begin of the next one on its lane by a nanosecond. A launch that far within a hook, or a hook
// before its gradient, would count as the other's work.
void JoinNeighbours(std::vector<Span>& spans) {
  constexpr double kRoundingSeconds = 1.5e-9;
  std::map<std::string_view, std::vector<Span*>> lanes;
  for (Span& span : spans) lanes[span.lane].push_back(&span);
  for (auto& [lane, on_lane] : lanes) {
    std::ranges::stable_sort(on_lane, {}, &Span::begin_seconds);
    for (std::size_t i = 1; i < on_lane.size(); ++i) {
      double& end = on_lane[i - 1]->end_seconds;
      if (std::abs(on_lane[i]->begin_seconds - end) < kRoundingSeconds)
        end = on_lane[i]->begin_seconds;
    }
  }
}

}  // namespace

std::string KinetoTrace(const KinetoStep& step) { return KinetoWriter(step).Write(); }

std::map<int, std::vector<Span>> SpansOfTrace(std::string_view text, const std::string& file) {
  const nlohmann::json trace = ParseJson(text, file);
  std::map<std::pair<int, int>, std::string> lanes;
  std::map<int, std::vector<Span>> by_rank;
  try {
    for (const auto& event : trace.at("traceEvents")) {
      const int rank = event.at("pid");
      if (event.at("ph") == "M" && event.at("name") == "thread_name")
        lanes[{rank, event.at("tid")}] = event.at("args").at("name");
      if (event.at("ph") != "X") continue;
      Span span;
      const std::string kind = event.at("cat"), name = event.at("name");
      span.lane = lanes.at({rank, event.at("tid")});
      span.label = name.size() > kind.size() ? name.substr(kind.size() + 1) : "";
      span.begin_seconds = 1e-6 * event.at("ts").get<double>();
      span.end_seconds = span.begin_seconds + 1e-6 * event.at("dur").get<double>();
      span.bytes = event.at("args").at("bytes");
      bool known = false;
      for (int k = 0; k <= static_cast<int>(SpanKind::kOuter) && !known; ++k) {
        span.kind = static_cast<SpanKind>(k);
        known = SpanKindName(span.kind) == kind;
      }
      if (!known) SPARFUSE_THROW(kData, "cat = \"" + kind + "\"");
      by_rank[rank].push_back(std::move(span));
    }
  } catch (const std::exception& error) {
    SPARFUSE_THROW(kData, fmt::format("{}: no trace of sparfuse ({}): expected trace.json of a "
                                      "trial",
                                      file, error.what()));
  }
  for (auto& [rank, spans] : by_rank) JoinNeighbours(spans);
  return by_rank;
}

}  // namespace sparfuse::harness
