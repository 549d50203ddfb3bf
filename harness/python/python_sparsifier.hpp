// Puts a sparsifier written in Python behind the interface of all the others.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/python/parts/memory.hpp"

namespace sparfuse::python {

// Wraps an object with a method select(g, k) that returns the indices to send:
//
//   g           [n] float32, a read-only NumPy view of x = gradient + residual, valid during the
//               call only
//   k           max(1, trunc(density * n)), below n: density 1 sends everything without a call
//   name, step  of the tensor, as keywords, if its signature has parameters of these names or
//               takes any (**keywords)
//   returns     integers in [0, n), all different, in any order, as an array of one dimension or
//               a sequence: k of them, or, without `exact_count`, between 1 and the slot's capacity
//
// Select may be called from any thread, with or without the GIL. It takes the GIL only for the call
// of the Python method. An error that the method raises is thrown as pybind11::error_already_set. A
// wrong return value, or a g that it keeps, is Error{kConfig} naming the class, the tensor and the
// expected form.
class PythonSparsifier final : public Sparsifier, public HasMemory {
 public:
  // The caller holds the GIL. Throws Error{kConfig} if `object` has no method `select`.
  PythonSparsifier(std::string name, pybind11::object object, bool exact_count);
  ~PythonSparsifier() override;

  std::string_view name() const noexcept override { return name_; }
  PartMemory Memory() const override;
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

  std::string name_;
  pybind11::object object_;
  bool takes_name_ = false, takes_step_ = false;  // its select
  bool exact_count_;
};

}  // namespace sparfuse::python
