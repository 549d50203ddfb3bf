// Binds one rank of a method for sparfuse/torch, which hooks the rank into backward passes.
#include <pybind11/stl.h>

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/bindings/given.hpp"
#include "harness/python/configured_method.hpp"
#include "harness/python/method_rank.hpp"
#include "harness/python/module.hpp"
#include "harness/python/parts/part_call.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;

MethodSettings ReadSettings(const py::kwargs& given) {
  const auto read = [&]<class T>(const char* key, const T&, const char* shown = nullptr) {
    return ReadAs<T>(py::object(given[key]), shown == nullptr ? key : shown);
  };
  const auto ranks = [&](const char* key) {
    return static_cast<int>(ReadInteger(given[key], key, 1, kMostRanks));
  };
  using Texts = std::vector<std::string>;
  return {read("name", std::string()),
          given["file"].cast<py::dict>(),
          given["options"].cast<py::dict>(),
          read("keywords", Texts()),
          ranks("world_size"),
          ranks("ranks_per_node"),
          given["layout"].cast<std::vector<std::pair<std::string, py::object>>>(),
          read("density", double()),
          read("sparsifier", std::string()),
          given["sparsifier_options"].cast<py::dict>(),
          read("feedback", std::string()),
          given["feedback_options"].cast<py::dict>(),
          {read("dense_max_ndim", std::size_t(), "dense_tensors: max_ndim"),
           read("dense_tensors", Texts()), read("no_feedback_tensors", Texts())},
          ReadSeed(given["seed"]),
          read("gbps", double(), "link: gbps"),
          read("alpha_us", double(), "link: alpha_us"),
          read("backward_seconds", std::optional<std::vector<double>>())};
}

