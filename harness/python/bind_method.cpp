// What sparfuse/_method.py puts its class Method on: a method's composition and its ranks.
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "baselines/composition.hpp"
#include "baselines/registry.hpp"
#include "core/cost/declared.hpp"
#include "core/error.hpp"
#include "harness/python/bindings.hpp"
#include "harness/python/catalog.hpp"
#include "harness/python/method_ranks.hpp"
#include "harness/python/selector.hpp"
#include "harness/python/threads.hpp"

namespace sparfuse {
namespace py = pybind11;
namespace {

constexpr double kBackwardSecondsPerElement = 1e-9;  // declared, as the link is by default

// One rank's view of a sparsifier that is written in Python, which may only be freed with the GIL:
// whoever holds the ranks holds it, too.
class SharedSparsifier final : public Sparsifier {
 public:
  explicit SharedSparsifier(std::shared_ptr<ConfiguredSparsifier> shared)
      : shared_(std::move(shared)) {}

  std::string_view name() const noexcept override { return shared_->sparsifier->name(); }
  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    return shared_->sparsifier->MakeState(n);
  }
  std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                    double density) const override {
    return shared_->sparsifier->Count(n, shape, density);
  }
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    shared_->sparsifier->Select(context, source, density, info, state, slot);
  }

 private:
  std::shared_ptr<ConfiguredSparsifier> shared_;
};

// What Method's constructor was given, names checked by nobody yet.
struct Given {
  std::string name;
  py::dict file;  // the method.toml
  int world_size;
  std::vector<std::pair<std::string, py::object>> layout;  // names and shapes, in ready order
  double density;
  std::string sparsifier;
  py::dict sparsifier_options;
  std::string feedback;
  py::dict feedback_options;
  std::size_t dense_max_ndim;
  std::vector<std::string> dense_tensors;
  std::vector<std::string> no_feedback_tensors;
  std::uint64_t seed;
  int threads;
  double deadline_seconds;
  double gbps;
  double alpha_us;
  std::optional<std::vector<double>> backward_seconds;
  bool verify;
  py::dict options;
  std::vector<std::string> keywords;  // that Method takes beside the options
};

template <class T>
T Value(const py::dict& file, const char* key, T fallback) {
  return file.contains(key) ? file[key].cast<T>() : fallback;
}

void RequireAbove(const char* name, double value, double bound) {
  if (value > bound) return;  // false for NaN
  SPARFUSE_THROW(kConfig,
                 std::string(name) + " = " + py::cast<std::string>(py::repr(py::cast(value))) +
                     ": expected a number above " + std::to_string(static_cast<int>(bound)));
}

class BoundMethod {
 public:
  explicit BoundMethod(const Given& given)
      : verify_(given.verify), composition_(ComposeOf(given)), topology_{given.world_size, 1} {
    SPARFUSE_REQUIRE(given.world_size >= 1,
                     "world_size = " + std::to_string(given.world_size) + ": expected at least 1");
    SPARFUSE_REQUIRE(given.threads >= 1,
                     "threads = " + std::to_string(given.threads) + ": expected at least 1");
    RequireAbove("deadline_seconds", given.deadline_seconds, 0);
    GradientLayout layout = ReadLayout(given);
    const Plan plan = PlanOf(given, layout);
    std::vector<LiveConfig> configs;
    for (int rank = 0; rank < given.world_size; ++rank) {
      configs.push_back(MakeLiveConfig(composition_, layout, plan, topology_, given.seed));
    }
    const std::chrono::milliseconds deadline(
        static_cast<std::int64_t>(1000 * given.deadline_seconds) + 1);
    const py::gil_scoped_release no_gil;
    ranks_ = std::make_unique<MethodRanks>(std::move(configs), given.threads, deadline);
  }

  ~BoundMethod() {
    if (!ranks_->InThisProcess()) (void)ranks_.release();
    const py::gil_scoped_release no_gil;  // a rank may be waiting for it
    ranks_.reset();
  }

