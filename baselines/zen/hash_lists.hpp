// Says by a hash which server sums an element, lists the elements of each server, and codes them as
// bitmaps over these lists.
//
// Source: Z. Wang et al., Zen, OSDI 2025 (balanced parallelism: a universal hash h0 from indices to
//         servers, and for each server the sorted list I_s of its indices). The hash is simple
//         tabulation: A. Zobrist 1970; M. Patrascu & M. Thorup, The power of simple tabulation
//         hashing, JACM 59(3), 2012: 3-independent, with loads that concentrate like the loads of a
//         random function, even if indices are runs or strides, as an embedding's are.
//
// h0 is one function for all ranks, steps and lengths of a range. The lists of a short range are
// therefore prefixes of a longer range's lists. A process keeps one table for each number of
// servers, made for its longest range. The table takes 4.25 bytes an element, and saves hashing
// every element whenever a bitmap is decoded.
//
// Splits a payload into the parts of several servers, each in the wire form.
//
// Two ways give the same parts. One counts, in two passes. The other is Zen's on a device,
// hierarchical hashing, which finds parts in parallel, without counting first and without locks. A
// parallel region takes most elements, in slots that further hashes choose. A serial region takes
// the few elements whose slots are all taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/base/random_stream.hpp"
#include "core/payload/payload.hpp"
#include "core/payload/sums.hpp"

namespace sparfuse::baselines {

// Parts side by side, each with increasing indices. The next split reuses the memory.
class Parts {
 public:
  std::size_t Count(std::size_t part) const { return begins_[part + 1] - begins_[part]; }
  SparsePayload View(std::size_t part) const {
    return {{Words(part), Count(part)},
            {reinterpret_cast<const float*>(Words(part) + Count(part)), Count(part)}};
  }
  std::span<const std::byte> Bytes(std::size_t part) const {
    return std::as_bytes(std::span(Words(part), 2 * Count(part)));
  }
  // For overwriting indices once the payload is no longer sent.
  std::span<std::uint32_t> Indices(std::size_t part) { return {Words(part), Count(part)}; }

  // counts: elements of each part. The content of the parts is undefined afterwards.
  void Reset(std::span<const std::size_t> counts);
  void Set(std::size_t part, std::size_t at, std::uint32_t index, float value);

 private:
  const std::uint32_t* Words(std::size_t part) const { return words_.data() + 2 * begins_[part]; }
  std::uint32_t* Words(std::size_t part) { return words_.data() + 2 * begins_[part]; }

  std::vector<std::uint32_t> words_;
  std::vector<std::size_t> begins_;
};

// Splits by counting. part_of[i]: the part of element i, below `parts`. Cost: O(elements).
void SplitByCounting(const SparsePayload& from, std::span<const std::uint32_t> part_of,
                     std::size_t parts, Parts& out);

inline constexpr int kMostProbes = 8;

// Zen's data structure. Each part has `parallel` slots, in which up to `probes` hashes look for a
// free one, and `serial` slots, which are filled one after another.
struct HashRegions {
  std::size_t parallel = 1;  // r1 >= 1
  std::size_t serial = 1;    // r2
  int probes = 3;            // T, 1 to kMostProbes

  // r1 = slots_per_element * elements / parts, r2 = serial_part * r1, both at least 1.
  static HashRegions For(std::size_t elements, std::size_t parts, double slots_per_element = 2,
                         double serial_part = 0.1, int probes = 3);
};

struct HashingReport {
  int passes = 0;  // each with twice the serial slots of the previous pass
  std::array<std::size_t, kMostProbes> found{};  // elements placed by the t-th probe
  std::size_t serial = 0;                        // elements in serial regions
  std::size_t most_serial = 0;                   // in the fullest serial region
};

// The same by hierarchical hashing. If a serial region overflows, the split is repeated with twice
// the serial slots. Elements are placed in their order, and parts are sorted, so that the result
// does not depend on slots. Cost: O(elements log elements + slots).
HashingReport SplitByHashing(const SparsePayload& from, std::span<const std::uint32_t> part_of,
                             std::size_t parts, HashRegions regions,
                             std::vector<std::uint32_t>& slots, Parts& out);

namespace internal {
using HashTable = std::array<std::array<std::uint32_t, 256>, 4>;  // by byte of the index
constexpr HashTable MakeHashTable() {
  HashTable table{};
  const RandomStream words(20250707, 0, 0);
  for (std::size_t i = 0; i < 1024; ++i) {
    table[i / 256][i % 256] = static_cast<std::uint32_t>(words.At(i) >> 32);
  }
  return table;
}
inline constexpr HashTable kHashTable = MakeHashTable();
}  // namespace internal

inline std::uint32_t IndexHash(std::uint32_t index) {
  const internal::HashTable& table = internal::kHashTable;
  return table[0][index & 255] ^ table[1][(index >> 8) & 255] ^ table[2][(index >> 16) & 255] ^
         table[3][index >> 24];
}

// h0. Uniform in [0, servers) to within servers / 2^32.
inline std::uint32_t ServerOf(std::uint32_t index, std::uint32_t servers) {
  return static_cast<std::uint32_t>((std::uint64_t{IndexHash(index)} * servers) >> 32);
}

// The lists of all servers for indices below `elements`. Immutable.
class HashLists {
 public:
  // elements < 2^32, servers >= 1. Cost: O(elements), two passes.
  HashLists(std::size_t elements, std::size_t servers);

