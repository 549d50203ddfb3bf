// Binds ErrorFeedback and the density warm-up.
#include <map>
#include <mutex>
#include <variant>

#include "core/base/error.hpp"
#include "core/feedback/feedback.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "harness/python/bindings/bound.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

// One worker's feedback: a residual for each tensor and, with momentum, a velocity.
class ErrorFeedback : public MadeByInit {
 public:
  ErrorFeedback(py::object sparsifier, const std::string& feedback, const MomentumOptions& options,
                std::optional<double> clip, const std::string& values)
      : sparsifier_(std::move(sparsifier)),
        compressor_(CompressorOf(sparsifier_)),
        with_momentum_(feedback == "momentum"),
        options_(options),
        clip_(clip),
        coding_{ReadValueCoding(values)} {
    const std::vector<std::string> known = {"residual", "momentum"};
    SPARFUSE_REQUIRE(with_momentum_ || feedback == "residual",
                     "feedback = \"" + feedback + "\"" + Suggestion(feedback, known));
    const bool quantizes = std::holds_alternative<Encoder>(compressor_);
    SPARFUSE_REQUIRE(!quantizes || !with_momentum_,
                     "feedback = \"momentum\" needs a Sparsifier; a Quantizer takes feedback = "
                     "\"residual\", and the momentum is left to the optimizer");
    SPARFUSE_REQUIRE(
        !quantizes || coding_ == PayloadCoding{},
        "values = \"" + values +
            "\" is for the selections of a Sparsifier; a Quantizer has a rounding of its own");
    const MomentumOptions defaults;
    SPARFUSE_REQUIRE(with_momentum_ || (options.momentum == defaults.momentum &&
                                        options.nesterov == defaults.nesterov &&
                                        options.masking == defaults.masking),
                     "momentum, nesterov and masking need feedback = \"momentum\"");
    MomentumCorrection(0, options);  // throws for an invalid momentum
    SPARFUSE_REQUIRE(!clip || *clip > 0,
                     "clip = " + std::to_string(clip.value_or(0)) + ": expected a norm above 0");
  }

  const py::object& sparsifier() const { return sparsifier_; }
  const char* feedback() const { return with_momentum_ ? "momentum" : "residual"; }

  py::object Step(const Given<"name", std::string>& name, const py::object& g,
                  const Given<"step", std::optional<std::uint64_t>>& step) {
    const FloatArray gradient = ReadGradient(g);
    Payload payload = [&] {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      return StepLocked(*name, gradient, *step);
    }();
    return std::visit([](auto& made) -> py::object { return std::move(made).Release(); }, payload);
  }

  py::array Residual(const Given<"name", std::string>& name) {
    return CopyOut(*name, [](Tensor& tensor) { return tensor.residual.host(); });
  }

  py::array Velocity(const Given<"name", std::string>& name) {
    SPARFUSE_REQUIRE(with_momentum_,
                     "velocity: this object has feedback = \"residual\"; only feedback = "
                     "\"momentum\" has velocities");
    return CopyOut(*name, [](Tensor& tensor) {
      return tensor.momentum->Velocity("", {0, tensor.residual.size()});
    });
  }

  py::dict StateDict() {
    struct Saved {
      std::vector<std::int64_t> shape;
      ArrayMemory<float> residual;
      std::optional<ArrayMemory<float>> velocity;
    };
    std::map<std::string, Saved> saved;
    py::dict residuals, velocities, state;
    const auto copy_tensors = [&] {
      for (auto& [name, tensor] : tensors_) {
        Saved copy{tensor.shape, ArrayMemory<float>(std::as_const(tensor.residual).host()), {}};
        if (tensor.momentum) {
          copy.velocity.emplace(tensor.momentum->Velocity("", {0, tensor.residual.size()}));
        }
        saved.emplace(name, std::move(copy));
      }
    };
    std::visit([&](auto& made) { SaveState(made, mutex_, state, copy_tensors); }, compressor_);
    for (auto& [name, copy] : saved) {
      residuals[py::str(name)] = std::move(copy.residual).Release(copy.shape);
      if (copy.velocity) {
        velocities[py::str(name)] = std::move(*copy.velocity).Release(copy.shape);
      }
    }
    state["feedback"] = feedback();
    state["residuals"] = residuals;
    state["velocities"] = velocities;
    return state;
  }

