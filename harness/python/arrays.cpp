#include "harness/python/arrays.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/error.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmall = 64 * 1024;  // bytes; malloc itself keeps smaller blocks
constexpr std::size_t kMostKept = std::size_t{128} << 20;
constexpr std::size_t kMostBlocks = 32;

// Precedes the returned memory, in its own cache line.
struct alignas(kAlignment) Block {
  std::size_t bytes = 0;
};

struct Kept {
  std::mutex mutex;
  std::vector<Block*> blocks;  // the last returned block is at the end
  std::size_t bytes = 0;
};

// Never destroyed, because arrays outlive the module.
Kept& KeptBlocks() {
  static Kept* const kept = [] {
    auto* const made = new Kept;
    made->blocks.reserve(kMostBlocks + 1);  // returning memory must not throw
    return made;
  }();
  return *kept;
}

std::string Text(py::handle object) { return py::cast<std::string>(py::str(object)); }

py::array AsArray(const py::object& object) {
  return py::module_::import("numpy").attr("asarray")(object).cast<py::array>();
}

void RequireHost(py::handle object, const std::string& what) {
  if (!py::hasattr(object, "__dlpack_device__")) return;
  constexpr int kCpu = 1;  // kDLCPU; pinned host memory (kDLCUDAHost = 3) works, too
  constexpr int kCudaHost = 3;
  const auto device = object.attr("__dlpack_device__")().cast<py::tuple>();
  const auto kind = py::int_(device[0]).cast<int>();
  if (kind == kCpu || kind == kCudaHost) return;
  const std::string where =
      py::hasattr(object, "device") ? Text(object.attr("device")) : "DLPack " + Text(device);
  SPARFUSE_THROW(kUnsupported, what + " is on device " + where +
                                   "; this module works on host memory: pass a copy on the CPU");
}

bool IsTorch(py::handle object) {
  return py::hasattr(object, "is_neg") && py::hasattr(object, "is_conj");
}

// Refuses tensors that torch negates or conjugates when it reads them: __dlpack__ hides that.
void RequireResolved(py::handle object, const std::string& what) {
  if (!IsTorch(object)) return;
  for (const std::string bit : {"conj", "neg"}) {
    if (!object.attr(("is_" + bit).c_str())().cast<bool>()) continue;
    throw py::type_error(what + " is a tensor with the " +
                         (bit == "neg" ? "negative" : "conjugate") + " bit: its memory has " +
                         (bit == "neg" ? "the other sign" : "the conjugate") + "; pass " + what +
                         ".resolve_" + bit + "()");
  }
}

// The conversion to float32, in the user's syntax.
std::string Conversion(py::handle given, const std::string& dtype, const std::string& what) {
  if (dtype.find("complex") != std::string::npos) {
    return IsTorch(given) ? "torch.view_as_real(" + what + ").float()"
                          : what + ".astype(numpy.complex64).view(numpy.float32)";
  }
  return what + (IsTorch(given) ? ".float()" : ".astype(numpy.float32)");
}

void RequireFloat32(const py::array& array, py::handle given, const std::string& what) {
  if (py::isinstance<py::array_t<float>>(array)) return;
  const std::string dtype = Text(array.dtype());
  throw py::type_error(what + " has dtype " + dtype + "; expected float32: pass " +
                       Conversion(given, dtype, what));
}

[[noreturn]] void ThrowOutOfRange(const std::string& what, std::size_t at, std::int64_t index,
                                  std::size_t n) {
  SPARFUSE_THROW(kConfig, what + "[" + std::to_string(at) + "] = " + std::to_string(index) +
                              ": expected indices in [0, " + std::to_string(n) + ")");
}

// Copies `indices` as uint32.
template <class T>
py::array_t<std::uint32_t> Narrow(const py::array& indices, std::size_t n,
                                  const std::string& what) {
  const py::array plain = Plain(indices);
  const std::span<const T> from{static_cast<const T*>(plain.data()),
                                static_cast<std::size_t>(plain.size())};
  ArrayMemory<std::uint32_t> to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!std::in_range<std::uint32_t>(from[i])) ThrowOutOfRange(what, i, from[i], n);
    to.data()[i] = static_cast<std::uint32_t>(from[i]);
  }
  return std::move(to).Release();
}

}  // namespace

void* TakeMemory(std::size_t bytes) {
  // In a forked child, another thread of the parent may have held the lock for ever.
  Kept& kept = KeptBlocks();
  if (const std::unique_lock lock(kept.mutex, std::try_to_lock); lock && bytes > kSmall) {
    const auto fits = [&](const Block* block) {
      return block->bytes >= bytes && block->bytes / 2 <= bytes;
    };
    const auto found = std::find_if(kept.blocks.rbegin(), kept.blocks.rend(), fits);
    if (found != kept.blocks.rend()) {
      Block* const block = *found;
      kept.bytes -= block->bytes;
      kept.blocks.erase(std::next(found).base());
      return block + 1;
    }
  }
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, sizeof(Block) + rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) Block{rounded} + 1;
}

void ReturnMemory(void* memory) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  Kept& kept = KeptBlocks();
  if (block->bytes > kSmall && block->bytes <= kMostKept) {
    if (const std::unique_lock lock(kept.mutex, std::try_to_lock); lock) {
      kept.blocks.push_back(block);
      kept.bytes += block->bytes;
      while (kept.bytes > kMostKept || kept.blocks.size() > kMostBlocks) {
        Block* const oldest = kept.blocks.front();
        kept.blocks.erase(kept.blocks.begin());
        kept.bytes -= oldest->bytes;
        std::free(oldest);
      }
      return;
    }
  }
  std::free(block);
}

