// Selects by a class, or an object of one, that is written in Python.
#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// What becomes of an error that select raises. From a class of a file it is a mistake of the
// configuration that names the class.
enum class Raises : std::uint8_t { kAsItIs, kAsConfig };

// Takes the GIL only for the call of the Python method.
class PythonSparsifier final : public Sparsifier, public HasMemory {
 public:
  // shown: the name in errors.
  PythonSparsifier(std::string name, std::string shown, KeptObject object, bool exact_count,
                   Raises raises)
      : name_(std::move(name)),
        shown_(std::move(shown)),
        object_(std::move(object)),
        exact_count_(exact_count),
        raises_(raises) {
    SPARFUSE_REQUIRE(
        py::hasattr(*object_, "select") && PyCallable_Check(object_->attr("select").ptr()) != 0,
        "sparsifier \"" + shown_ + "\": " + TypeText(*object_) + " has no method select(g, k)");
    ReadSignature();
  }

  std::string_view name() const noexcept override { return name_; }
  PartMemory Memory() const override {
    return {"sparsifier", "sparsifier \"" + shown_ + "\"", object_};
  }
  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override;

 private:
  void ReadSignature();
  // Writes the checked indices in increasing order, and their number, into the slot.
  void CallSelect(const SelectInput& input, std::size_t k, const TensorInfo& info,
                  Slot& slot) const;
  void ReadReturned(const pybind11::object& returned, std::size_t n, std::size_t k,
                    const TensorInfo& info, Slot& slot) const;
  // Throws Error{kConfig} if anything still refers to g after the call.
  void RequireLetGo(const pybind11::array& view, const TensorInfo& info) const;

  std::string name_, shown_;
  KeptObject object_;
  bool takes_name_ = false, takes_step_ = false;  // its select
  bool exact_count_;
  Raises raises_;
};

void PythonSparsifier::ReadSignature() {
  std::vector<Keyword> keywords;
  bool any = false;
  try {
    keywords = KeywordsOf(object_->attr("select"), &any);
  } catch (py::error_already_set&) {  // for instance, a compiled class
    return;
  }
  takes_name_ = any || std::ranges::count(keywords, "name", &Keyword::name) > 0;
  takes_step_ = any || std::ranges::count(keywords, "step", &Keyword::name) > 0;
}

void PythonSparsifier::Select(const SelectContext& context, const SelectSource& source,
                              double density, const TensorInfo& info, SparsifierState* /*state*/,
                              Slot& slot) const {
  SelectInput input = BeginSelect(shown_, context, source, density, info, slot);
  const std::size_t k = KeptCount(input.n, density);
  RequireRoom(shown_, info, slot.capacity, k);
  if (k == input.n) return SelectAll(context, input, info, slot);
  AddPending(context, input, info);
  try {
    CallSelect(input, k, info, slot);
  } catch (const py::error_already_set& error) {
    if (raises_ == Raises::kAsItIs) throw;
    const GilHeld gil;
    SPARFUSE_THROW(kConfig, "sparsifier \"" + shown_ + "\": select(g, k) raised for tensor \"" +
                                std::string(info.name) + "\", step " + std::to_string(info.step) +
                                ": " + LastLine(error));
  }
  for (std::size_t i = 0; i < slot.count; ++i) {
    const std::uint32_t index = slot.indices.data[i];
    slot.values.data[i] = input.x()[index];
    if (input.residual != nullptr) input.residual[index] = 0.0f;
  }
}

void PythonSparsifier::CallSelect(const SelectInput& input, std::size_t k, const TensorInfo& info,
                                  Slot& slot) const {
  const RunningCall running(shown_, "select(g, k)");
  const py::array view = ReadOnlyCopy(std::span(input.x(), input.n));
  const py::int_ count(k);
  py::dict told;
  if (takes_name_) told["name"] = py::str(info.name.data(), info.name.size());
  if (takes_step_) told["step"] = info.step;
  const std::array<PyObject*, 2> arguments = {view.ptr(), count.ptr()};
  ReadReturned(CallWithKeywords(object_->attr("select"), arguments, told), input.n, k, info, slot);
  RequireLetGo(view, info);
}