  std::size_t elements() const { return elements_; }
  // I_s, increasing.
  std::span<const std::uint32_t> List(std::size_t server) const {
    return std::span(indices_).subspan(begins_[server], begins_[server + 1] - begins_[server]);
  }
  // How many indices of I_s are below `index`. This is the position in I_s of an index of the
  // server, or the length of its list for a range of `index` elements. Precondition: index <=
  // elements(). Cost: O(1), expected.
  std::size_t CountBelow(std::size_t server, std::size_t index) const;

 private:
  std::size_t elements_;
  unsigned block_bits_;  // a directory entry for every 2^block_bits_ indices
  std::size_t blocks_;
  std::vector<std::uint32_t> indices_;    // list after list
  std::vector<std::size_t> begins_;       // [servers + 1]
  std::vector<std::uint32_t> directory_;  // [servers][blocks + 1] indices before the block
};

// The lists of a process for one number of servers. Any thread may call it.
class SharedHashLists {
 public:
  // One object for each number of servers, which lives as long as a caller holds it.
  static std::shared_ptr<SharedHashLists> Of(std::size_t servers);

  explicit SharedHashLists(std::size_t servers) : servers_(servers) {}
  // Lists of at least `elements` elements; makes them if the present lists are shorter.
  std::shared_ptr<const HashLists> Covering(std::size_t elements);

 private:
  std::size_t servers_;
  std::mutex mutex_;
  std::shared_ptr<const HashLists> lists_;
};

// How elements of a range are assigned to servers.
enum class ZenBalance : std::uint8_t {
  kHash,    // balanced parallelism: by h0 (hash_lists.hpp)
  kRanges,  // imbalanced parallelism: server s has the s-th of P equal contiguous ranges
};

// The servers of one range: which server sums which elements, and in which order it holds them.
// Positions are places in the increasing list of a server's indices.
class Servers {
 public:
  // lists: for this number of servers, covering the elements; null: contiguous ranges.
  Servers(std::size_t elements, std::size_t servers, std::shared_ptr<const HashLists> lists)
      : elements_(elements), servers_(servers), lists_(std::move(lists)) {}

  std::size_t count() const { return servers_; }
  // How many elements a server has.
  std::size_t Size(std::size_t server) const {
    return lists_ != nullptr ? lists_->CountBelow(server, elements_)
                             : Begin(server + 1) - Begin(server);
  }
  // Sets servers[i] to the server of indices[i]. Precondition: the indices are below the number of
  // elements.
  void Find(std::span<const std::uint32_t> indices, std::span<std::uint32_t> servers) const;
  // Replaces a server's indices by their positions. Throws Error{kComm} if an index is another
  // server's.
  void ToPositions(std::size_t server, std::span<std::uint32_t> indices) const;
  std::uint32_t IndexAt(std::size_t server, std::size_t position) const {
    return lists_ != nullptr ? lists_->List(server)[position]
                             : static_cast<std::uint32_t>(Begin(server) + position);
  }

 private:
  std::size_t Begin(std::size_t server) const {  // of a contiguous range
    return static_cast<std::size_t>(std::uint64_t{elements_} * server / servers_);
  }

  std::size_t elements_;
  std::size_t servers_;
  std::shared_ptr<const HashLists> lists_;
};

// The messages of a server's sums. Sums travel as a hash bitmap over the server's own list with
// packed values, or as indices and values; the header names the form.
//
//   head    u32 form, u32 count; then, for a bitmap, ceil(list / 8) bytes. Bit t says whether the
//           list's t-th index is present.
//   body    for a bitmap `count` f32 values; else a payload (core/payload/payload.hpp).
//
// They are two messages because the head gives the length of the body, which is received where the
// sums are to lie. The bitmaps of all servers together have one bit for each element of the range,
// for any number of servers.

enum class IndexForm : std::uint32_t { kCoo = 0, kBitmap = 1 };
enum class FormChoice : std::uint8_t { kAuto, kBitmap, kCoo };

inline constexpr std::size_t kSumsHeaderBytes = 8;
inline std::size_t BitmapBytes(std::size_t list) { return (list + 7) / 8; }

// kAuto: the bitmap if it is smaller than the indices.
IndexForm FormOf(FormChoice choice, std::size_t list, std::size_t count);

// Sizes of messages of a server whose list has `list` indices.
inline std::size_t HeadBytes(IndexForm form, std::size_t list) {
  return kSumsHeaderBytes + (form == IndexForm::kBitmap ? BitmapBytes(list) : 0);
}
inline std::size_t BodyBytes(IndexForm form, std::size_t count) {
  return count * (form == IndexForm::kBitmap ? sizeof(float) : kSparseElementBytes);
}

// Writes the head. added: the present positions, as RangeSums::added gives them. Preconditions:
// room for HeadBytes; bits after the list are 0. Returns the written bytes.
std::span<std::byte> WriteHead(IndexForm form, std::size_t list, std::size_t count,
                               std::span<const std::uint64_t> added, std::span<std::byte> room);

struct SumsHead {
  IndexForm form = IndexForm::kCoo;
  std::size_t count = 0;
  std::span<const std::byte> bitmap;  // empty in the form of indices
};
// Throws Error{kComm} naming the server if the head is malformed, for example if a bitmap does not
// have `count` bits.
SumsHead ReadHead(std::span<const std::byte> head, std::size_t server, std::size_t list);

// Writes the indices of a server that a bitmap over its list marks. out: one for each set bit.
void DecodeBitmap(std::span<const std::byte> bitmap, const Servers& servers, std::size_t server,
                  std::span<std::uint32_t> out);

}  // namespace sparfuse::baselines
