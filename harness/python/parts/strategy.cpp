// Schedules a step by a class that is written in Python.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

enum class Kind : std::uint8_t { kPack, kSelection, kExchange, kNegotiate, kMerge, kApply, kTimer };

constexpr const char* kKindNames[] = {"a packed tensor", "a selection", "an exchange",
                                      "a negotiation",   "a merge",     "an apply",
                                      "a timer"};

struct Asked {
  Kind kind = Kind::kPack;
  Range range = {};
  bool applied = false;  // exchanges
};

// The view of the engine that a class gets. It outlives the strategy, because the class may keep
// it, and refuses calls then.
struct EngineView {
  const PartClass& part;
  Engine* engine = nullptr;
  std::map<Handle, Asked> asked = {};  // by handle; of this step
  std::exception_ptr failed = {};      // the engine's exception, which replaces Python's copy

  Engine& there() const {
    if (engine == nullptr) part.Refuse("e was used after its engine had ended");
    return *engine;
  }
  Asked& Known(Handle handle, const std::string& where) {
    const auto found = asked.find(handle);
    if (found != asked.end()) return found->second;
    part.Refuse(where + " has handle " + std::to_string(handle) +
                "; expected numbers that calls of e returned in this step");
  }
  Asked& KnownExchange(Handle handle, const std::string& where) {
    Asked& known = Known(handle, where);
    if (known.kind == Kind::kExchange) return known;
    part.Refuse(where + " of " + kKindNames[static_cast<std::size_t>(known.kind)] +
                "; expected a number that e.exchange returned");
  }
  // Runs without the GIL: immediate work may take long, and ranks may be threads.
  template <class Ask>
  auto Do(const Ask& ask) {
    Engine& with = there();
    try {
      const GilReleased no_gil;
      return ask(with);
    } catch (...) {
      failed = std::current_exception();
      throw;
    }
  }
};
using View = std::shared_ptr<EngineView>;

// Calls a function that the class gave, on the event thread.
template <class... Arguments>
void CallBack(const View& view, const KeptObject& function, const char* name,
              const Arguments&... arguments) {
  try {
    PartCall(view->part, name)([&] { CallPython(*function, py::cast(arguments)...); });
  } catch (...) {
    if (view->failed) std::rethrow_exception(std::exchange(view->failed, {}));
    throw;
  }
}

Ordering OrderOf(const View& view, std::vector<Handle> after, const py::object& then,
                 const char* name) {
  constexpr std::string_view kThenOf = "then of ";
  const std::string where = "after of " + std::string(name).substr(kThenOf.size());
  for (const Handle other : after) view->Known(other, where);
  Ordering order{std::move(after), {}};
  if (then.is_none()) return order;
  if (PyCallable_Check(then.ptr()) == 0) {
    view->part.Refuse(std::string("then is a ") + TypeText(then) + "; expected a function");
  }
  order.then = [view, kept = Keep(then), name] { CallBack(view, kept, name); };
  return order;
}

Lane LaneOf(const EngineView& view, const std::string& name) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (LaneName(static_cast<Lane>(lane)) == name) return static_cast<Lane>(lane);
  }
  view.part.Refuse("lane = \"" + name + "\"; expected \"compute\", \"side\" or \"host\"");
}

Channel ChannelOf(const EngineView& view, const std::string& name) {
  std::vector<std::string> known;
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    known.emplace_back(ChannelName(static_cast<Channel>(channel)));
    if (known.back() == name) return static_cast<Channel>(channel);
  }
  view.part.Refuse("channel = \"" + name + "\"" + Suggestion(name, known));
}

std::size_t TensorOf(const EngineView& view, std::size_t tensor) {
  const std::size_t tensors = view.there().layout().tensors();
  if (tensor < tensors) return tensor;
  view.part.Refuse("tensor " + std::to_string(tensor) + " was asked for; expected one below " +
                   std::to_string(tensors));
}

using Handles = std::vector<Handle>;