  py::dict Step(const py::object& gradients, const py::object& out) {
    const auto lock = LockAlone("step");
    ranks_->RequireUsable();
    const std::vector<py::dict> given = ReadRanks(gradients);
    std::vector<FloatArray> alive;
    std::vector<std::vector<std::span<const float>>> spans;
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
      spans.push_back(ReadGradients(given[rank], "gradients[" + std::to_string(rank) + "]", alive));
    }
    const std::vector<DenseResult> results = MakeResults(out);
    {
      const py::gil_scoped_release no_gil;
      ranks_->Step(spans,
                   composition_.feedback.DensityFactor(ranks_->steps(), composition_.density),
                   verify_);
      for (std::size_t t = 0; t < results.size(); ++t) {
        std::ranges::copy(ranks_->EngineOf(0).Averaged(t), results[t].values.begin());
      }
    }
    py::dict averaged;
    for (std::size_t t = 0; t < results.size(); ++t) {
      averaged[py::str(layout().tensor(t).name)] = results[t].object;
    }
    return averaged;
  }

  py::array Residual(int rank, const std::string& name) {
    if (composition_.feedback.kind == FeedbackKind::kNone) {
      SPARFUSE_THROW(kConfig, "residual: feedback is \"none\": what is not sent is lost");
    }
    return CopyOf(rank, name, "residual", &LiveEngine::Residual);
  }

  py::array Velocity(int rank, const std::string& name) {
    if (composition_.feedback.kind != FeedbackKind::kMomentum) {
      SPARFUSE_THROW(kConfig, "velocity: expected a Method with feedback \"momentum\"");
    }
    return CopyOf(rank, name, "velocity", &LiveEngine::Velocity);
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
        py::dict tensor;
        tensor["name"] = layout().tensor(t).name;
        tensor["elements"] = layout().tensor(t).numel;
        tensor["density"] = how.density;
        tensor["offloaded"] = how.offloaded;
        tensor["reduced"] = how.reduced;
        tensors.append(tensor);
        elements += layout().tensor(t).numel;
      }
      static constexpr const char* kSparsified[] = {"never", "ahead", "behind"};
      py::dict entry;
      entry["sparsified"] = kSparsified[static_cast<std::size_t>(unit.sparsified)];
      entry["density"] = unit.density;
      entry["elements"] = elements;
      entry["tensors"] = tensors;
      units.append(entry);
    }
    return units;
  }

  // Of the last step, but for what a caller of step() does by itself.
  py::list Timeline() {
    const auto lock = LockAlone("timeline");
    py::list spans;
    for (int rank = 0; rank < ranks_->ranks(); ++rank) {
      for (const Span& span : ranks_->EngineOf(rank).timeline().Sorted()) {
        if (span.kind == SpanKind::kForward || span.kind == SpanKind::kBackward ||
            span.kind == SpanKind::kUpdate) {
          continue;
        }
        py::dict entry;
        entry["rank"] = rank;
        entry["kind"] = SpanKindName(span.kind);
        entry["lane"] = span.lane;
        entry["label"] = span.label;
        entry["begin_seconds"] = span.begin_seconds;
        entry["end_seconds"] = span.end_seconds;
        entry["bytes"] = span.bytes;
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
    py::dict options;
    for (const Options* of : {&composition_.strategy_options, &composition_.planner_options}) {
      for (const auto& [key, value] : *of) options[key.c_str()] = ToPython(value);
    }
    if (composition_.strategy->sparsified == Sparsified::kNever) return options;
    for (const auto& [key, value] : composition_.sending) options[key.c_str()] = ToPython(value);
    return options;
  }

  double density() const { return composition_.density; }
  std::string_view sparsifier() const {
    return composition_.sparsifier == nullptr ? "none" : composition_.sparsifier->name;
  }
  std::string_view feedback() const {
    static constexpr std::string_view kNames[] = {"none", "residual", "momentum"};
    return kNames[static_cast<std::size_t>(composition_.feedback.kind)];
  }
  std::uint64_t steps() const { return ranks_->steps(); }

 private:
  LiveEngine& engine() { return ranks_->EngineOf(0); }
  const GradientLayout& layout() { return engine().layout(); }

  Composition ComposeOf(const Given& given) {
    MethodParts parts;
    parts.strategy = given.file["strategy"].cast<std::string>();
    parts.planner = given.file["planner"].cast<std::string>();
    parts.collective = given.file["collective"].cast<std::string>();
    SortOptions(given, parts);
    const auto own = given.file["sparsifier"].cast<std::string>();
    if (own == "none") return Finish(given, parts);  // there is nothing to choose
    if (Value(given.file, "sparsifier_fixed", false) && given.sparsifier != own) {
      SPARFUSE_THROW(kConfig, "sparsifier = \"" + given.sparsifier + "\": method " + given.name +
                                  " is defined with \"" + own + "\" only");
    }
    parts.density = CheckedDensity(given.density);
    ChooseSparsifier(given, parts);
    return Finish(given, parts);
  }

  Composition Finish(const Given& given, MethodParts& parts) {
    if (FindStrategy(parts.strategy).sparsified != Sparsified::kNever) {
      parts.feedback = given.feedback;
      parts.feedback_options = ToOptions("feedback " + given.feedback, given.feedback_options);
    }
    Composition composition = Compose(parts);
    if (composition.dense_collective->native || composition.sparse_collective->native) {
      SPARFUSE_THROW(kUnsupported, "the collective \"" + parts.collective +
                                       "\" is MPI's own, and ranks here are threads");
    }
    return composition;
  }

  // The options of the method's file and of the caller, each to the part that takes it.
  static void SortOptions(const Given& given, MethodParts& parts) {
    const MethodOptions takes{FindStrategy(parts.strategy).options,
                              FindPlanner(parts.planner).options, SendingOptions()};
    const std::string owner = "method " + given.name;
    parts.strategy_options = ToOptions(owner, Value(given.file, "strategy_options", py::dict()));
    parts.planner_options = ToOptions(owner, Value(given.file, "planner_options", py::dict()));
    for (const OptionSpec& option : SendingOptions()) {
      if (!given.file.contains(option.name.c_str())) continue;
      py::dict one;
      one[option.name.c_str()] = given.file[option.name.c_str()];
      parts.sending.merge(ToOptions(owner, one));
    }
    std::vector<std::string> known = takes.Names();
    known.emplace_back("collective");
    known.insert(known.end(), given.keywords.begin(), given.keywords.end());
    RequireKnown(owner, given.options, known);
    if (given.options.contains("replan_every")) {
      SPARFUSE_THROW(kConfig, owner +
                                  ": replan_every: gradients come here without the times of a "
                                  "backward pass; expected backward_seconds, once");
    }
    for (const auto& [key, value] : ToOptions(owner, given.options)) {
      using enum MethodOptions::Owner;
      if (key == "collective") {
        const auto* name = std::get_if<std::string>(&value);
        SPARFUSE_REQUIRE(name != nullptr,
                         owner + ": collective = " + ToString(value) + ": expected a string");
        parts.collective = *name;
        continue;
      }
      const auto whose = takes.OwnerOf(key, given.name);
      (*whose == kSending    ? parts.sending
       : *whose == kStrategy ? parts.strategy_options
                             : parts.planner_options)[key] = value;
    }
  }

  void ChooseSparsifier(const Given& given, MethodParts& parts) {
    const auto make = [name = given.sparsifier, density = given.density, seed = given.seed,
                       options = given.sparsifier_options] {
      return ConfigureSparsifier(name, density, seed, options);
    };
    const auto first = make();
    if (first->descriptor["language"].cast<std::string>() == "C++") {
      parts.sparsifier = &FindSparsifier(given.sparsifier);
      parts.sparsifier_options = ToOptions("sparsifier", first->options);
      return;
    }
    sparsifier_name_ = given.sparsifier;
    python_sparsifier_.name = sparsifier_name_;
    python_sparsifier_.unbounded_count = first->unbounded_count;
    python_sparsifier_.make = [this, make](const Options&, std::uint64_t) {
      kept_.push_back(make());  // a class has an object of its own on each rank
      return std::make_unique<SharedSparsifier>(kept_.back());
    };
    parts.sparsifier = &python_sparsifier_;
  }

  GradientLayout ReadLayout(const Given& given) {
    SPARFUSE_REQUIRE(!given.layout.empty(), "layout is empty: expected (name, shape) of a tensor");
    std::vector<TensorShape> tensors;
    for (const auto& [name, extents] : given.layout) {
      std::vector<std::int64_t> shape = ReadShape(extents);
      const std::size_t numel = ElementCount(shape);
      SPARFUSE_REQUIRE(numel >= 1, "layout: \"" + name + "\" has shape " + ShapeText(shape) +
                                       "; expected at least one element");
      SPARFUSE_REQUIRE(positions_.emplace(name, tensors.size()).second,
                       "layout has \"" + name +
                           "\" twice; expected a tied weight once, where its "
                           "gradient is final");
      tensors.push_back({name, std::move(shape), numel});
    }
    return MakeLayout(tensors,
                      {given.dense_max_ndim, given.dense_tensors, given.no_feedback_tensors},
                      "the layout");
  }

  Plan PlanOf(const Given& given, const GradientLayout& layout) const {
    RequireAbove("link: gbps", given.gbps, 0);
    SPARFUSE_REQUIRE(given.alpha_us >= 0, "link: alpha_us = " + std::to_string(given.alpha_us) +
                                              ": expected at least 0");
    BackwardProfile backward;
    if (given.backward_seconds) {
      SPARFUSE_REQUIRE(given.backward_seconds->size() == layout.tensors(),
                       "backward_seconds has " + std::to_string(given.backward_seconds->size()) +
                           " numbers; expected one a tensor, " + std::to_string(layout.tensors()));
      for (const double seconds : *given.backward_seconds) {
        SPARFUSE_REQUIRE(seconds >= 0, "backward_seconds has " + std::to_string(seconds) +
                                           ": expected numbers of at least 0");
      }
      backward.backward_seconds = *given.backward_seconds;
    } else {
      for (std::size_t t = 0; t < layout.tensors(); ++t) {
        backward.backward_seconds.push_back(kBackwardSecondsPerElement *
                                            static_cast<double>(layout.tensor(t).numel));
      }
    }
    const CostModel cost = DeclaredCost(given.gbps, 1e-6 * given.alpha_us, sparsifier_name_);
    return MakePlan(composition_, layout, topology_, &backward, &cost);
  }

  std::unique_lock<std::mutex> LockAlone(const char* what) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      SPARFUSE_THROW(kConfig, std::string(what) +
                                  ": a step of this Method is running; expected "
                                  "one thread at a time, and none of its own "
                                  "sparsifiers");
    }
    return lock;
  }

  std::vector<py::dict> ReadRanks(const py::object& gradients) const {
    const auto workers = static_cast<std::size_t>(ranks_->ranks());
    if (!py::isinstance<py::sequence>(gradients) || py::isinstance<py::str>(gradients)) {
      throw py::type_error("gradients is a " + TypeText(gradients) +
                           "; expected a list of dicts, one of each rank");
    }
    const auto list = py::reinterpret_borrow<py::sequence>(gradients);
    SPARFUSE_REQUIRE(
        py::len(list) == workers,
        "gradients has " + std::to_string(py::len(list)) +
            " entries; expected a dict of each rank, world_size = " + std::to_string(workers));
    std::vector<py::dict> by_rank;
    for (std::size_t rank = 0; rank < workers; ++rank) {
      by_rank.push_back(ReadMapping(list[rank], "gradients[" + std::to_string(rank) + "]"));
    }
    return by_rank;
  }

  py::dict ReadMapping(const py::object& given, const std::string& what) const {
    if (!py::isinstance<py::dict>(given) && !py::hasattr(given, "items")) {
      throw py::type_error(what + " is a " + TypeText(given) +
                           "; expected a dict of names and arrays");
    }
    py::dict mapping(given);
    for (const auto& [key, value] : mapping) {
      const auto name = py::cast<std::string>(py::str(key));
      if (!py::isinstance<py::str>(key) || !positions_.contains(name)) {
        SPARFUSE_THROW(kConfig, what + " has \"" + name + "\", which is not in the layout" +
                                    Suggestion(name, Names()));
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
      const std::size_t position = positions_.at(name);
      FloatArray& array = alive.emplace_back(ReadFloats(value, which));
      const std::vector<std::int64_t>& shape = layout().tensor(position).shape;
      SPARFUSE_REQUIRE(array.shape == shape, which + " has shape " + ShapeText(array.shape) +
                                                 "; expected that of the layout, " +
                                                 ShapeText(shape));
      spans[position] = array.values();
    }
    return spans;
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

  py::array CopyOf(int rank, const std::string& name, const char* what,
                   std::span<const float> (LiveEngine::*get)(std::string_view, Range)) {
    const auto lock = LockAlone(what);
    SPARFUSE_REQUIRE(rank >= 0 && rank < ranks_->ranks(),
                     std::string(what) + ": rank = " + std::to_string(rank) + ": expected 0 to " +
                         std::to_string(ranks_->ranks() - 1));
    const auto position = positions_.find(name);
    if (position == positions_.end()) {
      SPARFUSE_THROW(kConfig, std::string(what) + ": \"" + name + "\" is not in the layout" +
                                  Suggestion(name, Names()));
    }
    const TensorEntry& tensor = layout().tensor(position->second);
    const auto values = (ranks_->EngineOf(rank).*get)("local", tensor.range());
    ArrayMemory<float> copy(values.size());
    std::ranges::copy(values, copy.data());
    return std::move(copy).Release(tensor.shape);
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names(positions_.size());
    for (const auto& [name, position] : positions_) names[position] = name;
    return names;
  }

  bool verify_;
  std::string sparsifier_name_;  // of one that is written in Python
  SparsifierDescriptor python_sparsifier_;
  std::vector<std::shared_ptr<ConfiguredSparsifier>> kept_;
  Composition composition_;
  Topology topology_;
  std::map<std::string, std::size_t> positions_;  // in ready order
  std::mutex mutex_;                              // guards ranks_
  std::unique_ptr<MethodRanks> ranks_;
};

py::list ListMethodFiles() {
  py::list files;
  for (const EmbeddedMethod& file : MethodFiles()) {
    files.append(py::make_tuple(file.folder, file.toml));
  }
  return files;
}

py::dict ListOptions(const std::string& strategy, const std::string& planner) {
  py::dict options;
  options["strategy"] = DescribeOptions(FindStrategy(strategy).options);
  options["planner"] = DescribeOptions(FindPlanner(planner).options);
  options["payload"] = DescribeOptions(SendingOptions());
  return options;
}

}  // namespace

