// Declares the input of a sparsifier on a device, and the results that it leaves there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/device/device.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse {

class Sparsifier;
class SparsifierState;
struct SelectContext;
struct SelectCounters;
struct SelectSource;
struct TensorInfo;

// The report that a selection leaves on the device beside its elements. It is copied to the host
// when the count must cross the wire, and is all zero before the selection.
struct SlotReport {
  std::uint32_t count = 0;
  std::uint32_t overflows = 0;  // as SelectCounters
  std::uint32_t fallbacks = 0;
  std::uint32_t not_finite = 0;  // NotFiniteCode of the first non-finite element; 0: none
  std::uint64_t candidates = 0;
};

// The code is greater for a lower index, so that AtomicMax finds the first element.
constexpr std::uint32_t NotFiniteCode(std::uint32_t index) { return 0xffffffffu - index; }

// The output of a selection on a device: a Slot whose count is in the report. All on the device.
struct DeviceSlot {
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
  std::size_t capacity = 0;
  SlotReport* report = nullptr;
};

// The arrays of a DeviceWorkspace. Each file of kernels has its own arrays, so that a selection and
// other work on the same stream share none.
enum DeviceWorkspaceUse : std::size_t {
  kUseControl,  // of a scan (scan_device/device_scan.hpp)
  kUseCandidateIndices,
  kUseCandidateValues,
  kUseCandidateSegments,
  kUseList,
  kUseParts,  // of measures
  kUseStep,   // data that a sparsifier's kernels pass to one another in one step
  kUseMarks,  // of position bitmaps
  kUseTransposed,
  kUseSums,  // of encoders
  kUseLargest,
  kUseTiles,  // of payload coding
  kUseTileStarts,
  kUseStarts,  // of sparse sums and merges
  kUseTotals,
  kUseSeen,
  kUseNormTiles,
  kUseSenderNorms,  // of rules that look at single ranks
  kUseSenderFactors,
  kUseScaledValues,
  kUseSenders,
  kDeviceWorkspaceUses
};

// Pinned arrays of a DeviceWorkspace, for a selection that the host makes (SelectStaged).
enum PinnedUse : std::size_t {
  kPinnedGradient,
  kPinnedResidual,
  kPinnedIndices,
  kPinnedValues,
  kPinnedUses
};

// Scratch memory on a device, shared by the selections of one stream, grown on demand and kept.
class DeviceWorkspace {
 public:
  explicit DeviceWorkspace(Device device) : device_(device) {}

  // Returns at least `size` elements, 256-byte aligned, contents undefined. They are valid until
  // the next call with the same `use`. Growing waits for the stream. Once a step has run with the
  // largest tensor, nothing is allocated.
  template <class T>
  T* Get(const Stream& stream, DeviceWorkspaceUse use, std::size_t size) {
    return reinterpret_cast<T*>(Bytes(stream, use, size * sizeof(T)));
  }
  // Returns pinned host memory in the same way.
  template <class T>
  std::span<T> GetPinned(const Stream& stream, PinnedUse use, std::size_t size) {
    return {reinterpret_cast<T*>(PinnedBytes(stream, use, size * sizeof(T))), size};
  }

 private:
  std::byte* Bytes(const Stream& stream, DeviceWorkspaceUse use, std::size_t bytes);
  std::byte* PinnedBytes(const Stream& stream, PinnedUse use, std::size_t bytes);

  Device device_;
  std::array<Buffer<std::byte>, kDeviceWorkspaceUses> buffers_;
  std::array<gpu::PinnedBuffer<std::byte>, kPinnedUses> pinned_;
};

struct DeviceContext {
  Stream stream;
  DeviceWorkspace* workspace = nullptr;  // never null
  // If this word of the device is 0, nothing is selected and nothing changes. Null: always selects.
  const std::uint32_t* only_if = nullptr;
  // The context for selections that the host makes (Sparsifier::SelectOnDevice). Never null.
  const SelectContext* host = nullptr;
};

// Whether the selection is wanted. Waits for the stream if only_if is given. For sparsifiers that
// count their selections on the host.
bool IsWanted(const DeviceContext& context);

// Checks the arguments of Sparsifier::SelectOnDevice, as Select's are checked. k: elements that the
// slot must have room for. Throws Error{kConfig}.
void CheckSelectOnDevice(std::string_view sparsifier, const DeviceContext& context,
                         const SelectSource& source, double density, const TensorInfo& info,
                         const DeviceSlot& slot, std::size_t k);

// Throws Error{kInternal} if the source's memory is not on the stream's device.
void RequireOnDevice(std::string_view who, const DeviceContext& context, const SelectSource& source,
                     const TensorInfo& info);

// Selects on the host: copies gradient and residual there, waits, selects, and copies back.
// Sparsifier::SelectOnDevice does so for a sparsifier without kernels. `state` is MakeState's.
void SelectStaged(const Sparsifier& sparsifier, const DeviceContext& context,
                  const SelectSource& source, double density, const TensorInfo& info,
                  SparsifierState* state, DeviceSlot& slot);

// Evaluates a copied report. If an element is not finite, throws Error{kNumeric} naming the tensor,
// the step and the element, as Sparsifier::Select does. Else adds to the counters and returns the
// count.
std::size_t TakeReport(const SlotReport& report, const TensorInfo& info, SelectCounters* counters);

}  // namespace sparfuse