Handle Packed(const View& view, std::size_t tensor, const std::string& lane, Handles after,
              const py::object& then) {
  PackRequest request{.tensor = TensorOf(*view, tensor),
                      .lane = LaneOf(*view, lane),
                      .order = OrderOf(view, std::move(after), then, "then of pack")};
  const Range range = view->there().layout().tensor(tensor).range();
  const Handle handle = view->Do([&](Engine& engine) { return engine.Pack(std::move(request)); });
  view->asked[handle] = {Kind::kPack, range};
  return handle;
}

// what: a tensor, or (first, last) of a run of packed tensors.
Handle SelectedOf(const View& view, const py::object& what, const std::optional<double>& density,
                  const std::string& lane, Handles after, const py::object& then) {
  const Engine& engine = view->there();
  const bool one = PyIndex_Check(what.ptr()) != 0;
  const auto [first, last] = one ? std::pair(what.cast<std::size_t>(), what.cast<std::size_t>() + 1)
                                 : what.cast<std::pair<std::size_t, std::size_t>>();
  TensorOf(*view, first);
  if (last <= first || last > engine.layout().tensors()) {
    view->part.Refuse("sparsify of tensors [" + std::to_string(first) + ", " +
                      std::to_string(last) + "); expected a run of tensors of the layout");
  }
  SparsifyRequest request;
  request.range =
      one ? engine.layout().tensor(first).range() : engine.layout().RangeOf(first, last);
  request.density = density.value_or(engine.plan().TensorOf(engine.layout(), first).density);
  if (!(request.density > 0 && request.density <= 1)) {
    view->part.Refuse("sparsify with density = " + std::to_string(request.density) +
                      "; expected a number in (0, 1]");
  }
  request.lane = LaneOf(*view, lane);
  request.order = OrderOf(view, std::move(after), then, "then of sparsify");
  const Range range = request.range;
  const Handle handle = view->Do([&](Engine& with) { return with.Sparsify(std::move(request)); });
  view->asked[handle] = {Kind::kSelection, range};
  return handle;
}

// Exchanges the sum over all ranks of selected or packed tensors.
Handle Exchanged(const View& view, const Handles& of, const std::string& label,
                 const std::string& channel, Handles after, const py::object& then) {
  if (of.empty()) view->part.Refuse("exchange of nothing; expected handles of sparsify or pack");
  DenseSum dense;
  std::size_t sparse = 0;
  for (const Handle handle : of) {
    const Asked& known = view->Known(handle, "exchange");
    if (known.kind != Kind::kPack && known.kind != Kind::kSelection) {
      view->part.Refuse(std::string("exchange of ") +
                        kKindNames[static_cast<std::size_t>(known.kind)] +
                        "; expected numbers that e.sparsify or e.pack returned");
    }
    sparse += known.kind == Kind::kSelection ? 1 : 0;
    dense.ranges.push_back(known.range);
  }
  if (sparse != 0 && sparse != of.size()) {
    view->part.Refuse("exchange of " + std::to_string(sparse) + " selections and " +
                      std::to_string(of.size() - sparse) +
                      " packed tensors at once; expected one kind");
  }
  ExchangeRequest request;
  request.label = label;
  request.channel = ChannelOf(*view, channel);
  if (sparse == 0) {
    std::ranges::sort(dense.ranges, {}, &Range::begin);
    request.pattern = std::move(dense);
    after.insert(after.end(), of.begin(), of.end());
  } else {
    request.pattern = SparseSum{of};
  }
  request.order = OrderOf(view, std::move(after), then, "then of exchange");
  const Handle handle =
      view->Do([&](Engine& engine) { return engine.Exchange(std::move(request)); });
  view->asked[handle] = {.kind = Kind::kExchange};
  return handle;
}