std::string TypeText(py::handle object) {
  const py::type type = py::type::of(object);
  const std::string module = Text(type.attr("__module__"));
  return (module == "builtins" ? "" : module + ".") + Text(type.attr("__qualname__"));
}

std::uint64_t ReadInteger(py::handle value, const std::string& what, std::uint64_t least,
                          std::uint64_t most) {
  const std::string given = what + " = " + py::cast<std::string>(py::repr(value));
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  if (PyIndex_Check(value.ptr()) == 0) {
    throw py::type_error(given + ": expected an integer from " + range);
  }
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) throw py::error_already_set();
  const bool fits = !(index < py::int_(least)) && !(index > py::int_(most));
  SPARFUSE_REQUIRE(fits, given + ": expected " + range);
  return index.cast<std::uint64_t>();
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

std::vector<std::int64_t> ReadShapeOfSome(py::handle shape) {
  std::vector<std::int64_t> extents = ReadShape(shape);
  SPARFUSE_REQUIRE(ElementCount(extents) >= 1,
                   "the shape " + ShapeText(extents) + " has no elements");
  return extents;
}

std::size_t ElementCount(std::span<const std::int64_t> shape) {
  if (std::ranges::count(shape, 0) > 0) return 0;
  constexpr std::size_t kMost = std::size_t{1} << 48;
  std::size_t n = 1;
  for (const std::int64_t extent : shape) {
    SPARFUSE_REQUIRE(static_cast<std::size_t>(extent) <= kMost / n,
                     "the shape " + ShapeText(shape) + " has more than 2^48 elements");
    n *= static_cast<std::size_t>(extent);
  }
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
      RequireResolved(object, what);
      return py::module_::import("numpy").attr("from_dlpack")(object).cast<py::array>();
    }
    if (PyObject_CheckBuffer(object.ptr()) != 0) {
      return AsArray(py::memoryview(py::reinterpret_borrow<py::object>(object)));
    }
  } catch (py::error_already_set& error) {
    const std::string dtype = py::hasattr(object, "dtype") ? Text(object.attr("dtype")) : "";
    // DLPack or NumPy lacks this type, for instance bfloat16.
    if (!dtype.empty() && !dtype.ends_with("float32")) {
      throw py::type_error(what + " has dtype " + dtype + "; expected float32: pass " +
                           Conversion(object, dtype, what));
    }
    throw py::type_error(
        what + " (" + TypeText(object) + (dtype.empty() ? "" : ", dtype " + dtype) +
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

ByteArray ReadBytes(py::handle object, const std::string& what) {
  const py::array array = ViewArray(object, what);
  if (!py::isinstance<py::array_t<std::uint8_t>>(array)) {
    throw py::type_error(what + " has dtype " + Text(array.dtype()) +
                         "; expected uint8, the result of an encoding");
  }
  py::array plain = Plain(array);
  if (reinterpret_cast<std::uintptr_t>(plain.data()) % sizeof(std::uint32_t) != 0) {
    plain = plain.attr("copy")().cast<py::array>();
  }
  return {plain};
}

py::array_t<std::uint32_t> ReadIndices(py::handle object, std::size_t n, const std::string& what) {
  const py::array indices = ViewArray(object, what);
  if (py::isinstance<py::array_t<std::uint32_t>>(indices)) {
    return py::array_t<std::uint32_t>(Plain(indices));
  }
  if (py::isinstance<py::array_t<std::int32_t>>(indices)) {
    return Narrow<std::int32_t>(indices, n, what);
  }
  if (py::isinstance<py::array_t<std::int64_t>>(indices)) {
    return Narrow<std::int64_t>(indices, n, what);
  }
  throw py::type_error(what + " has dtype " + Text(indices.dtype()) +
                       "; expected uint32 (int32 and int64 are converted)");
}

void CheckIndices(std::span<const std::uint32_t> indices, std::size_t n, const std::string& what) {
  if (AreIncreasing(indices) && (indices.empty() || indices.back() < n)) return;
  std::size_t at = 0;
  while (indices[at] < n && (at == 0 || indices[at] > indices[at - 1])) ++at;
  if (indices[at] >= n) ThrowOutOfRange(what, at, indices[at], n);
  SPARFUSE_THROW(kConfig, what + "[" + std::to_string(at) + "] = " + std::to_string(indices[at]) +
                              " after " + std::to_string(indices[at - 1]) +
                              ": expected increasing indices");
}

void RequireApart(const std::string& written, std::span<const std::byte> to,
                  const std::string& read, std::span<const std::byte> from) {
  const std::less<const std::byte*> before;
  if (to.empty() || from.empty() || !before(to.data(), from.data() + from.size()) ||
      !before(from.data(), to.data() + to.size())) {
    return;
  }
  SPARFUSE_THROW(kConfig, written + " shares memory with " + read +
                              ", which is read while it is written; expected other memory");
}

DenseResult MakeDense(const py::object& out, const std::vector<std::int64_t>& shape,
                      const std::string& what) {
  if (out.is_none()) {
    const py::array made = ArrayMemory<float>(ElementCount(shape)).Release(shape);
    return {made, WritableFloats(made, "the result")};
  }
  const py::array view = ViewArray(out, what);
  SPARFUSE_REQUIRE(std::equal(shape.begin(), shape.end(), view.shape(), view.shape() + view.ndim()),
                   what + " has shape " + ShapeText({view.shape(), view.shape() + view.ndim()}) +
                       "; expected " + ShapeText(shape));
  return {out, WritableFloats(view, what)};
}

}  // namespace sparfuse::python
