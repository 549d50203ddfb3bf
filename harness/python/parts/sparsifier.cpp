// Selects by a class that is written in Python.
#include <utility>

#include "core/base/error.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"
#include "harness/python/python_sparsifier.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// An exception of the class is a mistake of the configuration that names it.
class FileSparsifier final : public Sparsifier, public HasMemory {
 public:
  FileSparsifier(std::string name, std::string shown, const py::object& object)
      : name_(std::move(name)),
        shown_(std::move(shown)),
        python_(shown_, object,
                py::cast<bool>(py::getattr(object, "exact_count", py::bool_(true)))) {}

  std::string_view name() const noexcept override { return name_; }

  PartMemory Memory() const override { return python_.Memory(); }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    try {
      python_.Select(context, source, density, info, state, slot);
    } catch (const py::error_already_set& error) {
      const GilHeld gil;
      SPARFUSE_THROW(kConfig, "sparsifier \"" + shown_ + "\": select(g, k) raised for tensor \"" +
                                  std::string(info.name) + "\", step " + std::to_string(info.step) +
                                  ": " + LastLine(error));
    }
  }

 private:
  std::string name_, shown_;
  PythonSparsifier python_;
};

}  // namespace

std::unique_ptr<Sparsifier> SparsifierOf(PartSource source, const Options& options,
                                         std::uint64_t seed) {
  const PartClass part(std::move(source), {});
  return std::make_unique<FileSparsifier>(part.source().name, part.source().shown,
                                          *part.Make(options, seed));
}

}  // namespace sparfuse::python
