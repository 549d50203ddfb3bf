// Binds a method's composition and its ranks. The class Method of sparfuse/_method.py wraps them.
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "harness/python/bindings/given.hpp"
#include "harness/python/catalog.hpp"
#include "harness/python/compressors.hpp"
#include "harness/python/configured_method.hpp"
#include "harness/python/method_ranks.hpp"
#include "harness/python/module.hpp"
#include "harness/python/parts/part_call.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

class BoundMethod : public MadeByInit {
 public:
  // Without a number of threads, ranks share Threads().
  BoundMethod(const MethodSettings& settings, std::optional<int> given_threads,
              double deadline_seconds, bool verify)
      : name_(settings.name), verify_(verify), method_(settings) {
    const int threads =
        CheckedThreads(given_threads.value_or(std::max(1, Threads() / settings.world_size)));
    const std::chrono::milliseconds deadline = DeadlineOf(deadline_seconds);
    std::vector<LiveConfig> configs;
    for (int rank = 0; rank < settings.world_size; ++rank) configs.push_back(method_.MakeConfig());
    const GilReleased no_gil;
    try {
      ranks_ = std::make_unique<MethodRanks>(std::move(configs), threads, deadline);
    } catch (const std::system_error& error) {
      SPARFUSE_THROW(kUnsupported, "world_size = " + std::to_string(settings.world_size) +
                                       " with threads = " + std::to_string(threads) +
                                       ": the system starts no more threads (" + error.what() +
                                       "); expected fewer");
    }
  }

  ~BoundMethod() {
    if (!ranks_->InThisProcess()) (void)ranks_.release();
    const GilReleased no_gil;  // a rank may wait for the GIL
    ranks_.reset();
  }

