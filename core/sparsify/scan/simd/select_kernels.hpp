// Declares selection's inner loops, one table for each instruction set. All tables give equal
// results.
//
// A key is the bit pattern of |x|: for floats the order of keys is the order of magnitudes, and
// infinities and NaNs have the largest keys. Files that are compiled for one instruction set
// include this header: it must not bring in inline functions that other files share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparfuse {

enum class Isa : std::uint8_t;

inline constexpr std::uint32_t kAbsMask = 0x7fffffffu;
inline constexpr std::uint32_t kInfinityKey = 0x7f800000u;  // keys >= it are not finite
inline constexpr std::size_t kBlock = 4096;                 // elements; a block stays in L1
inline constexpr std::size_t kOffsetRoom = kBlock + 64;     // of the output of scan
inline constexpr std::size_t kSumLanes = 16;
inline constexpr std::size_t kCountedKeys = 8;

// Sums over a block, the same on every instruction set. Sums that are not wanted are undefined.
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

// Bounds may be any number of 32 bits: a bound of 2^31 or more is above every key.
struct SelectKernels {
  // Finds the elements of a block with key >= lo. n <= kBlock. If there is a residual, adds it
  // first, sum[i] = gradient[i] + residual[i], and compares the sums. `sum` may be `residual`.
  // offsets: [kOffsetRoom], receives the positions found, increasing; entries after them are
  // overwritten. Returns the number of positions.
  std::size_t (*scan)(const float* gradient, const float* residual, float* sum, std::size_t n,
                      std::uint32_t lo, std::uint16_t* offsets);

  // Scans with a residual, and writes the sums to `to`, a zero in place of sums with key >=
  // zero_from. `to` is the start of a cache line. The stores bypass the caches if the instruction
  // set has such stores.
  std::size_t (*scan_apart)(const float* gradient, const float* residual, std::size_t n,
                            std::uint32_t lo, std::uint32_t zero_from, std::uint16_t* offsets,
                            float* to);

  // Finds the positions of the set bits in `count` words of 64 bits, at most kBlock bits in all.
  // Its output is as scan's.
  std::size_t (*positions)(const std::uint64_t* words, std::size_t count, std::uint16_t* offsets);

  // Gathers the elements that a scan found in a block x: indices[j] = base + offsets[j] and
  // values[j] = x[offsets[j]]. base: the index of x[0]. Returns the largest key of the values.
  std::uint32_t (*gather)(const float* x, const std::uint16_t* offsets, std::size_t count,
                          std::uint32_t base, std::uint32_t* indices, float* values);

  // Gathers from x = gradient + residual.
  std::uint32_t (*gather_sums)(const float* gradient, const float* residual,
                               const std::uint16_t* offsets, std::size_t count, std::uint32_t base,
                               std::uint32_t* indices, float* values);

  // Zeroes x[offsets[j]], the source of values[j], if its key is >= `from`.
  void (*clear)(const std::uint16_t* offsets, const float* values, std::size_t count,
                std::uint32_t from, float* x);

  // Sets x[indices[j]] = values[j], or 0 with `zero`, if lo <= key of values[j] < end.
  void (*put)(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
              std::uint32_t end, bool zero, float* x);

  // residual[i] += gradient[i] if there is a residual. Returns the largest key of the sums.
  std::uint32_t (*add)(const float* gradient, float* residual, std::size_t n);

  // keys[i] = key of x[i]. Returns the largest key.
  std::uint32_t (*make_keys)(const float* x, std::size_t n, std::uint32_t* keys);

  std::size_t (*count_at_least)(const std::uint32_t* keys, std::size_t n, std::uint32_t lo);

  // Writes the keys k of `values` with lo <= k <= last, in order, and adds the number of keys >
  // last to *above. keys: room for n. Returns the number of keys written.
  std::size_t (*keys_in_range)(const float* values, std::size_t n, std::uint32_t lo,
                               std::uint32_t last, std::uint32_t* keys, std::size_t* above);

  // Copies the first `most` pairs with key >= lo, in order, and returns their number. The outputs
  // have room for `most`; entries after the copied pairs may be overwritten.
  std::size_t (*emit)(const std::uint32_t* indices, const float* values, std::size_t n,
                      std::uint32_t lo, std::size_t most, std::uint32_t* out_indices,
                      float* out_values);

  // Measures a block: n <= kBlock. wanted: any combination of Wanted; the largest key is always
  // found.
  void (*measure)(const float* x, std::size_t n, unsigned wanted, BlockSums* sums);

  // Adds a block's elements with key >= `key` to *sums; their squares only with `squares`. max_key:
  // the block's largest key.
  void (*measure_tail)(const float* x, std::size_t n, std::uint32_t key, std::uint32_t max_key,
                       bool squares, TailSums* sums);

  // With |x| = m * 2^e and 1 <= m < 2: computes the products of the m, in kSumLanes lanes, and the
  // sum of the e over a block's elements that are neither zero nor denormal. Returns their number.
  std::size_t (*multiply_mantissas)(const float* x, std::size_t n, double* products,
                                    std::int64_t* exponent);

  // Adds the number of elements with key >= keys[j] to counts[j]. n < 2^31. keys, counts:
  // [kCountedKeys].
  void (*count_reaching)(const float* x, std::size_t n, const std::uint32_t* keys,
                         std::size_t* counts);
};

// Whether to prefetch the lines 2 KB ahead of a stream. From DRAM that gains 9 to 18 % on Intel's
// cores. On AMD's it loses as much, in cache too, because their own prefetchers are ahead already.
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