// Asks for what takes an exchange's sum.
template <class Request>
Handle Taken(const View& view, Handle exchange, const std::string& lane, Handles after,
             const py::object& then) {
  constexpr bool applies = std::is_same_v<Request, ApplyRequest>;
  const char* const name = applies ? "apply" : "merge";
  Asked& of = view->KnownExchange(exchange, name);
  if (applies && std::exchange(of.applied, true)) {
    view->part.Refuse("apply of exchange " + std::to_string(exchange) +
                      " for the second time in this step; expected one apply of each");
  }
  Request request;
  request.exchange = exchange;
  request.lane = LaneOf(*view, lane);
  request.order =
      OrderOf(view, std::move(after), then, applies ? "then of apply" : "then of merge");
  const Handle handle = view->Do([&](Engine& engine) {
    if constexpr (applies)
      return engine.Apply(std::move(request));
    else
      return engine.Merge(std::move(request));
  });
  view->asked[handle] = {.kind = applies ? Kind::kApply : Kind::kMerge};
  return handle;
}

Handle Negotiated(const View& view, std::vector<std::int64_t> values, const py::object& then,
                  Handles after) {
  if (PyCallable_Check(then.ptr()) == 0) {
    view->part.Refuse("then of negotiate is a " + TypeText(then) +
                      "; expected a function of the list of maxima");
  }
  NegotiateRequest request;
  request.values = std::move(values);
  request.order = OrderOf(view, std::move(after), py::none(), "then of negotiate");
  request.then = [view, kept = Keep(then)](std::span<const std::int64_t> maxima) {
    CallBack(view, kept, "then of negotiate",
             std::vector<std::int64_t>(maxima.begin(), maxima.end()));
  };
  const Handle handle =
      view->Do([&](Engine& engine) { return engine.Negotiate(std::move(request)); });
  view->asked[handle] = {.kind = Kind::kNegotiate};
  return handle;
}

// The object e that a class gets, with its methods.
py::object EngineObject(const View& view) {
  using py::arg;
  const auto lane = [] { return arg("lane") = "compute"; };
  const auto after = [] { return arg("after") = py::tuple(); };
  const auto then = [] { return arg("then") = py::none(); };
  py::dict members;
  members["pack"] = py::cpp_function(
      [view](std::size_t tensor, const std::string& on, Handles first, const py::object& next) {
        return Packed(view, tensor, on, std::move(first), next);
      },
      arg("tensor"), lane(), after(), then());
  members["sparsify"] = py::cpp_function(
      [view](const py::object& what, const std::optional<double>& density, const std::string& on,
             Handles first, const py::object& next) {
        return SelectedOf(view, what, density, on, std::move(first), next);
      },
      arg("what"), arg("density") = py::none(), lane(), after(), then());
  members["exchange"] = py::cpp_function(
      [view](const Handles& of, const std::string& label, const std::string& channel, Handles first,
             const py::object& next) {
        return Exchanged(view, of, label, channel, std::move(first), next);
      },
      arg("of"), arg("label") = "", arg("channel") = "data", after(), then());
  members["negotiate"] = py::cpp_function(
      [view](std::vector<std::int64_t> values, const py::object& next, Handles first) {
        return Negotiated(view, std::move(values), next, std::move(first));
      },
      arg("values"), arg("then"), after());
  members["merge"] = py::cpp_function(
      [view](Handle exchange, const std::string& on, Handles first, const py::object& next) {
        return Taken<MergeRequest>(view, exchange, on, std::move(first), next);
      },
      arg("exchange"), lane(), after(), then());
  members["apply"] = py::cpp_function(
      [view](Handle exchange, const std::string& on, Handles first, const py::object& next) {
        return Taken<ApplyRequest>(view, exchange, on, std::move(first), next);
      },
      arg("exchange"), lane(), after(), then());
  members["timer"] = py::cpp_function(
      [view](double seconds, const py::object& next) {
        Continuation continuation = OrderOf(view, {}, next, "then of timer").then;
        if (!(seconds >= 0)) {
          view->part.Refuse("timer of " + std::to_string(seconds) + " seconds; expected 0 or more");
        }
        const Handle handle = view->Do(
            [&](Engine& engine) { return engine.StartTimer(seconds, std::move(continuation)); });
        view->asked[handle] = {.kind = Kind::kTimer};
        return handle;
      },
      arg("seconds"), arg("then"));
  members["payload_bytes"] = py::cpp_function(
      [view](Handle selection) { return view->there().PayloadBytes(selection); }, arg("selection"));
  members["begin_wait"] = py::cpp_function(
      [view](std::string label) { view->there().BeginWait(std::move(label)); }, arg("label"));
  members["end_wait"] = py::cpp_function(
      [view](const std::string& label) { view->there().EndWait(label); }, arg("label"));
  const Engine& engine = view->there();
  members["rank"] = engine.rank();
  members["workers"] = engine.workers();
  members["nodes"] = engine.topology().nodes();
  members["ranks_per_node"] = engine.topology().ranks_per_node;
  members["layout"] = LayoutView(engine.layout());
  return NamespaceOf(members);
}

