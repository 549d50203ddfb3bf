// Says when a sum of sparse payloads is sent as a dense range, and keeps room for what is sent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/device.hpp"
#include "core/payload/payload.hpp"

namespace sparfuse::baselines {

// A sum of `count` of `elements` elements becomes dense
enum class DenseSwitch : std::uint8_t {
  kNever,
  kBytes,      // where its sparse form takes no fewer bytes: 8 count >= 4 elements
  kPublished,  // from a third of the elements on, as the code of Ok-Topk's authors has it
};

inline bool IsDense(DenseSwitch rule, std::size_t count, std::size_t elements) {
  if (elements == 0 || rule == DenseSwitch::kNever) return false;
  return rule == DenseSwitch::kPublished ? 3 * count >= elements
                                         : count * kSparseElementBytes >= elements * sizeof(float);
}

// Bytes of such a sum. By kBytes a sparse one is always shorter than a dense one: the length of a
// message says its form.
inline std::size_t SumBytes(DenseSwitch rule, std::size_t count, std::size_t elements) {
  return IsDense(rule, count, elements) ? elements * sizeof(float) : count * kSparseElementBytes;
}

// Makes `room` hold `bytes`. What it held is gone where it has to grow.
inline void Reserve(Buffer<std::byte>& room, std::size_t bytes) {
  // Sums of one range differ from step to step: an eighth more spares most of them from growing.
  if (room.size() < bytes) room = Buffer<std::byte>(bytes + bytes / 8);
}

}  // namespace sparfuse::baselines