namespace {

// Raises KeyboardInterrupt, for instance, while the main thread waits for other ranks.
void LookAtSignals() {
  const GilHeld gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

class BoundListener : public MadeByInit {
 public:
  BoundListener(const std::string& interface, const std::string& toward)
      : listener_(interface, toward), address_(listener_.address()) {}
  const std::string& address() const { return address_; }
  TcpListener Take() { return std::move(listener_); }

 private:
  TcpListener listener_;
  std::string address_;
};

class BoundRank : public MadeByInit {
 public:
  BoundRank(BoundListener& listener, std::vector<std::string> addresses, int rank,
            double deadline_seconds, const py::kwargs& settings)
      : number_(rank), ranks_(static_cast<int>(addresses.size())), method_(ReadSettings(settings)) {
    SPARFUSE_REQUIRE(!method_.composition().local_steps(),
                     "ranks exchange gradients here, but the method exchanges parameters once in a "
                     "window of steps; "
                     "expected sf.local_steps(model, optimizer, every=..., method=...) with a "
                     "method that exchanges "
                     "gradients, such as \"dense\", or sparfuse.Method");
    SPARFUSE_REQUIRE(!method_.composition().strategy->delays,
                     "distribute gives the optimizer the averages of each step, but the method's "
                     "first step has none; expected another method, or sparfuse.Method");
    const std::chrono::milliseconds deadline = DeadlineOf(deadline_seconds);
    const int threads = CheckedThreads(
        ReadAs<std::optional<int>>(py::object(settings["threads"]), "threads").value_or(Threads()));
    const bool verify = ReadAs<bool>(py::object(settings["verify"]), "verify");
    LiveConfig config = method_.MakeConfig();
    memories_ = MemoriesOf(config);
    first_ = SaveMemories(memories_);
    TcpListener taken = listener.Take();
    const GilReleased no_gil;
    try {
      rank_ = std::make_unique<MethodRank>(std::move(config), std::move(taken),
                                           std::move(addresses), rank, threads, deadline, verify,
                                           &LookAtSignals, Remembering());
    } catch (const Error& error) {
      throw ErrorOfRanks(error);
    }
  }
  ~BoundRank() { Close(); }

  void Close() {
    if (!rank_) return;
    if (rank_->abandoned()) ForgetPartCalls();
    if (!rank_->InThisProcess() || rank_->abandoned()) return (void)rank_.release();
    const GilReleased no_gil;  // a sparsifier in Python may wait for the GIL
    rank_.reset();
  }

  void Begin(float scale, bool keep) {
    const GilReleased no_gil;
    const Composition& made = method_.composition();
    rank().RequireUsable();
    if (made.dense_warmup_steps > 0 && rank().steps() == made.dense_warmup_steps)
      rank().Replan(method_.plan());
    python_before_ = PythonSeconds();
    rank().Begin(made.feedback.DensityFactor(rank().steps(), made.density), scale, keep);
  }
  // pointer: float32 elements in row-major order; Finish overwrites them by their average.
  void Announce(std::size_t tensor, std::uintptr_t pointer, std::size_t numel) {
    const GilReleased no_gil;
    rank().Announce(tensor, {reinterpret_cast<float*>(pointer), numel});
  }
  void EndBackward(const std::string& refusal, std::uint32_t alike) {
    const GilReleased no_gil;
    rank().EndBackward(refusal, alike);
  }
  py::tuple Finish() {
    StepVerdict verdict;
    {
      const GilReleased no_gil;
      verdict = rank().Finish();
      python_seconds_ = PythonSeconds() - python_before_;
    }
    static constexpr const char* kKinds[] = {"fine", "nonfinite", "refused"};
    return py::make_tuple(kKinds[static_cast<std::size_t>(verdict.kind)], verdict.rank,
                          verdict.text);
  }
  void GiveUp(const std::string& why) {
    const GilReleased no_gil;
    rank().GiveUp(why);
  }
  void CopyAverages(const std::vector<std::pair<std::size_t, std::uintptr_t>>& to) {
    const GilReleased no_gil;
    for (const auto& [tensor, pointer] : to)
      rank().CopyAverage(tensor, reinterpret_cast<float*>(pointer));
  }

  double ResidualNorm() {
    const GilReleased no_gil;
    return rank().engine().ResidualNorm();
  }
  py::dict Record() {
    const StepRecord& record = rank().record();
    return py::dict("sent_bytes"_a = record.sent_bytes, "received_bytes"_a = record.received_bytes,
                    "payload_bytes"_a = record.payload_bytes, "selected"_a = record.selected,
                    "exposed_seconds"_a = record.exposed_communication_seconds,
                    "python_seconds"_a = python_seconds_);
  }

  py::dict State() {
    EngineState state;
    rank().engine().SaveState(state);
    py::dict remembered;
    for (const auto& [place, numbers] : state.remembered)
      remembered[place.c_str()] = ArrayMemory<double>(std::span(numbers)).Release();
    return py::dict("residuals"_a = Arrays(state.residuals),
                    "velocities"_a = Arrays(state.velocities), "copies"_a = Arrays(state.copies),
                    "averages"_a = Arrays(state.averages), "remembered"_a = remembered,
                    "parts"_a = SaveMemories(memories_));
  }
  void LoadState(const py::dict& from, std::uint64_t steps) {
    EngineState state;
    state.residuals = Stores(from["residuals"]);
    state.velocities = Stores(from["velocities"]);
    state.copies = Stores(from["copies"]);
    state.averages = Stores(from["averages"]);
    for (const auto& [place, numbers] : from["remembered"].cast<py::dict>())
      state.remembered[place.cast<std::string>()] = numbers.cast<std::vector<double>>();
    const py::object parts = from["parts"];  // None: they begin anew
    LoadMemories(memories_, parts.is_none() ? first_ : parts.cast<py::dict>());
    rank().engine().LoadState(state);
    rank().set_steps(steps);
  }

  py::list Timeline() {
    py::list spans;
    for (const Span& span : rank().engine().timeline().Sorted()) spans.append(EntryOf(span));
    return spans;
  }

  std::string Plan() { return rank().engine().plan().UnitSizes(); }
  bool keeps_something() const {
    return method_.composition().feedback.kind != FeedbackKind::kNone ||
           std::ranges::any_of(memories_, &PartMemory::kept);
  }
  bool sparsified() const {
    return method_.composition().strategy->sparsified != Sparsified::kNever;
  }
  int number() const { return number_; }
  int ranks() const { return ranks_; }
  std::uint64_t steps() { return rank().steps(); }
  bool abandoned() const { return rank_ && rank_->abandoned(); }
  bool in_step() const { return rank_ && rank_->in_step(); }
  bool usable() const { return rank_ && rank_->InThisProcess() && rank_->usable(); }

 private:
  MethodRank& rank() {
    if (!rank_) SPARFUSE_THROW(kInternal, "sparfuse.torch.detach has ended this rank");
    return *rank_;
  }
  std::optional<Remembers> Remembering() {
    if (std::ranges::none_of(memories_, &PartMemory::kept)) return std::nullopt;
    return Remembers{[this] {
                       const GilHeld gil;
                       undo_ = SaveMemories(memories_);
                     },
                     [this] {
                       const GilHeld gil;
                       LoadMemories(memories_, undo_);
                     }};
  }
  // Returns {residual: {tensor: array}}.
  py::dict Arrays(const EngineState::Stores& stores) {
    const GradientLayout& layout = rank().engine().layout();
    py::dict all;
    for (const auto& [name, values] : stores) {
      py::dict tensors;
      for (std::size_t t = 0; t < layout.tensors(); ++t) {
        const TensorEntry& tensor = layout.tensor(t);
        const auto own = std::span(values).subspan(tensor.offset, tensor.numel);
        tensors[tensor.name.c_str()] = ArrayMemory<float>(own).Release(tensor.shape);
      }
      all[name.c_str()] = tensors;
    }
    return all;
  }
  EngineState::Stores Stores(const py::dict& from) {
    const GradientLayout& layout = rank().engine().layout();
    EngineState::Stores stores;
    for (const auto& [key, given] : from) {
      const auto tensors = given.cast<py::dict>();
      std::vector<float>& values = stores[key.cast<std::string>()];
      values.resize(layout.numel());
      for (std::size_t t = 0; t < layout.tensors(); ++t) {
        const TensorEntry& tensor = layout.tensor(t);
        const std::string what = "the state of \"" + tensor.name + "\"";
        SPARFUSE_REQUIRE(tensors.contains(tensor.name.c_str()),
                         what + " is missing: expected an entry for each tensor of the model");
        const FloatArray array = ReadFloats(tensors[tensor.name.c_str()], what);
        SPARFUSE_REQUIRE(array.shape == tensor.shape, what + " has shape " +
                                                          ShapeText(array.shape) + "; expected " +
                                                          ShapeText(tensor.shape));
        std::ranges::copy(array.values(),
                          values.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
      }
    }
    return stores;
  }

  int number_;
  int ranks_;
  double python_before_ = 0, python_seconds_ = 0;  // of the current step
  ConfiguredMethod method_;                        // outlives the rank, which uses its objects
  std::vector<PartMemory> memories_;
  py::dict first_, undo_;  // what they remembered at first, and before the last undoable step
  std::unique_ptr<MethodRank> rank_;
};

}  // namespace

void BindRank(py::module_& module) {
  py::class_<BoundListener>(module, "_TcpListener")
      .def(py::init([](const std::string& interface, const std::string& toward) {
             return Make<BoundListener>(interface, toward);
           }),
           py::arg("interface"), py::arg("toward"))
      .def_property_readonly("address", &BoundListener::address);
  py::class_<BoundRank>(module, "_Rank")
      .def(py::init([](BoundListener& listener, std::vector<std::string> addresses, int rank,
                       double deadline_seconds, const py::kwargs& settings) {
             return Make<BoundRank>(listener, std::move(addresses), rank, deadline_seconds,
                                    settings);
           }),
           py::kw_only(), py::arg("listener"), py::arg("addresses"), py::arg("rank"),
           py::arg("deadline_seconds"))
      .def("close", &BoundRank::Close)
      .def("begin", &BoundRank::Begin, py::arg("scale"), py::arg("keep"))
      .def("announce", &BoundRank::Announce, py::arg("tensor"), py::arg("pointer"),
           py::arg("numel"))
      .def("end_backward", &BoundRank::EndBackward, py::arg("refusal"), py::arg("alike") = 0)
      .def("finish", &BoundRank::Finish)
      .def("give_up", &BoundRank::GiveUp, py::arg("why"))
      .def("copy_averages", &BoundRank::CopyAverages, py::arg("to"))
      .def("record", &BoundRank::Record)
      .def("residual_norm", &BoundRank::ResidualNorm)
      .def("state", &BoundRank::State)
      .def("load_state", &BoundRank::LoadState, py::arg("state"), py::arg("steps"))
      .def("timeline", &BoundRank::Timeline)
      .def("plan", &BoundRank::Plan)
      .def_property_readonly("keeps_something", &BoundRank::keeps_something)
      .def_property_readonly("sparsified", &BoundRank::sparsified)
      .def_property_readonly("rank", &BoundRank::number)
      .def_property_readonly("world_size", &BoundRank::ranks)
      .def_property_readonly("steps", &BoundRank::steps)
      .def_property_readonly("abandoned", &BoundRank::abandoned)
      .def_property_readonly("in_step", &BoundRank::in_step)
      .def_property_readonly("usable", &BoundRank::usable);
}

}  // namespace sparfuse::python
