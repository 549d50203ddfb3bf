// Guards classes of Python against objects whose __init__ was never called.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace sparfuse::python {

// pybind11 gives an object that only __new__ made memory of the class's operator new when a method
// first uses it, and takes what lies there for a constructed object. A class with this base raises
// TypeError instead; Make<Class>(...) is how its __init__ makes one.
struct MadeByInit {
  static void* operator new(std::size_t) {
    throw pybind11::type_error(
        "this object was made without its __init__; expected a call of the class, and of "
        "super().__init__() in a class derived from it");
  }
};

template <class Class, class... Arguments>
std::unique_ptr<Class> Make(Arguments&&... arguments) {
  return std::unique_ptr<Class>(::new Class(std::forward<Arguments>(arguments)...));
}

}  // namespace sparfuse::python