  py::dict Step(const py::object& gradients, const py::object& out) {
    const auto lock = LockAlone("step");
    ranks_->RequireUsable();
    if (method_.composition().local_steps()) {
      SPARFUSE_THROW(kConfig, "step: method \"" + name_ +
                                  "\" exchanges parameters, not gradients; expected calls of "
                                  "begin, and of local_step after every update");
    }
    const std::vector<py::dict> given = ReadRanks(gradients, "gradients");
    std::vector<FloatArray> alive;
    std::vector<std::vector<std::span<const float>>> spans;
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
      spans.push_back(ReadGradients(given[rank], "gradients[" + std::to_string(rank) + "]", alive));
    }
    const std::vector<DenseResult> results = MakeResults(out);
    {
      const GilReleased no_gil;
      // Before any rank adds to its residual: residuals outlive a step that loss scaling skips.
      for (std::size_t rank = 0; rank < spans.size(); ++rank) {
        for (std::size_t t = 0; t < layout().tensors(); ++t) {
          if (spans[rank][t].empty()) continue;
          RequireFiniteTensor(t, spans[rank][t], ranks_->steps(), "rank " + std::to_string(rank));
        }
      }
      const std::uint64_t dense = method_.composition().dense_warmup_steps;
      if (dense > 0 && ranks_->steps() == dense) ranks_->Replan(method_.plan());
      ranks_->Step(spans,
                   method_.composition().feedback.DensityFactor(ranks_->steps(),
                                                                method_.composition().density),
                   verify_);
      for (std::size_t t = 0; t < results.size(); ++t) {
        std::ranges::copy(ranks_->EngineOf(0).Averaged(t), results[t].values.begin());
        // The sum of finite gradients may exceed float32.
        RequireFiniteTensor(t, results[t].values, ranks_->steps() - 1,
                            "method \"" + name_ + "\", average over the ranks");
      }
    }
    py::dict averaged;
    for (std::size_t t = 0; t < results.size(); ++t) {
      averaged[py::str(layout().tensor(t).name)] = results[t].object;
    }
    return averaged;
  }

  // Begins training with local steps.
  void Begin(const py::object& parameters) {
    const auto lock = LockAlone("begin");
    (void)Steps("begin");
    const WindowParameters given = ReadParameters(parameters);
    SPARFUSE_REQUIRE(ranks_->steps() == 0,
                     "begin: " + std::to_string(ranks_->steps()) +
                         " steps have been made; expected one call, before the first step");
    const GilReleased no_gil;
    RequireFiniteParameters(given.by_rank);
    for (std::size_t rank = 1; rank < given.by_rank.size(); ++rank) {
      for (std::size_t t = 0; t < layout().tensors(); ++t) {
        if (std::ranges::equal(given.by_rank[rank][t], given.by_rank[0][t])) continue;
        SPARFUSE_THROW(kConfig, "parameters[" + std::to_string(rank) + "][\"" +
                                    layout().tensor(t).name +
                                    "\"] differs from rank 0's: expected equal parameters on all "
                                    "ranks, because they become the anchor");
      }
    }
    ranks_->Begin(given.by_rank);
    begun_ = true;
  }

  py::dict LocalStep(const py::object& parameters) {
    const auto lock = LockAlone("local_step");
    const LocalSteps steps = Steps("local_step");
    RequireBegun("local_step");
    const WindowParameters given = ReadParameters(parameters);
    if (steps.when_idle) return IdleStep(given.by_rank);
    const std::uint64_t step = ranks_->steps() + 1;
    const FragmentDates dates(steps, fragments());
    const auto sent = dates.SentAt(step);
    auto received = dates.ReceivedAt(step);
    if (step <= finished_ + steps.delay) received.reset();  // finish() has received it
    {
      const GilReleased no_gil;
      if (sent) RequireFiniteParameters(given.by_rank);
      ranks_->LocalStep(given.by_rank, verify_);
    }
    const auto list = [](const auto& fragment) {
      return fragment ? py::list(py::make_tuple(*fragment)) : py::list();
    };
    return py::dict("sent"_a = list(sent), "received"_a = list(received));
  }

  // Without dates, each step may send, and the ranks decide whether it receives.
  py::dict IdleStep(const std::vector<ParameterView>& parameters) {
    py::list sent, received;
    {
      const GilReleased no_gil;
      RequireFiniteParameters(parameters);
      ranks_->LocalStep(parameters, verify_);
    }
    if (under_way_ && ranks_->RecordOf(0).exchanges > 0) {
      received.append(*std::exchange(under_way_, std::nullopt));
    }
    if (!under_way_) {
      sent.append(next_sent_);
      under_way_ = next_sent_;
      next_sent_ = (next_sent_ + 1) % fragments();
    }
    return py::dict("sent"_a = sent, "received"_a = received);
  }

  void FinishWindows(const py::object& parameters) {
    const auto lock = LockAlone("finish");
    (void)Steps("finish");
    RequireBegun("finish");
    const WindowParameters given = ReadParameters(parameters);
    const GilReleased no_gil;
    ranks_->Finish(given.by_rank);
    finished_ = ranks_->steps();
    under_way_.reset();
  }

  py::array Anchor(const Given<"name", std::string>& name) {
    (void)Steps("anchor");
    RequireBegun("anchor");
    return CopyOf(0, *name, "anchor",
                  [](LiveEngine& engine, Range range) { return engine.Anchor(range); });
  }

  py::array OuterState(const Given<"name", std::string>& name) {
    if (!Steps("outer_state").has_state()) {
      SPARFUSE_THROW(kConfig,
                     "outer_state: the outer rule keeps none; expected outer = \"momentum\" or "
                     "\"nesterov\"");
    }
    RequireBegun("outer_state");
    return CopyOf(0, *name, "outer_state",
                  [](LiveEngine& engine, Range range) { return engine.OuterState(range); });
  }

  py::array Residual(const Given<"rank", int>& rank, const Given<"name", std::string>& name) {
    if (method_.composition().feedback.kind == FeedbackKind::kNone) {
      SPARFUSE_THROW(kConfig,
                     "residual: feedback is \"none\": elements that are not sent are lost");
    }
    return CopyOf(*rank, *name, "residual",
                  [](LiveEngine& engine, Range range) { return engine.Residual(range); });
  }

  py::array Velocity(const Given<"rank", int>& rank, const Given<"name", std::string>& name) {
    if (method_.composition().feedback.kind != FeedbackKind::kMomentum) {
      SPARFUSE_THROW(kConfig, "velocity: expected a Method with feedback \"momentum\"");
    }
    return CopyOf(*rank, *name, "velocity",
                  [](LiveEngine& engine, Range range) { return engine.Velocity(range); });
  }

  py::list DescribePlan() {
    const auto lock = LockAlone("plan");
    py::list units;
    const Plan& plan = engine().plan();
    for (const Unit& unit : plan.units) {
      py::list tensors;
      std::size_t elements = 0;
      for (std::size_t t = unit.first; t < unit.last; ++t) {
        const TensorPlan how = plan.TensorOf(layout(), t);
        const TensorEntry& tensor = layout().tensor(t);
        tensors.append(py::dict("name"_a = tensor.name, "elements"_a = tensor.numel,
                                "density"_a = how.density, "offloaded"_a = how.offloaded,
                                "reduced"_a = how.reduced));
        elements += tensor.numel;
      }
      py::dict entry("sparsified"_a = SparsifiedName(unit.sparsified), "density"_a = unit.density,
                     "lane"_a = LaneName(unit.lane), "partitions"_a = unit.partitions,
                     "path"_a = unit.path);
      if (method_.composition().local_steps()) entry["fragment"] = unit.date;
      entry["elements"] = elements;
      entry["tensors"] = tensors;
      units.append(entry);
    }
    return units;
  }

  // The spans of the last step, without the phases that a caller of step() runs itself.
  py::list Timeline() {
    const auto lock = LockAlone("timeline");
    py::list spans;
    for (int rank = 0; rank < ranks_->ranks(); ++rank) {
      for (const Span& span : ranks_->EngineOf(rank).timeline().Sorted()) {
        if (span.kind == SpanKind::kForward || span.kind == SpanKind::kBackward ||
            span.kind == SpanKind::kUpdate) {
          continue;
        }
        py::dict entry = EntryOf(span);
        entry["rank"] = rank;
        spans.append(entry);
      }
    }
    return spans;
  }

  py::dict Bytes() {
    const auto lock = LockAlone("bytes");
    ranks_->RequireUsable();
    py::dict bytes;
    for (const auto& [name, member] : {std::pair{"payload", &StepRecord::payload_bytes},
                                       std::pair{"sent", &StepRecord::sent_bytes},
                                       std::pair{"received", &StepRecord::received_bytes}}) {
      std::vector<std::uint64_t> by_rank;
      for (int rank = 0; rank < ranks_->ranks(); ++rank) {
        by_rank.push_back(ranks_->RecordOf(rank).*member);
      }
      bytes[name] = by_rank;
    }
    return bytes;
  }

  py::dict DescribeOptions() const {
    const Composition& made = method_.composition();
    py::dict options("sparsifier"_a = made.sparsifier == nullptr ? "none" : made.sparsifier->name,
                     "sparsifier_options"_a = method_.sparsifier_options().attr("copy")(),
                     "density"_a = made.density, "feedback"_a = made.feedback.name);
    for (const Options* of :
         {&made.strategy_options, &made.planner_options, &made.collective_options}) {
      for (const auto& [key, value] : *of) options[key.c_str()] = ToPython(value);
    }
    if (made.strategy->sparsified == Sparsified::kNever) return options;
    for (const auto& [key, value] : made.sending) {
      if (key != "replan_every") options[key.c_str()] = ToPython(value);  // as Method refuses it
    }
    return options;
  }

  std::uint64_t steps() const { return ranks_->steps(); }

 private:
  LiveEngine& engine() { return ranks_->EngineOf(0); }
  const GradientLayout& layout() { return engine().layout(); }

  std::unique_lock<std::mutex> LockAlone(const char* what) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      SPARFUSE_THROW(kConfig, std::string(what) +
                                  ": a step of this Method is running; expected one thread at a "
                                  "time, and no call by its own sparsifiers");
    }
    return lock;
  }

  std::vector<py::dict> ReadRanks(const py::object& given, const std::string& what) const {
    const auto workers = static_cast<std::size_t>(ranks_->ranks());
    if (!py::isinstance<py::sequence>(given) || py::isinstance<py::str>(given)) {
      throw py::type_error(what + " is a " + TypeText(given) +
                           "; expected a list of dicts, one for each rank");
    }
    const auto list = py::reinterpret_borrow<py::sequence>(given);
    SPARFUSE_REQUIRE(
        py::len(list) == workers,
        what + " has " + std::to_string(py::len(list)) +
            " entries; expected a dict for each rank, world_size = " + std::to_string(workers));
    std::vector<py::dict> by_rank;
    for (std::size_t rank = 0; rank < workers; ++rank) {
      by_rank.push_back(ReadMapping(list[rank], what + "[" + std::to_string(rank) + "]"));
    }
    return by_rank;
  }

  LocalSteps Steps(const std::string& what) const {
    ranks_->RequireUsable();
    if (const auto steps = method_.composition().local_steps()) return *steps;
    SPARFUSE_THROW(kConfig, what + ": method \"" + name_ +
                                "\" exchanges gradients in every step; expected step, or a method "
                                "with local steps, say \"local-sgd\"");
  }

  void RequireBegun(const std::string& what) const {
    SPARFUSE_REQUIRE(begun_, what + ": there is no anchor yet; call begin first");
  }

  std::size_t fragments() {
    std::size_t most = 0;
    for (const Unit& unit : engine().plan().units) most = std::max<std::size_t>(most, unit.date);
    return most + 1;
  }

  struct WindowParameters {
    std::vector<py::array> alive;
    std::vector<ParameterView> by_rank;
  };

  // Reads all parameters of all ranks. Each parameter needs its own writable memory.
  WindowParameters ReadParameters(const py::object& parameters) {
    WindowParameters read;
    std::vector<std::pair<std::span<float>, std::string>> all;
    const std::vector<py::dict> given = ReadRanks(parameters, "parameters");
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
      ParameterView& view = read.by_rank.emplace_back();
      for (std::size_t t = 0; t < layout().tensors(); ++t) {
        const TensorEntry& tensor = layout().tensor(t);
        const std::string what =
            "parameters[" + std::to_string(rank) + "][\"" + tensor.name + "\"]";
        SPARFUSE_REQUIRE(given[rank].contains(tensor.name.c_str()),
                         what + " is missing: expected an array for each tensor of the layout");
        read.alive.push_back(ViewArray(given[rank][tensor.name.c_str()], what));
        const py::array& array = read.alive.back();
        view.push_back(WritableFloats(array, what));
        RequireLayoutShape(what, {array.shape(), array.shape() + array.ndim()}, tensor);
        all.emplace_back(view.back(), what);
      }
    }
    std::ranges::sort(all, {}, [](const auto& entry) { return entry.first.data(); });
    for (std::size_t i = 1; i < all.size(); ++i) {
      SPARFUSE_REQUIRE(all[i - 1].first.data() + all[i - 1].first.size() <= all[i].first.data(),
                       all[i].second + " shares memory with " + all[i - 1].second +
                           ": expected separate arrays for each rank, because they are written to");
    }
    return read;
  }

  static void RequireLayoutShape(const std::string& what, const std::vector<std::int64_t>& shape,
                                 const TensorEntry& tensor) {
    SPARFUSE_REQUIRE(shape == tensor.shape, what + " has shape " + ShapeText(shape) +
                                                "; expected the layout's shape, " +
                                                ShapeText(tensor.shape));
  }

  void RequireFiniteParameters(const std::vector<ParameterView>& by_rank) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (std::size_t t = 0; t < layout().tensors(); ++t) {
        const std::span<const float> values = by_rank[rank][t];
        const std::size_t bad = FirstNotFinite(values);
        if (bad == values.size()) continue;
        const std::uint64_t steps = ranks_->steps(), every = Steps("local_step").every;
        SPARFUSE_THROW(kNumeric, "rank " + std::to_string(rank) + ": parameters of tensor \"" +
                                     layout().tensor(t).name + "\", step " + std::to_string(steps) +
                                     " in window " + std::to_string(steps / every) + ": element " +
                                     std::to_string(bad) + " of " + std::to_string(values.size()) +
                                     " is " + std::to_string(values[bad]) +
                                     "; expected finite parameters");
      }
    }
  }

  py::dict ReadMapping(const py::object& given, const std::string& what) const {
    if (!py::isinstance<py::dict>(given) && !py::hasattr(given, "items")) {
      throw py::type_error(what + " is a " + TypeText(given) +
                           "; expected a dict of names and arrays");
    }
    py::dict mapping(given);
    for (const auto& [key, value] : mapping) {
      const auto name = ReadAs<std::string>(py::str(key), what + ": a name");
      if (!py::isinstance<py::str>(key) || !method_.PositionOf(name)) {
        SPARFUSE_THROW(kConfig, what + " has \"" + name + "\", which is not in the layout" +
                                    Suggestion(name, method_.TensorNames()));
      }
    }
    return mapping;
  }

  std::vector<std::span<const float>> ReadGradients(const py::dict& given, const std::string& what,
                                                    std::vector<FloatArray>& alive) {
    std::vector<std::span<const float>> spans(layout().tensors());
    for (const auto& [key, value] : given) {
      if (value.is_none()) continue;
      const auto name = key.cast<std::string>();
      const std::string which = what + "[\"" + name + "\"]";
      const std::size_t position = *method_.PositionOf(name);
      FloatArray& array = alive.emplace_back(ReadFloats(value, which));
      RequireLayoutShape(which, array.shape, layout().tensor(position));
      spans[position] = array.values();
    }
    return spans;
  }

  // Refuses the values of tensor t at a step with an error that begins with `whose`.
  void RequireFiniteTensor(std::size_t t, std::span<const float> values, std::uint64_t step,
                           const std::string& whose) {
    const TensorEntry& tensor = layout().tensor(t);
    try {
      RequireFinite(*ModulePool(), values,
                    {TensorId(tensor.name), tensor.name, tensor.shape, step});
    } catch (const Error& error) {
      throw Error(error.kind(), whose + ": " + error.what());
    }
  }

  std::vector<DenseResult> MakeResults(const py::object& out) {
    py::dict given;
    if (!out.is_none()) given = ReadMapping(out, "out");
    std::vector<DenseResult> results;
    for (std::size_t t = 0; t < layout().tensors(); ++t) {
      const TensorEntry& tensor = layout().tensor(t);
      const std::string what = "out[\"" + tensor.name + "\"]";
      py::object into = py::none();
      if (!out.is_none()) {
        SPARFUSE_REQUIRE(given.contains(tensor.name.c_str()),
                         what + " is missing: expected an array for each tensor of the layout");
        into = given[tensor.name.c_str()];
      }
      results.push_back(MakeDense(into, tensor.shape, what));
    }
    return results;
  }

  template <class Get>
  py::array CopyOf(int rank, const std::string& name, const char* what, const Get& get) {
    const auto lock = LockAlone(what);
    SPARFUSE_REQUIRE(rank >= 0 && rank < ranks_->ranks(),
                     std::string(what) + ": rank = " + std::to_string(rank) + ": expected 0 to " +
                         std::to_string(ranks_->ranks() - 1));
    const auto position = method_.PositionOf(name);
    if (!position) {
      SPARFUSE_THROW(kConfig, std::string(what) + ": \"" + name + "\" is not in the layout" +
                                  Suggestion(name, method_.TensorNames()));
    }
    const TensorEntry& tensor = layout().tensor(*position);
    const std::span<const float> values = get(ranks_->EngineOf(rank), tensor.range());
    return ArrayMemory<float>(values).Release(tensor.shape);
  }

  std::string name_;
  bool verify_;
  bool begun_ = false;          // for local steps
  std::uint64_t finished_ = 0;  // steps made before the last finish()
  // Fragments, without dates.
  std::optional<std::size_t> under_way_;
  std::size_t next_sent_ = 0;
  ConfiguredMethod method_;  // outlives the ranks, which use its objects
  std::mutex mutex_;         // guards ranks_
  std::unique_ptr<MethodRanks> ranks_;
};

