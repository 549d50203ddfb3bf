// Codes selections one by one: indices as a Bloom filter, values as polynomials.
//
// Both may change what is sent: a filter has indices that were not selected, some of which take the
// place of others, and polynomials go beside the values. So a selection is revised as it is coded.
// The slot becomes what a receiver decodes; what leaves it goes to the residual, and what enters it
// comes from there, bit for bit.
//
// Source: DeepReduce (bloom_filter.hpp, fitted_values.hpp). As published, ranges of kLeastElements
// and less are not coded so, but as u32 indices beside f32 or f16 values (payload_coding.hpp).
//
// A coded selection, little-endian; several in a payload lie one behind the other:
//   header    8 bytes: 'S', 'P', version 1, flags (bit 0: f16 values, 2: fitted values, 3: a Bloom
//             filter, 4: of which a permutation chooses), count as u32: the elements that are
//             decoded. All there is of a selection of none.
//   values    f32 or f16 each, in the order of indices, padded with zeros to a multiple of 4 bytes.
//             Fitted: how many are above 0 as u32, and six f64 a segment (fitted_values.hpp), of
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
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/payload/payload.hpp"
#include "core/quantize/coding/payload_coding.hpp"
#include "core/quantize/selection_coding/bloom_filter.hpp"
#include "core/quantize/selection_coding/fitted_values.hpp"
#include "core/quantize/selection_coding/selection_sizes.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

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
  std::size_t Encode(PayloadCoding coding, std::span<const float> source, std::span<float> residual,
                     Slot& slot, std::span<std::byte> out, ThreadPool& pool);

  struct Decoded {
    SparsePayload payload;
    std::size_t bytes = 0;  // of the selection; what follows has not been looked at
  };
  // Decodes the selection that `bytes` begin with, of a range of n elements, into the front of
  // `indices` and `values`, of equal size. Any bytes are safe: what Encode cannot have written is
  // an Error{kComm} that says what is wrong and where, and nothing is read or written out of
  // bounds. Cost with a filter: O(n).
  Decoded Decode(std::span<const std::byte> bytes, std::size_t n, std::span<std::uint32_t> indices,
                 std::span<float> values, ThreadPool& pool);

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

}  // namespace sparfuse