  // Checks everything before it changes anything.
  void LoadStateDict(const py::object& state) {
    const auto kind = py::cast<std::string>(py::str(StateOf(state, "feedback")));
    SPARFUSE_REQUIRE(kind == feedback(), "state is of feedback = \"" + kind +
                                             "\"; this object has \"" + feedback() + "\"");
    const StepsByTensor steps = ReadSteps(StateOf(state, "steps"));
    const py::object velocities = StateOf(state, "velocities");
    std::map<std::string, Tensor> tensors;
    for (const auto& [key, value] : StateOf(state, "residuals").cast<py::dict>()) {
      const auto name = py::cast<std::string>(py::str(key));
      const auto step = steps.find(name);
      SPARFUSE_REQUIRE(step != steps.end(), "state[\"steps\"] has no \"" + name + "\"");
      const auto read = [&](py::handle given, const char* what) {
        FloatArray array =
            ReadFloats(given, std::string("state[\"") + what + "\"][\"" + name + "\"]");
        RequireShape(name, step->second.shape, array.shape);
        return array;
      };
      const FloatArray residual = read(value, "residuals");
      const std::size_t n = residual.values().size();
      Tensor tensor{residual.shape, Buffer<float>(n), {}};
      std::ranges::copy(residual.values(), tensor.residual.host().begin());
      if (with_momentum_) {
        SPARFUSE_REQUIRE(velocities.contains(key), "state[\"velocities\"] has no \"" + name + "\"");
        const FloatArray velocity = read(velocities[key], "velocities");
        std::ranges::copy(velocity.values(),
                          tensor.momentum.emplace(n, options_).Velocity("", {0, n}).begin());
      }
      tensors.emplace(name, std::move(tensor));
    }
    std::visit(
        [&](auto& made) { LoadState(made, mutex_, state, [&] { tensors_ = std::move(tensors); }); },
        compressor_);
  }

  py::tuple Reduced(const py::object& self) {
    const py::dict keywords("momentum"_a = options_.momentum, "nesterov"_a = options_.nesterov,
                            "masking"_a = options_.masking, "clip"_a = clip_,
                            "values"_a = coding_.values == ValueCoding::kF16 ? "f16" : "f32");
    return Reduce(self, py::make_tuple(sparsifier_, feedback()), keywords, StateDict());
  }

 private:
  using Payload = std::variant<SelectedArrays, ArrayMemory<std::uint8_t>>;
  using Compressor = std::variant<Selector, Encoder>;

  // A step runs in C++ and would skip an overriding method of a Python class.
  template <class Object>
  static void RequireOwn(const py::object& object, const char* method) {
    if (py::type::of(object).attr(method).is(py::type::of<Object>().attr(method))) return;
    SPARFUSE_THROW(kConfig, TypeText(object) + " has a method " + method +
                                " of its own, which ErrorFeedback does not call; expected a class "
                                "with select(g, k), registered by register_sparsifier");
  }

  static Compressor CompressorOf(const py::object& object) {
    if (py::isinstance<BoundQuantizer>(object)) {
      RequireOwn<BoundQuantizer>(object, "encode");
      return Compressor(std::in_place_type<Encoder>, object.cast<BoundQuantizer&>().configured);
    }
    if (!py::isinstance<BoundSparsifier>(object)) {
      throw py::type_error("sparsifier is a " + TypeText(object) +
                           "; expected a sparfuse.Sparsifier or a sparfuse.Quantizer");
    }
    RequireOwn<BoundSparsifier>(object, "select");
    return Compressor(std::in_place_type<Selector>, object.cast<BoundSparsifier&>().configured);
  }

  struct Tensor {
    std::vector<std::int64_t> shape;
    Buffer<float> residual;
    std::optional<MomentumCorrection> momentum;
  };

