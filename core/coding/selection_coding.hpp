// Codes selections one by one: indices as a Bloom filter, values as polynomials; or by chunks
// (chunk_coding.hpp). Says how many bytes that takes, and work.
//
// Filters and polynomials may change what is sent: a filter has indices that were not selected,
// some of which take the place of others, and polynomials go beside the values. So a selection is
// revised as it is coded. The slot becomes what a receiver decodes; what leaves it goes to the
// residual, and what enters it comes from there, bit for bit.
//
// Source: DeepReduce (bloom_filter.hpp). As published, ranges of kLeastElements
// and less are not coded so, but as u32 indices beside f32 or f16 values (payload_coding.hpp).
//
// A coded selection, little-endian; several in a payload lie one behind the other:
//   header    8 bytes: 'S', 'P', version 1, flags (bit 0: f16 values, 2: fitted values, 3: a Bloom
//             filter, 4: of which a permutation chooses), count as u32: the elements that are
//             decoded. All there is of a selection of none.
//   values    f32 or f16 each, in the order of indices, padded with zeros to a multiple of 4 bytes.
//             Fitted: how many are above 0 as u32, and six f64 a segment, of
//             the values in descending order, equal ones in that of their indices
//   ranks     of fitted values with a filter: in the order of indices, the place of each value in
//             descending order, from 0, in ceil(log2 count) bits, the lowest first in the lowest
//             bits of a byte; padded with zeros to a multiple of 4 bytes
//   indices   u32 each, increasing; with fitted values in the order of those instead.
//             Filter: hashes as u32, bits as u32, and the filter, bit b in bit b % 8 of byte b / 8,
//             padded with zeros to a multiple of 4 bytes (bloom_filter.hpp)
//
// Of the indices that the filter has, a receiver takes the first `count`. With a permutation, those
// that it puts first, in increasing order: of p indices in increasing order, for i = p - 1, ...,
// count, the i-th changes places with that of number RandomStream(42, 0, 0).Below(i + 1, p - 1 - i)
// (random_stream.hpp), and the first `count` of what comes of it are taken.
//
// Polynomials: DeepReduce, section 4.2 and its code: values in descending order are cut into
// segments, and each is fitted by least squares with a polynomial of degree 5 of the positions in
// it. Deviation: positions are scaled to [-1, 1], since powers of 1, 2, 3, ... are badly
// conditioned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/coding/bloom_filter.hpp"
#include "core/coding/chunk_coding.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/payload/payload.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

inline constexpr std::size_t kFitCoefficients = 6;  // degree 5

// c[0] + c[1] t + ... + c[5] t^5, t = -1 + 2 j / (length - 1) at position j; 0 where the length is
// 1.
using FitPolynomial = std::array<double, kFitCoefficients>;

// The lengths of the segments of `count` values in descending order, the first `positives` of which
// are above 0. With s_1 > s_2 > ... those of p / 5, 10, 30, 100, 300, 1000, 3000, 10000, 30000 and
// 100000 (rounded down) that are above 30, p of what is positive, q of the rest: ..., s_2, s_1,
// p - (s_1 + ...), then q - (s_1 + ...), s_1, s_2, ... None is 0.
std::vector<std::size_t> FitSegments(std::size_t count, std::size_t positives);
std::size_t CountFitSegments(std::size_t count, std::size_t positives);

// Least squares. Where there are fewer values than coefficients, the highest ones are 0 and the
// polynomial goes through all values.
FitPolynomial Fit(std::span<const float> values);

// The polynomial's values, cut off at the largest that a float has. A NaN where a coefficient is
// none.
void Restore(const FitPolynomial& polynomial, std::span<float> values);

inline constexpr std::uint64_t kBloomPermutationSeed = 42;

// Keeps its working memory between calls. Used by one thread at a time.
class SelectionCoder {
 public:
  // Revises the selection in `slot`, of which the rest is in `residual`, and encodes it; returns
  // the bytes written.
  //
  //   source    [n] what was selected from; read where there is no residual. Then x, of which the
  //             values of false positives are taken.
  //   residual  [n] x without what was selected, or empty: what leaves the slot is lost.
  //   slot      on the host; values finite. No more than slot.capacity elements are sent: with
  //             kAll the first of what the filter has.
  //   out       at least SelectionBytesBound(coding, slot.capacity, n) bytes.
  //
  // sent + residual stays what it was: bit for bit with f32 values; as by RoundToCoding with f16
  // ones; but for the rounding of their difference with fitted ones.
  std::size_t Encode(const PayloadCoding& coding, std::span<const float> source,
                     std::span<float> residual, Slot& slot, std::span<std::byte> out,
                     ThreadPool& pool);

  // Decodes the selection that `bytes` begin with, of a range of n elements, into the front of
  // `indices` and `values`, of equal size; DecodeChunks does where it is coded by chunks. Any
  // bytes are safe: what Encode cannot have written is
  // an Error{kComm} that says what is wrong and where, and nothing is read or written out of
  // bounds. Cost with a filter: O(n).
  DecodedSelection Decode(std::span<const std::byte> bytes, std::size_t n,
                          std::span<std::uint32_t> indices, std::span<float> values,
                          ThreadPool& pool);

 private:
  // Into chosen_, of the indices below n that the filter has, the first `count`, or those that the
  // permutation puts first; fewer where it has no more.
  void Choose(std::size_t n, std::size_t count, bool permuted, ThreadPool& pool);
  void TakeChosen(std::span<const float> source, std::span<float> residual, Slot& slot);
  std::size_t SortValues(std::span<const float> values);
  void FitValues(std::span<const std::uint32_t> indices, std::span<float> values,
                 std::span<float> residual, std::size_t positives);

  BloomFilter filter_;
  std::vector<std::uint32_t> chosen_;  // of what the filter has
  std::vector<std::uint32_t> permuted_;
  std::vector<float> chosen_values_;
  std::vector<std::uint64_t> sorted_;  // keys of values, above places of elements
  std::vector<float> restored_;        // in descending order
  std::vector<FitPolynomial> polynomials_;
};

inline constexpr std::size_t kLeastElements = 1000;

// How a selection from n elements is coded where `coding` is of selections.
PayloadCoding SelectionCodingOf(PayloadCoding coding, std::size_t n);

// The most that SelectionCoder::Encode writes for a slot of this capacity, a multiple of 8.
std::size_t SelectionBytesBound(PayloadCoding coding, std::size_t capacity, std::size_t n);

// What becomes of a selection of `count` of n elements: exact but for BloomPolicy::kAll, whose
// false positives are as many as expected, and for fitted values, of which half are taken to be
// above 0.
struct ExpectedSelection {
  std::size_t elements = 0;  // that are sent
  std::size_t bytes = 0;
};
ExpectedSelection ExpectSelection(PayloadCoding coding, std::size_t count, std::size_t n);

// What coding does, for the ModelEngine.
struct SelectionWork {
  double queries = 0;   // indices looked up in a filter
  double inserts = 0;   // bits set in one
  double fitted = 0;    // values sorted and fitted
  double restored = 0;  // values computed from a polynomial
  double packed = 0;    // elements put into bits of a chunk
  double unpacked = 0;  // and taken from them
};
SelectionWork WorkOfEncoding(PayloadCoding coding, std::size_t count, std::size_t n);
SelectionWork WorkOfDecoding(PayloadCoding coding, std::size_t count, std::size_t n);

inline constexpr std::size_t kFilterHeaderBytes = 8;
// Of `count` ranks, 1 or more: bits of each, bytes of all.
std::size_t RankBits(std::size_t count);
std::size_t RankBytes(std::size_t count);

}  // namespace sparfuse
