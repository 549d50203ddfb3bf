// Says by a hash which server sums an element, and lists the elements of each server.
//
// Source: Z. Wang et al., Zen, OSDI 2025 (balanced parallelism: a universal hash h0 from indices to
//         servers, and for each server the sorted list I_s of its indices). The hash is simple
//         tabulation: A. Zobrist 1970; M. Patrascu & M. Thorup, The power of simple tabulation
//         hashing, JACM 59(3), 2012: 3-independent, with loads that concentrate as those of a
//         random function do, also where indices are runs or strides, as an embedding's are.
//
// h0 is one function for all ranks, steps and lengths of a range. So the lists of a short range
// begin those of a longer one, and a process keeps one table for each number of servers, made for
// its longest range: 4.25 bytes an element, against a hash of every element whenever a bitmap is
// decoded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/base/random_stream.hpp"

namespace sparfuse::baselines {

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

// The lists of all servers for indices below `elements`. Never changes.
class HashLists {
 public:
  // elements < 2^32, servers >= 1. Cost: O(elements), two passes.
  HashLists(std::size_t elements, std::size_t servers);

  std::size_t elements() const { return elements_; }
  // I_s, increasing.
  std::span<const std::uint32_t> List(std::size_t server) const {
    return std::span(indices_).subspan(begins_[server], begins_[server + 1] - begins_[server]);
  }
  // How many of I_s are below `index`: the position of an index of its own, the length of the list
  // of a range of `index` elements. Precondition: index <= elements(). Cost: O(1), expected.
  std::size_t CountBelow(std::size_t server, std::size_t index) const;

 private:
  std::size_t elements_;
  unsigned block_bits_;  // a directory entry for every 2^block_bits_ indices
  std::size_t blocks_;
  std::vector<std::uint32_t> indices_;    // list after list
  std::vector<std::size_t> begins_;       // [servers + 1]
  std::vector<std::uint32_t> directory_;  // [servers][blocks + 1] how many lie before the block
};

// The lists of a process for one number of servers. Any thread may call it.
class SharedHashLists {
 public:
  // One object for each number of servers, as long as somebody holds it.
  static std::shared_ptr<SharedHashLists> Of(std::size_t servers);

  explicit SharedHashLists(std::size_t servers) : servers_(servers) {}
  // Lists of `elements` or more; made here where those that are there are shorter.
  std::shared_ptr<const HashLists> Covering(std::size_t elements);

 private:
  std::size_t servers_;
  std::mutex mutex_;
  std::shared_ptr<const HashLists> lists_;
};

}  // namespace sparfuse::baselines
