// Keeps the residual by a class that is written in Python.
#include <pybind11/numpy.h>

#include <cstring>
#include <utility>

#include "harness/python/arrays.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

class PythonFeedback final : public FeedbackRule, public HasMemory {
 public:
  PythonFeedback(const PartClass& part, KeptObject object, bool conserves)
      : part_(part), object_(std::move(object)), conserves_(conserves) {}

  bool conserves() const noexcept override { return conserves_; }

  PartMemory Memory() const override { return part_.MemoryOf(object_); }

  void Compensate(std::string_view name, std::span<const float> gradient,
                  std::span<const float> residual, std::span<float> x) const override {
    const PartCall call(part_, "compensate(name, g, r) of \"" + std::string(name) + "\"");
    call([&] {
      const py::array g = ReadOnlyCopy(gradient), r = ReadOnlyCopy(residual);
      const py::object returned = CallPython(object_->attr("compensate"), Name(name), g, r);
      ReadFloatsOf(returned, x, call);
      RequireLetGo(g, "g", returned, call);
      RequireLetGo(r, "r", returned, call);
    });
  }

  void Keep(std::string_view name, std::span<const float> x, std::span<const std::uint32_t> indices,
            std::span<float> residual) const override {
    const PartCall call(part_, "keep(name, x, indices, r) of \"" + std::string(name) + "\"");
    call([&] {
      const py::array given = ReadOnlyCopy(x), sent = ReadOnlyCopy(indices);
      const py::array r = CopyOf(std::span<const float>(residual));
      const py::object returned = CallPython(object_->attr("keep"), Name(name), given, sent, r);
      if (!returned.is_none()) {
        call.Returned("a " + TypeText(returned) + "; expected None, and a write to r, r[:] = ...");
      }
      for (const auto& [view, what] :
           {std::pair(&given, "x"), std::pair(&sent, "indices"), std::pair(&r, "r")}) {
        RequireLetGo(*view, what, returned, call);
      }
      std::memcpy(residual.data(), r.data(), residual.size_bytes());
    });
    RequireFiniteOf(residual, call);
  }

 private:
  static py::str Name(std::string_view name) { return {name.data(), name.size()}; }

  const PartClass& part_;
  KeptObject object_;
  bool conserves_;
};

FeedbackDescriptor DescribeFeedback(PartClass& part) {
  return {.name = part.source().name,
          .summary = "written in Python",
          .options = part.options(),
          .make = [&part, conserves = part.Flag("conserves", true)](
                      const Options& resolved) -> std::shared_ptr<const FeedbackRule> {
            return std::make_shared<PythonFeedback>(part, part.Make(resolved), conserves);
          }};
}

}  // namespace

const FeedbackDescriptor& FeedbackOf(PartSource source) {
  return KeepPart(std::move(source), {"compensate(name, g, r)", "keep(name, x, indices, r)"},
                  &DescribeFeedback);
}

}  // namespace sparfuse::python