  Payload StepLocked(const std::string& name, const FloatArray& gradient,
                     std::optional<std::uint64_t> step) {
    const std::size_t n = gradient.values().size();
    const std::shared_ptr<ThreadPool> pool = ModulePool();
    const std::uint64_t at =
        std::visit([&](const auto& made) { return made.StepOf(name, step); }, compressor_);
    // Residuals outlive a step that loss scaling skips. A large tensor's sums are therefore written
    // elsewhere, and the selection's single pass checks that they are finite. For other tensors the
    // check precedes the addition.
    const auto require_finite = [&] {
      RequireFinite(*pool, gradient.values(), {TensorId(name), name, gradient.shape, at});
    };
    auto it = tensors_.find(name);
    const auto* const selector = std::get_if<Selector>(&compressor_);
    const bool apart = n >= kApartElements && it != tensors_.end() && !with_momentum_ && !clip_ &&
                       selector != nullptr && selector->SelectsApart();
    if (!apart) require_finite();
    if (it == tensors_.end()) {
      it = tensors_.emplace(name, Tensor{gradient.shape, Buffer<float>(n), {}}).first;
      if (with_momentum_) it->second.momentum.emplace(n, options_);
    }
    Tensor& tensor = it->second;
    RequireShape(name, tensor.shape, gradient.shape);

    const Range range{0, n};
    std::span<const float> source = gradient.values();
    const float scale = clip_ ? ClipFactor(source, *clip_, *pool) : 1.0f;
    if (tensor.momentum) {
      source = tensor.momentum->Advance("", range, source, scale, *pool);
    } else if (scale != 1.0f) {
      if (clipped_.size() < n) clipped_ = Buffer<float>(n);
      ScaleDense(source, scale, clipped_.host().first(n), *pool);
      source = clipped_.host().first(n);
    }
    try {
      const std::span<float> residual = tensor.residual.host();
      if (auto* const encoder = std::get_if<Encoder>(&compressor_)) {
        return encoder->Compress(name, gradient.shape, source, residual, step);
      }
      std::span<float> updated;
      if (apart) updated = updated_.try_emplace(n, n).first->second.host();
      SelectedArrays selected =
          std::get<Selector>(compressor_)
              .Compress(name, gradient.shape, source, residual, step, updated);
      if (apart) std::swap(tensor.residual, updated_.at(n));
      RoundToCoding(coding_, selected.indices.span(), selected.values.span(),
                    tensor.residual.host());
      if (tensor.momentum) tensor.momentum->Sent("", range, selected.indices.span());
      return selected;
    } catch (const Error& error) {
      if (error.kind() == FailureKind::kNumeric) {
        if (apart) require_finite();
        // A residual that overflowed is lost. Without it the next step can go on.
        tensors_.erase(it);
      }
      throw;
    }
  }

  template <class Find>
  py::array CopyOut(const std::string& name, const Find& find) {
    auto [copy, shape] = [&] {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      Tensor& tensor = FindTensor(tensors_, name, "tensor");
      return std::pair(ArrayMemory<float>(find(tensor)), tensor.shape);
    }();
    return std::move(copy).Release(shape);
  }

  py::object sparsifier_;
  ObjectMutex mutex_;  // guards the members below
  Compressor compressor_;
  bool with_momentum_;
  MomentumOptions options_;
  std::optional<double> clip_;
  PayloadCoding coding_;  // coding of the selected values
  std::map<std::string, Tensor> tensors_;
  Buffer<float> clipped_;

  static constexpr std::size_t kApartElements = std::size_t{1} << 20;
  std::map<std::size_t, Buffer<float>> updated_;  // memory of the next residual, by size
};

