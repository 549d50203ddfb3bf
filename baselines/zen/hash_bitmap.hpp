// Defines how a server's sums travel: as a hash bitmap over its own list with packed values, or as
// indices and values, whichever its header says.
//
//   head    u32 form, u32 count; then, as a bitmap, ceil(list / 8) bytes of which bit t says
//           whether the list's t-th index is there.
//   body    as a bitmap `count` f32 values; else a payload (core/payload/payload.hpp).
//
// Two messages, because the head says how long the body is: it goes where the sums are to lie.
// The bitmaps of all servers together have a bit for each element of the range, however many
// servers there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "baselines/zen/servers.hpp"
#include "core/payload/payload.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::baselines {

enum class IndexForm : std::uint32_t { kCoo = 0, kBitmap = 1 };
enum class FormChoice : std::uint8_t { kAuto, kBitmap, kCoo };

inline constexpr std::size_t kSumsHeaderBytes = 8;
inline std::size_t BitmapBytes(std::size_t list) { return (list + 7) / 8; }

// kAuto: the bitmap where it is smaller than the indices.
IndexForm FormOf(FormChoice choice, std::size_t list, std::size_t count);

// Of a server with a list of so many indices.
inline std::size_t HeadBytes(IndexForm form, std::size_t list) {
  return kSumsHeaderBytes + (form == IndexForm::kBitmap ? BitmapBytes(list) : 0);
}
inline std::size_t BodyBytes(IndexForm form, std::size_t count) {
  return count * (form == IndexForm::kBitmap ? sizeof(float) : kSparseElementBytes);
}

// Writes the head. added: the positions that are there, as RangeSums::added gives them.
// Preconditions: room for HeadBytes; bits behind the list are 0. Returns what was written.
std::span<std::byte> WriteHead(IndexForm form, std::size_t list, std::size_t count,
                               std::span<const std::uint64_t> added, std::span<std::byte> room);

struct SumsHead {
  IndexForm form = IndexForm::kCoo;
  std::size_t count = 0;
  std::span<const std::byte> bitmap;  // empty as indices
};
// Throws Error{kComm} naming the server where it is malformed: a bitmap has not `count` bits.
SumsHead ReadHead(std::span<const std::byte> head, std::size_t server, std::size_t list);

// The indices of a server that a bitmap over its list says. out: as many as there are bits.
void DecodeBitmap(std::span<const std::byte> bitmap, const Servers& servers, std::size_t server,
                  std::span<std::uint32_t> out);

}  // namespace sparfuse::baselines