void BindMethod(py::module_& module) {
  py::class_<BoundMethod>(module, "_Method")
      .def(py::init([](std::string name, py::dict file, int world_size,
                       std::vector<std::pair<std::string, py::object>> layout, double density,
                       std::string sparsifier, py::dict sparsifier_options, std::string feedback,
                       py::dict feedback_options, std::size_t dense_max_ndim,
                       std::vector<std::string> dense_tensors,
                       std::vector<std::string> no_feedback_tensors, std::uint64_t seed,
                       std::optional<int> threads, double deadline_seconds, double gbps,
                       double alpha_us, std::optional<std::vector<double>> backward_seconds,
                       bool verify, py::dict options, std::vector<std::string> keywords) {
             const int each = std::max(1, Threads() / std::max(1, world_size));
             return std::make_unique<BoundMethod>(Given{std::move(name),
                                                        std::move(file),
                                                        world_size,
                                                        std::move(layout),
                                                        density,
                                                        std::move(sparsifier),
                                                        std::move(sparsifier_options),
                                                        std::move(feedback),
                                                        std::move(feedback_options),
                                                        dense_max_ndim,
                                                        std::move(dense_tensors),
                                                        std::move(no_feedback_tensors),
                                                        seed,
                                                        threads.value_or(each),
                                                        deadline_seconds,
                                                        gbps,
                                                        alpha_us,
                                                        std::move(backward_seconds),
                                                        verify,
                                                        std::move(options),
                                                        std::move(keywords)});
           }),
           py::kw_only(), py::arg("name"), py::arg("file"), py::arg("world_size"),
           py::arg("layout"), py::arg("density"), py::arg("sparsifier"),
           py::arg("sparsifier_options"), py::arg("feedback"), py::arg("feedback_options"),
           py::arg("dense_max_ndim"), py::arg("dense_tensors"), py::arg("no_feedback_tensors"),
           py::arg("seed"), py::arg("threads"), py::arg("deadline_seconds"), py::arg("gbps"),
           py::arg("alpha_us"), py::arg("backward_seconds"), py::arg("verify"), py::arg("options"),
           py::arg("keywords"))
      .def("step", &BoundMethod::Step, py::arg("gradients"), py::arg("out"))
      .def("plan", &BoundMethod::DescribePlan)
      .def("residual", &BoundMethod::Residual, py::arg("rank"), py::arg("name"))
      .def("velocity", &BoundMethod::Velocity, py::arg("rank"), py::arg("name"))
      .def("timeline", &BoundMethod::Timeline)
      .def("bytes", &BoundMethod::Bytes)
      .def("options", &BoundMethod::DescribeOptions)
      .def_property_readonly("density", &BoundMethod::density)
      .def_property_readonly("sparsifier", &BoundMethod::sparsifier)
      .def_property_readonly("feedback", &BoundMethod::feedback)
      .def_property_readonly("steps", &BoundMethod::steps);
  module.def(
      "_suggestion",
      [](const std::string& name, const std::vector<std::string>& known) {
        return Suggestion(name, known);
      },
      py::arg("name"), py::arg("known"));
  module.def("_method_files", &ListMethodFiles);
  module.def("_method_options", &ListOptions, py::arg("strategy"), py::arg("planner"));
}

}  // namespace sparfuse
