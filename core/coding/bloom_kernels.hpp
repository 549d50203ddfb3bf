// Declares the inner loops of Bloom filters, one table per instruction set. All tables give equal
// results.
//
// This header is included by files that are compiled for one instruction set: it must not bring in
// inline functions that other files share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparfuse {

enum class Isa : std::uint8_t;

// A read-only filter: bit b is bit b % 32 of words[b / 32].
struct BloomView {
  const std::uint32_t* words;
  std::uint32_t bits;    // >= 1
  std::uint32_t hashes;  // >= 1
};

struct BloomKernels {
  // Writes to `out` the filter's positives among begin, ..., begin + size - 1, in this order, and
  // returns their number. out: room for `size`.
  std::size_t (*query)(const BloomView& filter, std::uint32_t begin, std::size_t size,
                       std::uint32_t* out);
  // Sets the bits of the indices. words: the filter's.
  void (*insert)(const BloomView& filter, const std::uint32_t* indices, std::size_t count,
                 std::uint32_t* words);
};

const BloomKernels& BloomKernelsFor(Isa isa);

extern const BloomKernels kBloomKernelsPortable;
#if defined(__x86_64__)
extern const BloomKernels kBloomKernelsAvx2;
extern const BloomKernels kBloomKernelsAvx512;
#endif

}  // namespace sparfuse
