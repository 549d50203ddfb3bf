#include "harness/python/compressors.hpp"

#include <pybind11/stl.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "harness/python/module.hpp"

namespace sparfuse::python {
namespace py = pybind11;

std::uint32_t TensorId(std::string_view name) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

void ObjectMutex::lock() {
  if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    SPARFUSE_THROW(kConfig,
                   "select was called by the sparsifier that this object is calling; use another "
                   "Sparsifier object inside of select(g, k)");
  }
  mutex_.lock();
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void ObjectMutex::unlock() {
  owner_.store({}, std::memory_order_relaxed);
  mutex_.unlock();
}

std::string TensorName(const std::optional<std::string>& name,
                       std::span<const std::int64_t> shape) {
  return name ? *name : "unnamed " + ShapeText(shape);
}

FloatArray ReadGradient(pybind11::handle g) {
  FloatArray gradient = ReadFloats(g, "g");
  const std::size_t n = gradient.values().size();
  SPARFUSE_REQUIRE(n >= 1, "g is empty, its shape " + ShapeText(gradient.shape) +
                               "; expected at least one element");
  SPARFUSE_REQUIRE(
      n < (std::uint64_t{1} << 32),
      "g has " + std::to_string(n) + " elements; indices are 32 bits, expected below 2^32");
  return gradient;
}

void RequireShape(const std::string& tensor, std::span<const std::int64_t> known,
                  std::span<const std::int64_t> given) {
  SPARFUSE_REQUIRE(std::ranges::equal(known, given),
                   "tensor \"" + tensor + "\" has shape " + ShapeText(given) + ", and had " +
                       ShapeText(known) + " before; expected one name for each tensor");
}

std::uint64_t TensorSteps::StepOf(const std::string& tensor,
                                  std::optional<std::uint64_t> step) const {
  if (step) return *step;
  const auto known = tensors_.find(tensor);
  return known == tensors_.end() ? 0 : known->second.next_step;
}

py::dict StepsToPython(const StepsByTensor& steps) {
  py::dict saved;
  for (const auto& [name, tensor] : steps) {
    const py::tuple shape(py::cast(tensor.shape));
    py::tuple entry = py::make_tuple(shape, tensor.next_step);
    if (!tensor.remembered.empty()) {
      entry = py::make_tuple(shape, tensor.next_step, py::cast(tensor.remembered));
    }
    saved[py::str(name)] = entry;
  }
  return saved;
}

StepsByTensor ReadSteps(py::handle given) {
  StepsByTensor steps;
  try {
    for (const auto& [name, entry] : given.cast<py::dict>()) {
      if (!py::isinstance<py::sequence>(entry)) throw py::cast_error();
      const auto given_of = entry.cast<py::sequence>();
      const std::size_t size = given_of.size();
      if (size != 2 && size != 3) throw py::cast_error();
      TensorStep step{ReadShapeOfSome(given_of[0]), given_of[1].cast<std::uint64_t>(), {}};
      if (size == 3) step.remembered = given_of[2].cast<std::vector<double>>();
      steps[name.cast<std::string>()] = std::move(step);
    }
  } catch (const py::cast_error&) {
    throw py::type_error("state[\"steps\"] = " + py::cast<std::string>(py::repr(given)) +
                         ": expected {name: (shape, next step)}, as in state_dict()");
  }
  return steps;
}

py::object StateOf(py::handle state, const char* key) {
  if (!py::isinstance<py::dict>(state)) {
    throw py::type_error("state is a " + TypeText(state) + "; expected a result of state_dict()");
  }
  const auto dict = py::reinterpret_borrow<py::dict>(state);
  SPARFUSE_REQUIRE(dict.contains(key), std::string("state has no \"") + key +
                                           "\"; expected a result of this class's state_dict()");
  return dict[key];
}

py::tuple Reduce(const py::object& self, const py::tuple& arguments, const py::dict& keywords,
                 const py::object& state) {
  return py::make_tuple(py::module_::import("sparfuse").attr("_resumed"),
                        py::make_tuple(py::type::of(self), arguments, keywords, state,
                                       py::getattr(self, "__dict__", py::dict())));
}

StepsByTensor TensorSteps::Steps() const {
  StepsByTensor steps;
  for (const auto& [name, tensor] : tensors_) {
    StateNumbers numbers;
    if (tensor.state != nullptr) tensor.state->Exchange(numbers);
    TensorStep step{tensor.shape, tensor.next_step, numbers.Take()};
    // A warm bound speeds up a selection and does not change it.
    if (tensor.state != nullptr && step.remembered.empty() &&
        dynamic_cast<const WarmState*>(tensor.state.get()) == nullptr) {
      SPARFUSE_THROW(kUnsupported, "tensor \"" + name +
                                       "\": this plugin's sparsifier remembers something from step "
                                       "to step that it does not give to be saved; expected a "
                                       "SparsifierState with Exchange(numbers)");
    }
    steps[name] = std::move(step);
  }
  return steps;
}

void TensorSteps::SetSteps(const StepsByTensor& steps) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, step] : steps) {
    Tensor tensor{step.shape, nullptr, step.next_step};
    if (!step.remembered.empty()) {
      if (sparsifier_ != nullptr) tensor.state = sparsifier_->MakeState(ElementCount(step.shape));
      StateNumbers numbers(step.remembered);
      try {
        if (tensor.state != nullptr) tensor.state->Exchange(numbers);
        numbers.RequireEnd();
      } catch (const Error& error) {
        throw Error(error.kind(), "state[\"steps\"][\"" + name +
                                      "\"] has what another sparsifier remembers: " + error.what());
      }
    }
    tensors.emplace(name, std::move(tensor));
  }
  tensors_ = std::move(tensors);
}

