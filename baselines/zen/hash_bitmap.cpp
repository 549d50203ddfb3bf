#include "baselines/zen/hash_bitmap.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.hpp"

namespace sparfuse::baselines {
namespace {

static_assert(std::endian::native == std::endian::little, "bit t is bit t % 8 of byte t / 8");

// Calls each(base, word) for the words of a bitmap, the last filled up with zeros.
template <class Each>
void ForWords(std::span<const std::byte> bitmap, const Each& each) {
  for (std::size_t at = 0; at < bitmap.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bitmap.data() + at, std::min(sizeof word, bitmap.size() - at));
    each(8 * at, word);
  }
}

}  // namespace

IndexForm FormOf(FormChoice choice, std::size_t list, std::size_t count) {
  if (choice == FormChoice::kBitmap) return IndexForm::kBitmap;
  if (choice == FormChoice::kCoo) return IndexForm::kCoo;
  return BitmapBytes(list) < count * sizeof(std::uint32_t) ? IndexForm::kBitmap : IndexForm::kCoo;
}

std::span<std::byte> WriteHead(IndexForm form, std::size_t list, std::size_t count,
                               std::span<const std::uint64_t> added, std::span<std::byte> room) {
  const std::uint32_t header[] = {static_cast<std::uint32_t>(form),
                                  static_cast<std::uint32_t>(count)};
  std::memcpy(room.data(), header, sizeof header);
  const std::span<std::byte> head = room.first(HeadBytes(form, list));
  const std::size_t bitmap = head.size() - kSumsHeaderBytes;
  if (bitmap > 0) std::memcpy(head.data() + kSumsHeaderBytes, added.data(), bitmap);
  return head;
}

SumsHead ReadHead(std::span<const std::byte> head, std::size_t server, std::size_t list) {
  const auto malformed = [&](const std::string& what) {
    SPARFUSE_THROW(kComm, "zen: the sums of server " + std::to_string(server) + " begin with " +
                              std::to_string(head.size()) + " bytes" + what);
  };
  std::uint32_t header[2] = {};
  if (head.size() < sizeof header) malformed(": expected a header");
  std::memcpy(header, head.data(), sizeof header);
  const auto form = static_cast<IndexForm>(header[0]);
  const std::size_t count = header[1];
  if (form != IndexForm::kCoo && form != IndexForm::kBitmap) {
    malformed(", in form " + std::to_string(header[0]) + ": expected 0 or 1");
  }
  if (count > list || head.size() != HeadBytes(form, list)) {
    malformed(" and are " + std::to_string(count) + " of " + std::to_string(list) + " elements" +
              (form == IndexForm::kBitmap ? ", as a bitmap" : ""));
  }
  const SumsHead read{form, count, head.subspan(kSumsHeaderBytes)};
  if (form == IndexForm::kCoo) return read;
  std::size_t bits = 0;
  std::uint64_t last = 0;
  ForWords(read.bitmap, [&](std::size_t base, std::uint64_t word) {
    bits += static_cast<std::size_t>(std::popcount(word));
    if (word != 0) last = base + static_cast<std::size_t>(std::bit_width(word));
  });
  if (bits != count || last > list) {
    malformed(", " + std::to_string(bits) + " bits for " + std::to_string(count) + " of " +
              std::to_string(list) + " elements");
  }
  return read;
}

void DecodeBitmap(std::span<const std::byte> bitmap, const Servers& servers, std::size_t server,
                  std::span<std::uint32_t> out) {
  std::size_t to = 0;
  ForWords(bitmap, [&](std::size_t base, std::uint64_t word) {
    for (; word != 0; word &= word - 1) {
      out[to++] = servers.IndexAt(server, base + static_cast<std::size_t>(std::countr_zero(word)));
    }
  });
}

}  // namespace sparfuse::baselines
