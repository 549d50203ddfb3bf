// Codes selections one by one: indices as a Bloom filter, values as polynomials; or by chunks
// (chunk_coding.hpp). Computes the bytes and the work of these codings.
//
// Filters and polynomials may change a selection. A filter has indices that were not selected, some
// of which replace selected ones, and polynomials only approximate values. So Encode revises the
// selection. The slot then holds the elements that a receiver decodes. Elements that leave the slot
// go to the residual, and elements that enter it come from there, bit for bit.
//
// Source: DeepReduce (bloom_filter.hpp). As published, ranges of at most kLeastElements are not
// coded so, but as u32 indices and f32 or f16 values (payload_coding.hpp).
//
// A coded selection, little-endian; several in a payload lie one after another:
//   header    8 bytes: 'S', 'P', version 1, flags (bit 0: f16 values, 2: fitted values, 3: a Bloom
//             filter, 4: a permutation chooses among its positives), and as u32 the count of
//             decoded elements. An empty selection has a header alone.
//   values    f32 or f16 each, in the order of indices, padded with zeros to a multiple of 4 bytes.
//             Fitted: the number of values above 0 as u32, and six f64 per segment of the values in
//             descending order, equal values in the order of their indices
//   ranks     of fitted values with a filter: in the order of indices, the place of each value in
//             descending order, from 0, in ceil(log2 count) bits, the lowest first in the lowest
//             bits of a byte; padded with zeros to a multiple of 4 bytes
//   indices   u32 each, increasing; with fitted values in the order of the values.
//             Filter: hashes as u32, bits as u32, and the filter, bit b in bit b % 8 of byte b / 8,
//             padded with zeros to a multiple of 4 bytes (bloom_filter.hpp)
//
// A receiver takes the first `count` of the filter's positives. With a permutation it takes the
// `count` indices that the permutation puts first, in increasing order. The permutation starts from
// p indices in increasing order. For i = p - 1, ..., count, it swaps the i-th with index number
// RandomStream(42, 0, 0).Below(i + 1, p - 1 - i) (random_stream.hpp).
//
// Polynomials: DeepReduce, section 4.2 and its code: values in descending order are cut into
// segments, and a polynomial of degree 5 in the position is fitted to each by least squares.
// Deviation: positions are scaled to [-1, 1], since powers of 1, 2, 3, ... are badly conditioned.
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

// c[0] + c[1] t + ... + c[5] t^5, t = -1 + 2 j / (length - 1) at position j; t = 0 if the length is
// 1.
using FitPolynomial = std::array<double, kFitCoefficients>;

// The lengths of the segments of `count` values in descending order; the first `positives` values
// are above 0. For p values, let s_1 > s_2 > ... be the quotients p / 5, p / 10, p / 30, p / 100,
// ..., p / 30000, p / 100000 (rounded down) that are above 30. The p positive values have segments
// ..., s_2, s_1, p - (s_1 + ...). The q others follow with q - (s_1 + ...), s_1, s_2, ..., computed
// from q. No length is 0.
std::vector<std::size_t> FitSegments(std::size_t count, std::size_t positives);
std::size_t CountFitSegments(std::size_t count, std::size_t positives);

// Fits by least squares. If there are fewer values than coefficients, the highest coefficients are
// 0 and the polynomial passes through all values.
FitPolynomial Fit(std::span<const float> values);

// Computes the polynomial's values, clamped to the largest float. They are NaN if a coefficient is
// NaN.
void Restore(const FitPolynomial& polynomial, std::span<float> values);

inline constexpr std::uint64_t kBloomPermutationSeed = 42;

// Keeps its working memory between calls. Used by one thread at a time.
class SelectionCoder {
 public:
  // Revises the selection in `slot`, whose rest is in `residual`, and encodes it; returns the bytes
  // written.
  //
  //   source    [n] the input x of the selection. Read only if there is no residual: the values of
  //             false positives then come from x.
  //   residual  [n] x without the selected values, or empty: elements that leave the slot are lost.
  //   slot      on the host; values finite. At most slot.capacity elements are sent: with kAll the
  //             first of the filter's positives.
  //   out       at least SelectionBytesBound(coding, slot.capacity, n) bytes.
  //
  // sent + residual stays unchanged: bit for bit with f32 values; as by RoundToCoding with f16
  // ones; except for the rounding of their difference with fitted ones.
  std::size_t Encode(const PayloadCoding& coding, std::span<const float> source,
                     std::span<float> residual, Slot& slot, std::span<std::byte> out,
                     ThreadPool& pool);

  // Decodes the selection that `bytes` begin with, of a range of n elements, into the front of
  // `indices` and `values`, of equal size. DecodeChunks decodes selections coded by chunks. Any
  // bytes are safe: bytes that Encode cannot have written are an Error{kComm} that says what is
  // wrong and where. No access is out of bounds. Cost with a filter: O(n).
  DecodedSelection Decode(std::span<const std::byte> bytes, std::size_t n,
                          std::span<std::uint32_t> indices, std::span<float> values,
                          ThreadPool& pool);

 private:
  // Writes to chosen_ `count` of the filter's positives below n: the first ones, or those that the
  // permutation puts first. There are fewer if the filter has fewer.
  void Choose(std::size_t n, std::size_t count, bool permuted, ThreadPool& pool);
  void TakeChosen(std::span<const float> source, std::span<float> residual, Slot& slot);
  std::size_t SortValues(std::span<const float> values);
  void FitValues(std::span<const std::uint32_t> indices, std::span<float> values,
                 std::span<float> residual, std::size_t positives);

  BloomFilter filter_;
  std::vector<std::uint32_t> chosen_;  // of the filter's positives
  std::vector<std::uint32_t> permuted_;
  std::vector<float> chosen_values_;
  std::vector<std::uint64_t> sorted_;  // upper bits: keys of values; lower: positions
  std::vector<float> restored_;        // in descending order
  std::vector<FitPolynomial> polynomials_;
};

inline constexpr std::size_t kLeastElements = 1000;

// The coding of a selection from n elements, if coding.of_selections().
PayloadCoding SelectionCodingOf(PayloadCoding coding, std::size_t n);

// The most that SelectionCoder::Encode writes for a slot of this capacity, a multiple of 8.
std::size_t SelectionBytesBound(PayloadCoding coding, std::size_t capacity, std::size_t n);

// The expected size of a coded selection of `count` of n elements. It is exact except for
// BloomPolicy::kAll, for which the number of false positives is an expectation, and for fitted
// values, half of which are assumed to be above 0.
struct ExpectedSelection {
  std::size_t elements = 0;  // sent elements
  std::size_t bytes = 0;
};
ExpectedSelection ExpectSelection(PayloadCoding coding, std::size_t count, std::size_t n);

// The work of coding, for the ModelEngine.
struct SelectionWork {
  double queries = 0;   // indices looked up in a filter
  double inserts = 0;   // bits set in a filter
  double fitted = 0;    // values sorted and fitted
  double restored = 0;  // values computed from a polynomial
  double packed = 0;    // elements put into bits of a chunk
  double unpacked = 0;  // elements read from such bits
};
SelectionWork WorkOfEncoding(PayloadCoding coding, std::size_t count, std::size_t n);
SelectionWork WorkOfDecoding(PayloadCoding coding, std::size_t count, std::size_t n);

}  // namespace sparfuse