py::list ListMethodFiles() {
  py::list files;
  for (const EmbeddedMethod& file : MethodFiles()) {
    files.append(py::make_tuple(file.path, file.toml));
  }
  return files;
}

py::dict ListOptions(const std::string& strategy, const std::string& planner,
                     const std::string& collective) {
  py::dict options("strategy"_a = DescribeOptions(FindStrategy(strategy).options),
                   "planner"_a = DescribeOptions(FindPlanner(planner).options),
                   "collective"_a = DescribeOptions(FindCollective(collective).options));
  if (FindStrategy(strategy).sparsified != Sparsified::kNever) {
    options["payload"] = DescribeOptions(SendingOptions());
  }
  return options;
}

}  // namespace

int CheckedThreads(int threads) {
  SPARFUSE_REQUIRE(
      threads >= 1 && threads <= kMostThreads,
      "threads = " + std::to_string(threads) + ": expected 1 to " + std::to_string(kMostThreads));
  return threads;
}

std::chrono::milliseconds DeadlineOf(double seconds) {
  SPARFUSE_REQUIRE(seconds > 0 && seconds <= 86400,
                   "deadline_seconds = " + std::to_string(seconds) +
                       ": expected a number above 0, at most 86400");
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds) + 1);
}

py::dict EntryOf(const Span& span) {
  return py::dict("kind"_a = SpanKindName(span.kind), "lane"_a = span.lane, "label"_a = span.label,
                  "begin_seconds"_a = span.begin_seconds, "end_seconds"_a = span.end_seconds,
                  "bytes"_a = span.bytes);
}