std::vector<PartMemory> TensorSteps::Memories() const {
  const auto* const own = dynamic_cast<const HasMemory*>(sparsifier_);
  return own == nullptr ? std::vector<PartMemory>() : std::vector{own->Memory()};
}

TensorSteps::Tensor& TensorSteps::TensorOf(const std::string& name,
                                           std::span<const std::int64_t> shape) {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    it = tensors_.emplace(name, Tensor{{shape.begin(), shape.end()}, nullptr}).first;
  }
  RequireShape(name, it->second.shape, shape);
  return it->second;
}

SelectedArrays Selector::Compress(const std::string& name, std::span<const std::int64_t> shape,
                                  std::span<const float> gradient, std::span<float> residual,
                                  std::optional<std::uint64_t> step, std::span<float> updated) {
  const Sparsifier& sparsifier = *configured_->sparsifier;
  const std::size_t n = gradient.size();
  Tensor& tensor = TensorOf(name, shape);
  if (!tensor.state) tensor.state = sparsifier.MakeState(n);

  const double density = configured_->density;
  const std::size_t capacity = std::max(SlotCapacity(n, density, configured_->unbounded_count),
                                        sparsifier.Count(n, shape, density));
  SelectedArrays selected{ArrayMemory<std::uint32_t>(capacity), ArrayMemory<float>(capacity)};
  Slot slot{
      {selected.indices.data(), capacity, {}}, {selected.values.data(), capacity, {}}, capacity, 0};
  const std::shared_ptr<ThreadPool> pool = ModulePool();
  const std::uint64_t at = step.value_or(tensor.next_step);
  sparsifier.Select({pool.get(), &workspace_, &counters_, {}},
                    {{gradient.data(), n, {}},
                     {residual.data(), residual.size(), {}},
                     {updated.data(), updated.size(), {}}},
                    density, {TensorId(name), name, shape, at}, tensor.state.get(), slot);
  tensor.next_step = at + 1;
  selected.indices.Shrink(slot.count);
  selected.values.Shrink(slot.count);
  return selected;
}

ArrayMemory<std::uint8_t> Encoder::Compress(const std::string& name,
                                            std::span<const std::int64_t> shape,
                                            std::span<const float> gradient,
                                            std::span<float> residual,
                                            std::optional<std::uint64_t> step) {
  const Quantizer& quantizer = *configured_->quantizer;
  const std::size_t n = gradient.size();
  Tensor& tensor = TensorOf(name, shape);
  ArrayMemory<std::uint8_t> payload(quantizer.EncodedBytes(n));
  const std::shared_ptr<ThreadPool> pool = ModulePool();
  const std::uint64_t at = step.value_or(tensor.next_step);
  quantizer.Encode({pool.get(), &workspace_, configured_->rank},
                   {{gradient.data(), n, {}}, {residual.data(), residual.size(), {}}},
                   {TensorId(name), name, shape, at}, std::as_writable_bytes(payload.span()));
  tensor.next_step = at + 1;
  return payload;
}

}  // namespace sparfuse::python
