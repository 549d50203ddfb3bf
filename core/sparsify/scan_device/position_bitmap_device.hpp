// Holds sets of positions of a tensor on a device, as bitmaps, and sends the elements there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// Scratch of one selection, all zero. Valid until the next ClearDeviceBitmap on the same workspace.
struct DeviceBitmap {
  std::uint32_t* bits = nullptr;  // bit i % 32 of word i / 32 is element i's
  std::uint64_t* told = nullptr;
  std::uint32_t* words = nullptr;  // [kBitmapScratchWords], for the caller
};
inline constexpr std::size_t kBitmapScratchWords = 64;

DeviceBitmap ClearDeviceBitmap(const DeviceContext& context, std::size_t n);

enum class SetBits : std::uint8_t { kSent, kKept };
enum class Sum : std::uint8_t { kPending, kDone };  // gradient + residual and its check

// Moves the elements whose bits are set (kSent), or all others (kKept), from the residual into the
// slot. With kPending adds and checks all of x; else x is the residual, or the gradient if there is
// no residual.
// Precondition: the slot has room for them.
void TakeBitmapOnDevice(const DeviceContext& context, const SelectSource& source,
                        const DeviceBitmap& bitmap, SetBits set_bits, Sum sum, DeviceSlot& slot);

}  // namespace sparfuse
