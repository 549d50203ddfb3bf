// Reads arguments of bound functions, with errors that name them. If a type does not fit, pybind11
// itself lists the signatures, and does not say which argument is wrong.
#pragma once

#include <pybind11/stl.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "core/base/error.hpp"

namespace sparfuse::python {

template <std::size_t kSize>
struct ArgumentName {
  char text[kSize];
  constexpr ArgumentName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
};

// A T that a caller gave as the argument `kName`: const Given<"density", double>& density. Binding
// throws TypeError for another type and Error{kConfig} for an integer beyond T and for text that is
// no UTF-8: "density = '0.5': expected a number".
template <ArgumentName kName, class T>
struct Given {
  T value = {};

  operator const T&() const { return value; }
  const T& operator*() const { return value; }
  const T* operator->() const { return &value; }
};

template <class T>
struct OptionalOf : std::false_type {
  using Held = T;
};
template <class T>
struct OptionalOf<std::optional<T>> : std::true_type {
  using Held = T;
};

// The expected form of an argument of type T.
template <class T>
std::string Expected() {
  if constexpr (OptionalOf<T>::value) {
    return Expected<typename OptionalOf<T>::Held>() + ", or None";
  } else if constexpr (std::same_as<T, bool>) {
    return "True or False";
  } else if constexpr (std::integral<T>) {
    return "an integer from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
           std::to_string(std::numeric_limits<T>::max());
  } else if constexpr (std::floating_point<T>) {
    return "a number";
  } else if constexpr (std::same_as<T, std::string>) {
    return "a string that UTF-8 holds";
  } else {
    return "a list of " + Expected<typename T::value_type>() + " each";
  }
}

[[noreturn]] inline void RefuseArgument(pybind11::handle given, const std::string& what,
                                        const std::string& expected) {
  constexpr std::size_t kLongest = 100;
  auto shown = pybind11::cast<std::string>(pybind11::repr(given));
  if (shown.size() > kLongest) shown = shown.substr(0, kLongest) + "...";
  const std::string text = what + " = " + shown + ": expected " + expected;
  if (PyLong_Check(given.ptr()) == 0 && PyUnicode_Check(given.ptr()) == 0)
    throw pybind11::type_error(text);
  const bool of_the_kind =
      expected.starts_with(PyLong_Check(given.ptr()) ? "an integer" : "a string");
  if (!of_the_kind) throw pybind11::type_error(text);
  SPARFUSE_THROW(kConfig, text);
}

// A value of Python as a T. Throws as the binding of Given.
template <class T>
T ReadAs(pybind11::handle given, const std::string& what) {
  pybind11::detail::make_caster<T> caster;
  if (!caster.load(given, true)) {
    PyErr_Clear();
    RefuseArgument(given, what, Expected<T>());
  }
  return pybind11::detail::cast_op<T>(std::move(caster));
}

}  // namespace sparfuse::python

namespace pybind11::detail {

template <sparfuse::python::ArgumentName kName, class T>
struct type_caster<sparfuse::python::Given<kName, T>> {
  using Argument = sparfuse::python::Given<kName, T>;
  PYBIND11_TYPE_CASTER(Argument, make_caster<T>::name);

  bool load(handle given, bool /*convert*/) {
    value.value = sparfuse::python::ReadAs<T>(given, kName.text);
    return true;
  }
};

}  // namespace pybind11::detail
