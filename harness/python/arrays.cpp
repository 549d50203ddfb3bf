#include "harness/python/arrays.hpp"

#include <pybind11/stl.h>

#include "core/error.hpp"

namespace sparfuse {
namespace py = pybind11;
namespace {

std::string Text(py::handle object) { return py::cast<std::string>(py::str(object)); }

py::array AsArray(const py::object& object) {
  return py::module_::import("numpy").attr("asarray")(object).cast<py::array>();
}

void RequireHost(py::handle object, const std::string& what) {
  if (!py::hasattr(object, "__dlpack_device__")) return;
  constexpr int kCpu = 1;  // kDLCPU; pinned host memory (kDLCUDAHost = 3) is as good
  constexpr int kCudaHost = 3;
  const auto device = object.attr("__dlpack_device__")().cast<py::tuple>();
  const auto kind = py::int_(device[0]).cast<int>();
  if (kind == kCpu || kind == kCudaHost) return;
  const std::string where =
      py::hasattr(object, "device") ? Text(object.attr("device")) : "DLPack " + Text(device);
  SPARFUSE_THROW(kUnsupported, what + " is on device " + where +
                                   "; this module works on host memory: pass a copy on the CPU");
}

void RequireFloat32(const py::array& array, py::handle given, const std::string& what) {
  if (py::isinstance<py::array_t<float>>(array)) return;
  const bool torch = TypeText(given) == "torch.Tensor";
  throw py::type_error(what + " has dtype " + Text(array.dtype()) + "; expected float32: pass " +
                       what + (torch ? ".float()" : ".astype(numpy.float32)"));
}

}  // namespace

std::string TypeText(py::handle object) {
  const py::type type = py::type::of(object);
  const std::string module = Text(type.attr("__module__"));
  return (module == "builtins" ? "" : module + ".") + Text(type.attr("__qualname__"));
}

std::vector<std::int64_t> ReadShape(py::handle shape) {
  std::vector<std::int64_t> extents;
  try {
    if (PyIndex_Check(shape.ptr()) != 0) {
      extents = {shape.cast<std::int64_t>()};
    } else {
      extents = shape.cast<std::vector<std::int64_t>>();
    }
  } catch (const py::cast_error&) {
    throw py::type_error("shape = " + py::cast<std::string>(py::repr(shape)) +
                         "; expected an integer or a sequence of integers");
  }
  for (const std::int64_t extent : extents) {
    SPARFUSE_REQUIRE(extent >= 0,
                     "shape = " + ShapeText(extents) + ": expected no negative extents");
  }
  return extents;
}

std::size_t ElementCount(std::span<const std::int64_t> shape) {
  std::size_t n = 1;
  for (const std::int64_t extent : shape) n *= static_cast<std::size_t>(extent);
  return n;
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

py::array ViewArray(py::handle object, const std::string& what) {
  if (py::isinstance<py::array>(object)) return py::reinterpret_borrow<py::array>(object);
  try {
    if (py::hasattr(object, "__dlpack__")) {
      RequireHost(object, what);
      return py::module_::import("numpy").attr("from_dlpack")(object).cast<py::array>();
    }
    if (PyObject_CheckBuffer(object.ptr()) != 0) {
      return AsArray(py::memoryview(py::reinterpret_borrow<py::object>(object)));
    }
  } catch (py::error_already_set& error) {
    const std::string dtype =
        py::hasattr(object, "dtype") ? ", dtype " + Text(object.attr("dtype")) : "";
    throw py::type_error(
        what + " (" + TypeText(object) + dtype +
        ") cannot be viewed as a float32 array on the host: " + Text(error.value()));
  }
  throw py::type_error(what + " is a " + TypeText(object) +
                       "; expected an array: NumPy, DLPack (torch.Tensor, ...) or the buffer "
                       "protocol. A list: numpy.asarray(" +
                       what + ", dtype=numpy.float32)");
}

bool IsPlain(const py::array& array) {
  constexpr int kNeeded = static_cast<int>(py::array::c_style) |
                          static_cast<int>(py::detail::npy_api::NPY_ARRAY_ALIGNED_);
  return (array.flags() & kNeeded) == kNeeded;
}

py::array Plain(const py::array& array) {
  return IsPlain(array) ? array : array.attr("copy")("C").cast<py::array>();
}

FloatArray ReadFloats(py::handle object, const std::string& what) {
  const py::array array = ViewArray(object, what);
  RequireFloat32(array, object, what);
  FloatArray result{Plain(array), {}};
  result.shape.assign(array.shape(), array.shape() + array.ndim());
  return result;
}

std::span<float> WritableFloats(const py::array& array, const std::string& what) {
  RequireFloat32(array, array, what);
  SPARFUSE_REQUIRE(IsPlain(array), what + " is not contiguous in row-major order");
  SPARFUSE_REQUIRE(array.writeable(), what + " is read-only");
  return {static_cast<float*>(const_cast<void*>(array.data())),
          static_cast<std::size_t>(array.size())};
}

}  // namespace sparfuse