void BindMethod(py::module_& module) {
  module.def(
      "_watch_parts",
      [](const Given<"deadline_seconds", double>& deadline_seconds) {
        const char* const rank = std::getenv("RANK");  // of torchrun
        WatchPartCalls(
            {DeadlineOf(*deadline_seconds), rank == nullptr ? "" : std::string("rank ") + rank});
      },
      py::arg("deadline_seconds"));
  py::class_<BoundMethod>(module, "_Method")
      .def(py::init([](const py::kwargs& settings) {
        const auto read = [&]<class T>(const char* key, const T&) {
          return ReadAs<T>(py::object(settings[key]), key);
        };
        return Make<BoundMethod>(ReadSettings(settings), read("threads", std::optional<int>()),
                                 read("deadline_seconds", double()), read("verify", bool()));
      }))
      .def("step", &BoundMethod::Step, py::arg("gradients"), py::arg("out"))
      .def("begin", &BoundMethod::Begin, py::arg("parameters"))
      .def("local_step", &BoundMethod::LocalStep, py::arg("parameters"))
      .def("finish", &BoundMethod::FinishWindows, py::arg("parameters"))
      .def("anchor", &BoundMethod::Anchor, py::arg("name"))
      .def("outer_state", &BoundMethod::OuterState, py::arg("name"))
      .def("plan", &BoundMethod::DescribePlan)
      .def("residual", &BoundMethod::Residual, py::arg("rank"), py::arg("name"))
      .def("velocity", &BoundMethod::Velocity, py::arg("rank"), py::arg("name"))
      .def("timeline", &BoundMethod::Timeline)
      .def("bytes", &BoundMethod::Bytes)
      .def("options", &BoundMethod::DescribeOptions)
      .def_property_readonly("steps", &BoundMethod::steps);
  module.def(
      "_suggestion",
      [](const std::string& name, const std::vector<std::string>& known) {
        return Suggestion(name, known);
      },
      py::arg("name"), py::arg("known"));
  module.def("_method_files", &ListMethodFiles);
  module.def("_method_options", &ListOptions, py::arg("strategy"), py::arg("planner"),
             py::arg("collective"));
}

}  // namespace sparfuse::python