void BindErrorFeedback(py::module_& module) {
  py::class_<ErrorFeedback>(
      module, "ErrorFeedback",
      R"(Error feedback: the part that a selection or a quantizer leaves out is added to the next gradient.

sparsifier   a Sparsifier. Its density is followed, its memory of tensors is not shared: each
             ErrorFeedback is a worker of its own, and several may have the same Sparsifier.
             Or a Quantizer: x = g + r; send encode(x); r = x - decode(sent).
feedback     "residual": x = g + r; send x at the selected indices S; r = x with S zeroed.
             "momentum": DGC's momentum correction (Lin et al., ICLR 2018, section 3.2):
             u = momentum * u + g; x = r + u; send x at S; r = x with S zeroed, and u with S
             zeroed. Use it instead of the optimizer's momentum.
nesterov     u = momentum * (u + g); x = r + (u + g)
masking      False: u is left alone at S
clip         largest Euclidean norm of g; a larger g is scaled down before all else. For a limit c
             on the average of P workers pass c / sqrt(P).
values       "f16" rounds the values that are sent to half precision and leaves the error of that in
             r: for encode_payload, whose "f16" then loses nothing
Of these, a Quantizer takes only clip, and feedback="residual".

Nothing is lost, even if a step is refused for a NaN: at every index either the value is sent or
the residual has it, bit for bit; with values="f16" and with a Quantizer, sent and residual together
have it, up to rounding. r and u start at zero; the addition of r is fused with the selection. For
that, of tensors of a million elements or more there is one array more for each size that occurs.

>>> import numpy, sparfuse
>>> f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density=0.5))
>>> g = numpy.array([4, 3], dtype=numpy.float32)
>>> f.step("fc.bias", g)[0].tolist(), f.residual("fc.bias").tolist()
([0], [0.0, 3.0])
>>> f.step("fc.bias", g)[0].tolist(), f.residual("fc.bias").tolist()
([1], [4.0, 0.0])
>>> q = sparfuse.Quantizer("sign")
>>> f = sparfuse.ErrorFeedback(q)
>>> q.decode(f.step("fc.bias", g), 2).tolist(), f.residual("fc.bias").tolist()
([3.5, 3.5], [0.5, -0.5])
)")
      .def(py::init([](const py::object& sparsifier, const Given<"feedback", std::string>& feedback,
                       const Given<"momentum", double>& momentum,
                       const Given<"nesterov", bool>& nesterov,
                       const Given<"masking", bool>& masking,
                       const Given<"clip", std::optional<double>>& clip,
                       const Given<"values", std::string>& values) {
             return Make<ErrorFeedback>(sparsifier, *feedback,
                                        MomentumOptions{*momentum, *nesterov, *masking}, *clip,
                                        *values);
           }),
           py::arg("sparsifier"), py::arg("feedback") = "residual", py::kw_only(),
           py::arg("momentum") = MomentumOptions().momentum,
           py::arg("nesterov") = MomentumOptions().nesterov,
           py::arg("masking") = MomentumOptions().masking, py::arg("clip") = py::none(),
           py::arg("values") = "f32")
      .def("step", &ErrorFeedback::Step, py::arg("name"), py::arg("g"), py::kw_only(),
           py::arg("step") = py::none(),
           R"(One step of one tensor: adds what was left out before, compresses, keeps the rest.

name   of the tensor: its residual is kept by it
g      as in Sparsifier.select; not modified
step   as in Sparsifier.select

Returns (indices, values) as Sparsifier.select does; values are sums of gradient and residual. With
a Quantizer, the payload that Quantizer.encode makes of these sums.
NumericError for a NaN or an infinity in g: it is as if there had been no such step. For a sum that
overflows: the residual of this tensor is lost then, and its next step starts from zero.

>>> import numpy, sparfuse
>>> f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density=0.5), feedback="momentum",
...                            momentum=0.5)
>>> for g in [[8, 6], [0, 0]]:
...     idx, val = f.step("fc.bias", numpy.array(g, dtype=numpy.float32))
...     print(idx.tolist(), val.tolist())
[0] [8.0]
[1] [9.0]
)")
      .def("residual", &ErrorFeedback::Residual, py::arg("name"),
           R"(A copy of a tensor's elements that were not sent so far, in its shape.

With feedback="momentum" this is DGC's v, the velocities accumulated and not sent.

>>> import numpy, sparfuse
>>> f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density=0.5))
>>> _ = f.step("fc.bias", numpy.array([[4, 3]], dtype=numpy.float32))
>>> f.residual("fc.bias").tolist()
[[0.0, 3.0]]
)")
      .def("velocity", &ErrorFeedback::Velocity, py::arg("name"),
           R"(A copy of a tensor's velocity u, in its shape. feedback="momentum" only.

>>> import numpy, sparfuse
>>> f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density=0.5), feedback="momentum")
>>> _ = f.step("fc.bias", numpy.array([4, 3], dtype=numpy.float32))
>>> f.velocity("fc.bias").tolist()
[0.0, 3.0]
)")
      .def("state_dict", &ErrorFeedback::StateDict,
           R"(The state of this object's tensors, for a checkpoint: dicts of copies and numbers.

Residuals, velocities and numbers of steps, from which random numbers follow; pickle has them too.
Also the thresholds or stages that a sparsifier remembers, and what state_dict() of one written in
Python returns; without that method, its memory is not saved. An object made with the same arguments
goes on bit for bit with load_state_dict.

>>> import numpy, sparfuse
>>> f, resumed = (sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density=0.5)) for _ in "ab")
>>> _ = f.step("fc.bias", numpy.array([4, 3], dtype=numpy.float32))
>>> resumed.load_state_dict(f.state_dict())
>>> resumed.residual("fc.bias").tolist()
[0.0, 3.0]
)")
      .def("load_state_dict", &ErrorFeedback::LoadStateDict, py::arg("state"),
           R"(Goes on from a result of state_dict, in place of all tensors that this object has.

Raises ConfigError or TypeError, and changes nothing, if the state is of another feedback or shape.

>>> import sparfuse
>>> f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk"))
>>> f.load_state_dict({})
Traceback (most recent call last):
    ...
sparfuse.ConfigError: state has no "feedback"; expected a result of this class's state_dict()
)")
      .def(
          "__reduce__",
          [](const py::object& self) { return self.cast<ErrorFeedback&>().Reduced(self); },
          "For pickle and copy: the object goes on as this one would, bit for bit.")
      .def_property_readonly("sparsifier", &ErrorFeedback::sparsifier,
                             R"(The Sparsifier or Quantizer that this object was made with.

>>> import sparfuse
>>> f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk"))
>>> f.sparsifier.density = 0.05
)")
      .def_property_readonly("feedback", &ErrorFeedback::feedback, R"("residual" or "momentum".

>>> import sparfuse
>>> sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk")).feedback
'residual'
)");
}

