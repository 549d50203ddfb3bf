// Shortens the TypeErrors of calls that fit no signature. pybind11 prints types as its converters
// name them, and every value, a gradient's elements too.
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/python/module.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// pybind11 calls all functions of a module through one C function: with the first signature since
// 3.1, with the second before.
using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
using TupleCall = PyObject* (*)(PyObject*, PyObject*, PyObject*);
FastCall fast_call = nullptr;
TupleCall tuple_call = nullptr;

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// "(g: object, *, step: int | None = None)" of "(self: sparfuse._core.Sparsifier, g: object, *,
// step: typing.SupportsInt | typing.SupportsIndex | None = None) -> tuple".
std::string PlainSignature(std::string signature) {
  if (const auto result = signature.rfind(" -> "); result != std::string::npos)
    signature.resize(result);
  signature.erase(0, signature.find('('));
  if (signature.starts_with("(self: ")) {
    const std::size_t end = signature.find_first_of(",)");
    signature.erase(1, signature[end] == ',' ? end + 1 : end - 1);
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPlain = {
      {{"typing.SupportsInt | typing.SupportsIndex", "int"},
       {"typing.SupportsFloat | typing.SupportsIndex", "float"},
       {"collections.abc.", ""},
       {"typing.", ""},
       {"sparfuse._core.", ""}}};
  for (const auto& [from, to] : kPlain) ReplaceAll(signature, from, to);
  return signature;
}

// A number or a short string as Python writes it; of anything else its type.
std::string ShortValue(py::handle value) {
  const bool scalar = value.is_none() || py::isinstance<py::bool_>(value) ||
                      py::isinstance<py::int_>(value) || py::isinstance<py::float_>(value) ||
                      py::isinstance<py::str>(value);
  constexpr std::size_t kLongest = 40;
  if (scalar) {
    std::string text = py::repr(value).cast<std::string>();
    if (text.size() <= kLongest) return text;
  }
  return py::str(py::type::handle_of(value).attr("__name__")).cast<std::string>();
}

std::string Joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(between)) + word;
  return text;
}

// Replaces the current error if pybind11 set it for a call that fits no signature. New text:
// "step: got (ndarray, seed=1); expected (name: str, g: object)".
void Reword(const std::vector<py::handle>& arguments,
            const std::vector<std::pair<std::string, py::handle>>& keywords) {
  py::error_already_set error;
  std::string text = py::str(error.value()).cast<std::string>();
  const std::size_t opens = text.find("(): incompatible ");
  const std::size_t closes = text.find("\n\nInvoked with");
  if (opens == std::string::npos || closes == std::string::npos) {
    error.restore();
    return;
  }
  const bool constructs = text.compare(opens, 28, "(): incompatible constructor") == 0;
  const std::string lines = text.substr(0, closes + 1);
  std::string name = text.substr(0, opens);
  std::vector<std::string> signatures;
  bool bound = constructs;
  for (std::size_t at = lines.find('\n') + 1; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    const std::string line = lines.substr(at, end - at);
    at = end + 1;
    const std::size_t open = line.find('(');
    if (open == std::string::npos) continue;  // a hint of pybind11's, beneath the signatures
    bound = bound || line.compare(open, 7, "(self: ") == 0;
    const std::size_t word = line.find_last_of(" .", open) + 1;
    if (constructs) name = line.substr(word, open - word);
    signatures.push_back(PlainSignature(line));
  }
  std::vector<std::string> got;
  for (std::size_t i = bound ? 1 : 0; i < arguments.size(); ++i)
    got.push_back(ShortValue(arguments[i]));
  for (const auto& [keyword, value] : keywords) got.push_back(keyword + "=" + ShortValue(value));
  const std::string plain =
      name + ": got (" + Joined(got, ", ") + "); expected " + Joined(signatures, " or ");
  PyErr_SetString(PyExc_TypeError, plain.c_str());
}

PyObject* CallFast(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  PyObject* const result = fast_call(self, arguments, count, names);
  if (result != nullptr || !PyErr_ExceptionMatches(PyExc_TypeError)) return result;
  const Py_ssize_t positional = PyVectorcall_NARGS(static_cast<std::size_t>(count));
  std::vector<std::pair<std::string, py::handle>> keywords;
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i)
    keywords.emplace_back(PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i)), arguments[positional + i]);
  Reword({arguments, arguments + positional}, keywords);
  return nullptr;
}

PyObject* CallWithTuple(PyObject* self, PyObject* arguments, PyObject* named) {
  PyObject* const result = tuple_call(self, arguments, named);
  if (result != nullptr || !PyErr_ExceptionMatches(PyExc_TypeError)) return result;
  std::vector<py::handle> positional;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i)
    positional.emplace_back(PyTuple_GET_ITEM(arguments, i));
  std::vector<std::pair<std::string, py::handle>> keywords;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; named != nullptr && PyDict_Next(named, &at, &key, &value);)
    keywords.emplace_back(PyUnicode_AsUTF8(key), value);
  Reword(positional, keywords);
  return nullptr;
}

void RewordErrorsOf(PyObject* function) {
  if (PyInstanceMethod_Check(function)) function = PyInstanceMethod_GET_FUNCTION(function);
  if (!PyCFunction_Check(function)) return;
  PyMethodDef& defined = *reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  const auto call = reinterpret_cast<void (*)()>(defined.ml_meth);
  if (defined.ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
    fast_call = reinterpret_cast<FastCall>(call);
    defined.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&CallFast));
  } else if (defined.ml_flags == (METH_VARARGS | METH_KEYWORDS)) {
    tuple_call = reinterpret_cast<TupleCall>(call);
    defined.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&CallWithTuple));
  }
}

}  // namespace

void RewordTypeErrors(const py::module_& module) {
  for (const auto& [name, value] : module.attr("__dict__").cast<py::dict>()) {
    RewordErrorsOf(value.ptr());
    if (!PyType_Check(value.ptr()) || PyExceptionClass_Check(value.ptr())) continue;
    const py::dict members(py::module_::import("builtins").attr("dict")(value.attr("__dict__")));
    for (const auto& [member, function] : members) {
      const bool fixed = py::isinstance<py::staticmethod>(function);
      RewordErrorsOf(fixed ? py::object(function.attr("__func__")).ptr() : function.ptr());
    }
  }
}

}  // namespace sparfuse::python
