// Converts arrays that come from Python and go to Python. All functions need the GIL.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sparfuse::python {

// Memory for results that become NumPy arrays. A training step makes the same results again and
// again, and new pages from the system would cost as much as their contents. At least `bytes` of
// 64-byte aligned memory, contents undefined. It comes from ReturnMemory if a returned piece fits.
// Throws std::bad_alloc. Any thread may call it; it does not wait.
void* TakeMemory(std::size_t bytes);

// Keeps the memory for the next results, up to 128 MiB in all, or frees it.
void ReturnMemory(void* memory) noexcept;

// Elements that become a NumPy array without being copied. Uninitialised, unless they are copies.
template <class T>
class ArrayMemory {
 public:
  explicit ArrayMemory(std::size_t size)
      : data_(static_cast<T*>(TakeMemory(size * sizeof(T)))), size_(size) {}
  explicit ArrayMemory(std::span<const T> copied) : ArrayMemory(copied.size()) {
    std::ranges::copy(copied, data());
  }

  T* data() const noexcept { return data_.get(); }
  std::span<T> span() const noexcept { return {data_.get(), size_}; }

  // Keeps the first `size` elements. The memory behind them was never touched and so takes no
  // pages, except in a small array.
  void Shrink(std::size_t size) {
    if (size * sizeof(T) <= kCopied && size < size_ / 2) {
      ArrayMemory copy(std::span<const T>(data(), size));
      std::swap(data_, copy.data_);
    }
    size_ = size;
  }

  // shape: its product is the size. The array owns the memory from then on.
  pybind11::array_t<T> Release(const std::vector<std::int64_t>& shape) && {
    T* const data = data_.get();
    const pybind11::capsule owner(data, [](void* memory) { ReturnMemory(memory); });
    (void)data_.release();
    return pybind11::array_t<T>(shape, data, owner);
  }
  pybind11::array_t<T> Release() && {
    const auto size = static_cast<std::int64_t>(size_);
    return std::move(*this).Release({size});
  }

 private:
  static constexpr std::size_t kCopied = 32 * 1024;  // bytes
  struct Return {
    void operator()(T* memory) const noexcept { ReturnMemory(memory); }
  };
  std::unique_ptr<T, Return> data_;
  std::size_t size_;
};

// Views `object` (a NumPy array, or anything with DLPack or the buffer protocol) as a NumPy array,
// without a copy. `what` names it in errors. Throws TypeError; Error{kUnsupported} for memory on a
// device.
pybind11::array ViewArray(pybind11::handle object, const std::string& what);

// A float32 array in row-major order, kept alive.
struct FloatArray {
  pybind11::array array;  // a copy of the argument only if that is not contiguous
  std::vector<std::int64_t> shape;

  std::span<const float> values() const {
    return {static_cast<const float*>(array.data()), static_cast<std::size_t>(array.size())};
  }
};

// Throws TypeError naming the dtype if it is not float32, and the errors of ViewArray.
FloatArray ReadFloats(pybind11::handle object, const std::string& what);

// float32, row-major, to be written to. Throws TypeError; Error{kConfig} with the reason if it
// cannot be written in place.
std::span<float> WritableFloats(const pybind11::array& array, const std::string& what);

// uint8, in row-major order and 4-byte aligned, kept alive. It is a copy only if the argument is
// not like that.
struct ByteArray {
  pybind11::array array;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.size())};
  }
};

// Takes an array of uint8, or bytes. Throws TypeError, and the errors of ViewArray.
ByteArray ReadBytes(pybind11::handle object, const std::string& what);

// uint32, plain: the same array if it is so already. int32 and int64 below n are converted. Throws
// TypeError, Error{kConfig}, and the errors of ViewArray.
pybind11::array_t<std::uint32_t> ReadIndices(pybind11::handle object, std::size_t n,
                                             const std::string& what);
// Throws Error{kConfig} unless the indices are increasing and below n. The GIL is not needed.
void CheckIndices(std::span<const std::uint32_t> indices, std::size_t n, const std::string& what);

template <class T>
std::span<const T> ViewOf(const pybind11::array_t<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

// The memory to which a dense result is written.
struct DenseResult {
  pybind11::object object;  // the object for the caller in Python
  std::span<float> values;
};

// A new array of that shape, or `out` if it is not None. Throws as WritableFloats, and
// Error{kConfig} if `out` has another shape.
DenseResult MakeDense(const pybind11::object& out, const std::vector<std::int64_t>& shape,
                      const std::string& what = "out");

// Throws Error{kConfig} if the written memory overlaps memory that is read at the same time.
void RequireApart(const std::string& written, std::span<const std::byte> to,
                  const std::string& read, std::span<const std::byte> from);

// C-contiguous and aligned, so that its elements can be read one after another.
bool IsPlain(const pybind11::array& array);
// The same elements, plain; `array` itself if it is plain.
pybind11::array Plain(const pybind11::array& array);

// An integer from least to most. Throws TypeError if it is not an integer, and Error{kConfig} if it
// is out of range. Both name `what`, the value and the expected form.
std::uint64_t ReadInteger(pybind11::handle value, const std::string& what, std::uint64_t least,
                          std::uint64_t most);
// A seed of random numbers.
inline std::uint64_t ReadSeed(pybind11::handle seed) {
  return ReadInteger(seed, "seed", 0, ~std::uint64_t{0});
}
// An integer, or a sequence of integers. Throws TypeError; Error{kConfig} for a negative one.
std::vector<std::int64_t> ReadShape(pybind11::handle shape);
// The same, of at least one element. Throws Error{kConfig} otherwise.
std::vector<std::int64_t> ReadShapeOfSome(pybind11::handle shape);
// Throws Error{kConfig} for more elements than a process can address.
std::size_t ElementCount(std::span<const std::int64_t> shape);
// "(3, 4)"
std::string ShapeText(std::span<const std::int64_t> shape);
// The type of the object, for example "torch.Tensor".
std::string TypeText(pybind11::handle object);

}  // namespace sparfuse::python