void BindWarmup(py::module_& module) {
  module.def(
      "warmup_density",
      [](const py::object& epoch, const Given<"density", double>& density, const py::object& epochs,
         const Given<"factor", std::optional<double>>& factor,
         const Given<"schedule", std::optional<std::vector<double>>>& given_schedule) {
        const std::optional<std::vector<double>>& schedule = given_schedule;
        constexpr std::uint64_t kMost = std::uint64_t{1} << 53;
        return WarmupDensity(
            ReadInteger(epoch, "epoch", 0, kMost), *density,
            {ReadInteger(epochs, "epochs", 0, kMost), *factor,
             schedule ? std::span<const double>(*schedule) : std::span<const double>()});
      },
      py::arg("epoch"), py::arg("density"), py::arg("epochs"), py::arg("factor") = py::none(),
      py::arg("schedule") = py::none(),
      R"(The density of an epoch in DGC's warm-up, in which the first epochs send more.

epoch      counted from 0
density    after the warm-up, and the least
epochs     W, how long the warm-up is; 0: none
factor     w: epoch e < W has max(w ** (e + 1), density). By default density ** (1 / (W + 1))
schedule   the densities of the W epochs, instead of factor

>>> import sparfuse
>>> [sparfuse.warmup_density(epoch, 0.001, epochs=4, factor=0.25) for epoch in range(5)]
[0.25, 0.0625, 0.015625, 0.00390625, 0.001]
>>> sparfuse.warmup_density(0, 0.001, epochs=2, schedule=[0.1, 0.01])
0.1
)");
}

}  // namespace

void BindFeedback(py::module_& module) {
  BindErrorFeedback(module);
  BindWarmup(module);
}

}  // namespace sparfuse::python
