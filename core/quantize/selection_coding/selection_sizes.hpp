// Says how many bytes coded selections have (selection_coding.hpp), and what coding them takes.
#pragma once

#include <cstddef>

#include "core/quantize/coding/payload_coding.hpp"

namespace sparfuse {

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
};
SelectionWork WorkOfEncoding(PayloadCoding coding, std::size_t count, std::size_t n);
SelectionWork WorkOfDecoding(PayloadCoding coding, std::size_t count, std::size_t n);

inline constexpr std::size_t kFilterHeaderBytes = 8;
// Of `count` ranks, 1 or more: bits of each, bytes of all.
std::size_t RankBits(std::size_t count);
std::size_t RankBytes(std::size_t count);

}  // namespace sparfuse