void PythonSparsifier::RequireLetGo(const py::array& view, const TensorInfo& info) const {
  if (view.ref_count() == 1) return;
  CallPython(py::module_::import("gc").attr("collect"));  // for cycles, as in a caught exception
  if (view.ref_count() == 1) return;
  SPARFUSE_THROW(kConfig, "sparsifier \"" + shown_ + "\": " + TypeText(*object_) +
                              ".select(g, k) keeps g or a view of it, for tensor \"" +
                              std::string(info.name) + "\", step " + std::to_string(info.step) +
                              "; its memory is valid during the call only: keep g.copy()");
}

void PythonSparsifier::ReadReturned(const py::object& returned, std::size_t n, std::size_t k,
                                    const TensorInfo& info, Slot& slot) const {
  const auto refuse = [&](const std::string& what) {
    SPARFUSE_THROW(kConfig, "sparsifier \"" + shown_ + "\": " + TypeText(*object_) +
                                ".select(g, k) returned " + what + " for tensor \"" +
                                std::string(info.name) + "\", step " + std::to_string(info.step));
  };
  py::array indices;
  try {
    indices = CallPython(py::module_::import("numpy").attr("asarray"), returned).cast<py::array>();
  } catch (py::error_already_set&) {
    refuse("a " + TypeText(returned) + "; expected an array of integers");
  }
  const char kind = indices.dtype().kind();
  if (kind == 'O') refuse("a " + TypeText(returned) + "; expected an array of integers");
  const auto count = static_cast<std::size_t>(indices.size());
  const bool integers = kind == 'i' || kind == 'u' || count == 0;  // numpy.asarray([]) has floats
  if (indices.ndim() != 1 || !integers) {
    refuse("an array of " + std::to_string(indices.ndim()) + " dimensions, dtype " +
           py::cast<std::string>(py::str(indices.dtype())) +
           "; expected integers in one dimension");
  }
  if (exact_count_ ? count != k : count == 0 || count > slot.capacity) {
    refuse(std::to_string(count) + " indices; expected " +
           (exact_count_
                ? std::to_string(k) + " (a class whose count may differ says exact_count = False)"
                : "1 to " + std::to_string(slot.capacity)));
  }
  const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(indices);
  const std::span<const std::int64_t> given{wide.data(), count};
  for (const std::int64_t index : given) {
    if (index < 0 || static_cast<std::size_t>(index) >= n) {
      refuse("index " + std::to_string(index) + "; expected indices in [0, " + std::to_string(n) +
             ")");
    }
  }
  std::uint32_t* const out = slot.indices.data;
  std::transform(given.begin(), given.end(), out,
                 [](std::int64_t index) { return static_cast<std::uint32_t>(index); });
  std::sort(out, out + count);
  if (const auto* twice = std::adjacent_find(out, out + count); twice != out + count) {
    refuse("index " + std::to_string(*twice) + " more than once");
  }
  slot.count = count;
}

}  // namespace

std::unique_ptr<Sparsifier> WrapSparsifier(const std::string& name, py::object object,
                                           bool exact_count) {
  return std::make_unique<PythonSparsifier>(name, name, Keep(std::move(object)), exact_count,
                                            Raises::kAsItIs);
}

std::unique_ptr<Sparsifier> SparsifierOf(PartSource source, const Options& options,
                                         std::uint64_t seed) {
  const PartClass part(std::move(source), {});
  KeptObject object = part.Make(options, seed);
  const bool exact_count = py::cast<bool>(py::getattr(*object, "exact_count", py::bool_(true)));
  return std::make_unique<PythonSparsifier>(part.source().name, part.source().shown,
                                            std::move(object), exact_count, Raises::kAsConfig);
}

}  // namespace sparfuse::python
