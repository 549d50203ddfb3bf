// Sets of positions of a tensor on a device, as bitmaps, and what they mark.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// Scratch of one selection, all zero: until the next ClearMarks on the same workspace.
struct DeviceMarks {
  std::uint32_t* bitmap = nullptr;  // bit i % 32 of word i / 32 is element i's
  std::uint64_t* told = nullptr;
  std::uint32_t* words = nullptr;  // [kMarksWords], for the caller
};
inline constexpr std::size_t kMarksWords = 64;

DeviceMarks ClearMarks(const DeviceContext& context, std::size_t n);

enum class Marked : std::uint8_t { kGoes, kStays };  // what is marked is sent, or is not
enum class Sum : std::uint8_t { kPending, kDone };   // gradient + residual, and the check of it

// The marked elements, or all others, into the slot and out of the residual. With kPending all of x
// is added and checked; else x is in the residual, or where there is none the gradient.
// Precondition: the slot has room for them.
void TakeMarkedOnDevice(const DeviceContext& context, const SelectSource& source,
                        const DeviceMarks& marks, Marked marked, Sum sum, DeviceSlot& slot);

}  // namespace sparfuse
