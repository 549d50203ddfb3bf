// Declares selection's inner loops, one table an instruction set. All tables give equal results.
//
// A key is the bit pattern of |x|: for floats the order of keys is the order of magnitudes, and
// infinities and NaNs are the largest. This header is included by files that are compiled for one
// instruction set: it must not bring in inline functions that other files share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparfuse {

enum class Isa : std::uint8_t;

inline constexpr std::uint32_t kAbsMask = 0x7fffffffu;
inline constexpr std::uint32_t kInfinityKey = 0x7f800000u;  // keys from here on are not finite
inline constexpr std::size_t kBlock = 4096;                 // elements; a block stays in L1
inline constexpr std::size_t kOffsetRoom = kBlock + 64;     // of Scan's output
inline constexpr std::size_t kSumLanes = 16;
inline constexpr std::size_t kCountedKeys = 8;

// Sums over a block, the same on every instruction set. What is not wanted is any number.
enum Wanted : unsigned { kWantSum = 1, kWantAbs = 2, kWantSquares = 4 };
struct BlockSums {
  double sum;
  double sum_abs;
  double sum_squares;
  std::uint32_t max_key;
};

struct TailSums {
  std::size_t count;
  double sum_abs;
  double sum_squares;
};

// Bounds are any number of 32 bits: one of 2^31 or more is above every key.
struct SelectKernels {
  // Finds the elements of a block with key >= lo. n <= kBlock. Adds the residual first, where there
  // is one: sum[i] = gradient[i] + residual[i], which is what is compared. `sum` may be `residual`.
  // offsets: [kOffsetRoom], the positions found, increasing; what follows them is overwritten.
  // Returns how many were found.
  std::size_t (*scan)(const float* gradient, const float* residual, float* sum, std::size_t n,
                      std::uint32_t lo, std::uint16_t* offsets);

  // The same with a residual, whose sums go to `to`, the begin of a line, past the caches where
  // there are such stores; but a zero for those with key >= zero_from.
  std::size_t (*scan_apart)(const float* gradient, const float* residual, std::size_t n,
                            std::uint32_t lo, std::uint32_t zero_from, std::uint16_t* offsets,
                            float* to);

  // The positions of the bits that are set in words of 64, at most kBlock bits in all; otherwise as
  // scan.
  std::size_t (*positions)(const std::uint64_t* words, std::size_t count, std::uint16_t* offsets);

  // What a scan found of a block x whose element 0 has index `base`: indices[j] = base + offsets[j]
  // and values[j] = x[offsets[j]]. Returns the largest key of the values.
  std::uint32_t (*gather)(const float* x, const std::uint16_t* offsets, std::size_t count,
                          std::uint32_t base, std::uint32_t* indices, float* values);

  // The same of x = gradient + residual.
  std::uint32_t (*gather_sums)(const float* gradient, const float* residual,
                               const std::uint16_t* offsets, std::size_t count, std::uint32_t base,
                               std::uint32_t* indices, float* values);

  // Zeroes x[offsets[j]], which values[j] was copied from, where its key is >= `from`.
  void (*clear)(const std::uint16_t* offsets, const float* values, std::size_t count,
                std::uint32_t from, float* x);

  // x[indices[j]] = values[j], or 0 with `zero`, where lo <= key of values[j] < end.
  void (*put)(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
              std::uint32_t end, bool zero, float* x);

  // residual[i] += gradient[i] where there is a residual. Returns the largest key of the sums.
  std::uint32_t (*add)(const float* gradient, float* residual, std::size_t n);

  // keys[i] = key of x[i]. Returns the largest.
  std::uint32_t (*make_keys)(const float* x, std::size_t n, std::uint32_t* keys);

  std::size_t (*count_at_least)(const std::uint32_t* keys, std::size_t n, std::uint32_t lo);

  // Writes the keys k of `values` with lo <= k <= last, in order, and adds to *above the number of
  // keys > last. keys: room for n. Returns how many were written.
  std::size_t (*keys_in_range)(const float* values, std::size_t n, std::uint32_t lo,
                               std::uint32_t last, std::uint32_t* keys, std::size_t* above);

  // Copies the pairs with key >= lo, in order, the first `most` of them, and returns how many. The
  // outputs have room for `most`; what lies behind the pairs there may be overwritten.
  std::size_t (*emit)(const std::uint32_t* indices, const float* values, std::size_t n,
                      std::uint32_t lo, std::size_t most, std::uint32_t* out_indices,
                      float* out_values);

  // Of a block: n <= kBlock. wanted: of Wanted, any of them together; the largest key in any case.
  void (*measure)(const float* x, std::size_t n, unsigned wanted, BlockSums* sums);

  // Adds to *sums what a block's elements with key >= `key` hold; their squares only with
  // `squares`. max_key: the block's largest.
  void (*measure_tail)(const float* x, std::size_t n, std::uint32_t key, std::uint32_t max_key,
                       bool squares, TailSums* sums);

  // |x| = m * 2^e with 1 <= m < 2: products of the m in kSumLanes lanes and the sum of the e of a
  // block's elements that are neither zero nor denormal, of which it returns the number.
  std::size_t (*multiply_mantissas)(const float* x, std::size_t n, double* products,
                                    std::int64_t* exponent);

  // Adds to counts[j] the number of elements with key >= keys[j]; kCountedKeys of both. n < 2^31.
  void (*count_reaching)(const float* x, std::size_t n, const std::uint32_t* keys,
                         std::size_t* counts);
};

// Whether to ask for the lines 2 KB ahead of a stream. That gains 9 to 18 % in DRAM on Intel's
// cores and loses as much on AMD's, in cache too: their own prefetchers are ahead already.
extern const bool kPrefetchPays;

const SelectKernels& SelectKernelsFor(Isa isa);

extern const SelectKernels kSelectKernelsPortable;
#if defined(__x86_64__)
extern const SelectKernels kSelectKernelsAvx2;
extern const SelectKernels kSelectKernelsAvx512;
#elif defined(__aarch64__)
extern const SelectKernels kSelectKernelsNeon;
#endif

}  // namespace sparfuse