class PythonStrategy final : public Strategy, public HasMemory {
 public:
  PythonStrategy(const PartClass& part, KeptObject object)
      : part_(part), object_(std::move(object)), view_(new EngineView{part}) {}
  ~PythonStrategy() override { view_->engine = nullptr; }

  PartMemory Memory() const override { return part_.MemoryOf(object_); }

  void StepBegin(Engine& engine) override {
    view_->asked.clear();
    Call("step(e)", [&] {
      if (view_->engine != &engine) {
        view_->engine = &engine;
        engine_ = Keep(EngineObject(view_));
        planned_ = false;
      }
      if (!planned_ || plan_ != engine.plan()) {
        plan_ = engine.plan();
        planned_ = true;
        engine_->attr("plan") = PlanView(plan_);
        engine_->attr("density") = plan_.units.empty() ? 1.0 : plan_.units.front().density;
      }
      if (py::hasattr(*object_, "step")) CallPython(object_->attr("step"), *engine_);
    });
  }

  void GradientReady(Engine& engine, std::size_t tensor) override {
    Call("ready(e, tensor) of \"" + engine.layout().tensor(tensor).name + "\"",
         [&] { CallPython(object_->attr("ready"), *engine_, py::int_(tensor)); });
  }

  void BackwardEnd(Engine& /*engine*/) override {
    Call("end(e)", [&] {
      if (py::hasattr(*object_, "end")) CallPython(object_->attr("end"), *engine_);
    });
  }

 private:
  template <class Body>
  void Call(const std::string& called, const Body& body) {
    try {
      PartCall(part_, called)(body);
    } catch (...) {
      // The engine's exception says more than Python's copy of it.
      if (view_->failed) std::rethrow_exception(std::exchange(view_->failed, {}));
      throw;
    }
  }

  const PartClass& part_;
  KeptObject object_;
  View view_;
  KeptObject engine_;
  Plan plan_;
  bool planned_ = false;
};

struct StrategyPart {
  PartClass part;
  std::string paper = {}, deviations = {};
  StrategyDescriptor descriptor = {};
};

Sparsified SparsifiedOf(const PartClass& part) {
  const std::string says = part.Text("sparsified");
  if (says == "never") return Sparsified::kNever;
  if (says == "ahead") return Sparsified::kAhead;
  if (says == "behind") return Sparsified::kBehind;
  part.Refuse("the class says sparsified = \"" + says +
              "\"; expected \"never\", \"ahead\" or \"behind\"");
}

}  // namespace

const StrategyDescriptor& StrategyOf(PartSource source) {
  auto made = std::make_unique<StrategyPart>(
      StrategyPart{PartClass(std::move(source), {"ready(e, tensor)"})});
  const PartClass& part = made->part;
  made->paper = part.Text("paper");
  made->deviations = part.Text("deviations");
  made->descriptor = {.name = part.source().name,
                      .summary = "written in Python",
                      .source = made->paper,
                      .revision = 1,
                      .deviations = made->deviations,
                      .sparsified = SparsifiedOf(part),
                      .options = part.options(),
                      .make = [&part](const Options& resolved) -> std::unique_ptr<Strategy> {
                        return std::make_unique<PythonStrategy>(part, part.Make(resolved));
                      },
                      .dense_units = part.Flag("sends_units", false)};
  return made.release()->descriptor;
}

}  // namespace sparfuse::python
