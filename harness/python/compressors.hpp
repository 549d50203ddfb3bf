// Holds the state of objects that select or quantize: workspace, tensors and their lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/catalog.hpp"
#include "harness/python/parts/memory.hpp"

namespace sparfuse::python {

// Lets one thread at a time work on an object. To be taken without the GIL: a sparsifier written in
// Python waits for the GIL while its object is locked.
class ObjectMutex {
 public:
  // Throws Error{kConfig} if a sparsifier written in Python calls the object that called it, which
  // would otherwise wait for itself.
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_;
};

// Payload of one selection; becomes NumPy arrays without a copy.
struct SelectedArrays {
  ArrayMemory<std::uint32_t> indices;
  ArrayMemory<float> values;

  pybind11::tuple Release() && {
    return pybind11::make_tuple(std::move(indices).Release(), std::move(values).Release());
  }
};

// The saved state of a tensor's steps.
struct TensorStep {
  std::vector<std::int64_t> shape;
  std::uint64_t next_step = 0;
  std::vector<double> remembered;  // by a sparsifier in C++, such as thresholds
};
using StepsByTensor = std::map<std::string, TensorStep>;

// {name: (shape, next step)}, or (shape, next step, numbers) where numbers are remembered. Both
// need the GIL; reading throws TypeError and Error{kConfig}.
pybind11::dict StepsToPython(const StepsByTensor& steps);
StepsByTensor ReadSteps(pybind11::handle given);

// The value of an object's state_dict under a key. Throws TypeError if the state is not a dict, and
// Error{kConfig} if it has no such key.
pybind11::object StateOf(pybind11::handle state, const char* key);

// The tuple that pickle calls: the class with these arguments, its load_state_dict with the state,
// and the attributes of a class derived from it in Python. (pybind11 has a __setstate__ of its
// own.)
pybind11::tuple Reduce(const pybind11::object& self, const pybind11::tuple& arguments,
                       const pybind11::dict& keywords, const pybind11::object& state);

// Tensors by name: each keeps its shape, and its steps are counted. Not thread-safe; needs no GIL.
class TensorSteps {
 public:
  // sparsifier: the owner of the tensors' memory, or null; outlives this.
  explicit TensorSteps(const Sparsifier* sparsifier) : sparsifier_(sparsifier) {}

  // The step that the next call for a tensor is given: by default one more than the tensor's last
  // one, from 0.
  std::uint64_t StepOf(const std::string& tensor, std::optional<std::uint64_t> step) const;

  // Throws Error{kUnsupported} if a plugin's sparsifier has memory of a tensor that it cannot save.
  StepsByTensor Steps() const;
  // In place of all tensors. Throws Error{kConfig}, and changes nothing, for numbers of another
  // sparsifier.
  void SetSteps(const StepsByTensor& steps);
  // For a sparsifier whose class is in Python: its object, which others may share. The caller holds
  // the GIL.
  std::vector<PartMemory> Memories() const;

 protected:
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::unique_ptr<SparsifierState> state;  // a Selector's
    std::uint64_t next_step = 0;
  };

  // Throws Error{kConfig} if the tensor had another shape before.
  Tensor& TensorOf(const std::string& name, std::span<const std::int64_t> shape);

  Workspace workspace_;

 private:
  const Sparsifier* sparsifier_;
  std::map<std::string, Tensor> tensors_;
};

// A sparsifier with its memory of tensors.
class Selector : public TensorSteps {
 public:
  explicit Selector(std::shared_ptr<ConfiguredSparsifier> configured)
      : TensorSteps(configured->sparsifier.get()), configured_(std::move(configured)) {}

  // gradient: [product of shape]; residual: the same size, or empty; updated: as in SelectSource.
  // step: as in StepOf. Throws the errors of Sparsifier::Select and TensorOf. After an error the
  // step is not counted.
  SelectedArrays Compress(const std::string& tensor, std::span<const std::int64_t> shape,
                          std::span<const float> gradient, std::span<float> residual,
                          std::optional<std::uint64_t> step, std::span<float> updated = {});

  // A step of Compress may be given `updated`.
  bool SelectsApart() const { return configured_->sparsifier->SelectsApart(); }

 private:
  std::shared_ptr<ConfiguredSparsifier> configured_;
  SelectCounters counters_;
};

// A quantizer that counts the steps of tensors.
class Encoder : public TensorSteps {
 public:
  explicit Encoder(std::shared_ptr<const ConfiguredQuantizer> configured)
      : TensorSteps(nullptr), configured_(std::move(configured)) {}

  // As Selector::Compress; throws the errors of Quantizer::Encode.
  ArrayMemory<std::uint8_t> Compress(const std::string& tensor, std::span<const std::int64_t> shape,
                                     std::span<const float> gradient, std::span<float> residual,
                                     std::optional<std::uint64_t> step);

 private:
  std::shared_ptr<const ConfiguredQuantizer> configured_;
};

// The argument g of select and step, in a form that ReadFloats takes, with 1 to 2^32 - 1 elements.
// The caller holds the GIL.
FloatArray ReadGradient(pybind11::handle g);

// A tensor's random numbers follow from its name, so that workers agree in whatever order they see
// their tensors.
std::uint32_t TensorId(std::string_view name);
// The name of a tensor to which the caller gave none, from its shape.
std::string TensorName(const std::optional<std::string>& name, std::span<const std::int64_t> shape);

// The entry of a tensor that had a step. Throws Error{kConfig} if there is none; kind: its name in
// the error.
template <class Tensor>
Tensor& FindTensor(std::map<std::string, Tensor>& tensors, const std::string& name,
                   const char* kind) {
  const auto it = tensors.find(name);
  if (it != tensors.end()) return it->second;
  std::vector<std::string> known;
  for (const auto& entry : tensors) known.push_back(entry.first);
  SPARFUSE_THROW(kConfig, std::string("no step of a ") + kind + " \"" + name + "\" yet" +
                              (known.empty() ? "" : Suggestion(name, known)));
}

// Throws Error{kConfig} if the shapes differ.
void RequireShape(const std::string& tensor, std::span<const std::int64_t> known,
                  std::span<const std::int64_t> given);

}  // namespace sparfuse::python
