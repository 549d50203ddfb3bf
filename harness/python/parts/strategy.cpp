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
  // Asks the engine for an operation. Runs without the GIL: immediate work may take long, and ranks
  // may be threads.
  template <class Ask>
  Handle Do(const Asked& operation, const Ask& ask) {
    Engine& with = there();
    Handle handle = {};
    try {
      const GilReleased no_gil;
      handle = ask(with);
    } catch (...) {
      failed = std::current_exception();
      throw;
    }
    asked[handle] = operation;
    return handle;
  }
  // Calls the class. The engine's exception says more than Python's copy of it.
  template <class Body>
  void Call(const std::string& called, const Body& body) {
    try {
      PartCall(part, called)(body);
    } catch (...) {
      if (failed) std::rethrow_exception(std::exchange(failed, {}));
      throw;
    }
  }
};
using View = std::shared_ptr<EngineView>;

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
  order.then = [view, kept = Keep(then), name] { view->Call(name, [&] { CallPython(*kept); }); };
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
  return view->Do({Kind::kPack, range},
                  [&](Engine& engine) { return engine.Pack(std::move(request)); });
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
  return view->Do({Kind::kSelection, request.range},
                  [&](Engine& with) { return with.Sparsify(std::move(request)); });
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
  return view->Do({.kind = Kind::kExchange},
                  [&](Engine& engine) { return engine.Exchange(std::move(request)); });
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
  return view->Do({.kind = applies ? Kind::kApply : Kind::kMerge}, [&](Engine& engine) {
    if constexpr (applies)
      return engine.Apply(std::move(request));
    else
      return engine.Merge(std::move(request));
  });
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
    view->Call("then of negotiate", [&] {
      CallPython(*kept, py::cast(std::vector<std::int64_t>(maxima.begin(), maxima.end())));
    });
  };
  return view->Do({.kind = Kind::kNegotiate},
                  [&](Engine& engine) { return engine.Negotiate(std::move(request)); });
}

Handle TimerOf(const View& view, double seconds, const py::object& then) {
  Continuation continuation = OrderOf(view, {}, then, "then of timer").then;
  if (!(seconds >= 0)) {
    view->part.Refuse("timer of " + std::to_string(seconds) + " seconds; expected 0 or more");
  }
  return view->Do({.kind = Kind::kTimer}, [&](Engine& engine) {
    return engine.StartTimer(seconds, std::move(continuation));
  });
}

// A function of Python that passes the view on.
template <class... Arguments, class... Names>
py::cpp_function OfView(const View& view, Handle (*function)(const View&, Arguments...),
                        const Names&... names) {
  return py::cpp_function(
      [view, function](Arguments... given) {
        return function(view, std::forward<Arguments>(given)...);
      },
      names...);
}

// The object e that a class gets, with its methods.
py::object EngineObject(const View& view) {
  using py::arg;
  const auto lane = arg("lane") = "compute";
  const auto after = arg("after") = py::tuple();
  const auto then = arg("then") = py::none();
  py::dict members;
  members["pack"] = OfView(view, &Packed, arg("tensor"), lane, after, then);
  members["sparsify"] =
      OfView(view, &SelectedOf, arg("what"), arg("density") = py::none(), lane, after, then);
  members["exchange"] =
      OfView(view, &Exchanged, arg("of"), arg("label") = "", arg("channel") = "data", after, then);
  members["negotiate"] = OfView(view, &Negotiated, arg("values"), arg("then"), after);
  members["merge"] = OfView(view, &Taken<MergeRequest>, arg("exchange"), lane, after, then);
  members["apply"] = OfView(view, &Taken<ApplyRequest>, arg("exchange"), lane, after, then);
  members["timer"] = OfView(view, &TimerOf, arg("seconds"), arg("then"));
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
    view_->Call("step(e)", [&] {
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
    view_->Call("ready(e, tensor) of \"" + engine.layout().tensor(tensor).name + "\"",
                [&] { CallPython(object_->attr("ready"), *engine_, py::int_(tensor)); });
  }

  void BackwardEnd(Engine& /*engine*/) override {
    view_->Call("end(e)", [&] {
      if (py::hasattr(*object_, "end")) CallPython(object_->attr("end"), *engine_);
    });
  }

 private:
  const PartClass& part_;
  KeptObject object_;
  View view_;
  KeptObject engine_;
  Plan plan_;
  bool planned_ = false;
};

Sparsified SparsifiedOf(PartClass& part) {
  const std::string& says = part.Text("sparsified");
  if (says == "never") return Sparsified::kNever;
  if (says == "ahead") return Sparsified::kAhead;
  if (says == "behind") return Sparsified::kBehind;
  part.Refuse("the class says sparsified = \"" + says +
              "\"; expected \"never\", \"ahead\" or \"behind\"");
}

StrategyDescriptor DescribeStrategy(PartClass& part) {
  return {.name = part.source().name,
          .summary = "written in Python",
          .source = part.Text("paper"),
          .revision = 1,
          .deviations = part.Text("deviations"),
          .sparsified = SparsifiedOf(part),
          .options = part.options(),
          .make = [&part](const Options& resolved) -> std::unique_ptr<Strategy> {
            return std::make_unique<PythonStrategy>(part, part.Make(resolved));
          },
          .dense_units = part.Flag("sends_units", false)};
}

}  // namespace

const StrategyDescriptor& StrategyOf(PartSource source) {
  return KeepPart(std::move(source), {"ready(e, tensor)"}, &DescribeStrategy);
}

}  // namespace sparfuse::python
