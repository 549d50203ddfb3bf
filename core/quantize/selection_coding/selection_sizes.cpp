#include "core/quantize/selection_coding/selection_sizes.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/quantize/coding/payload_parts.hpp"
#include "core/quantize/selection_coding/bloom_filter.hpp"
#include "core/quantize/selection_coding/fitted_values.hpp"

namespace sparfuse {
namespace {

std::size_t FilterBytes(BloomShape shape) {
  return kFilterHeaderBytes + shape.words() * sizeof(std::uint32_t);
}

// Of `sent` elements, of which a filter has `inserted`.
std::size_t BytesOf(PayloadCoding coding, std::size_t sent, std::size_t inserted, std::size_t n,
                    std::size_t segments) {
  if (sent == 0) return kPayloadHeaderBytes;
  const bool fitted = coding.values == ValueCoding::kFitted;
  const bool filter = coding.indices == IndexCoding::kBloom;
  return kPayloadHeaderBytes +
         (fitted ? sizeof(std::uint32_t) + segments * sizeof(FitPolynomial)
                 : ValueBytes(coding.values, sent)) +
         (fitted && filter ? RankBytes(sent) : 0) +
         (filter ? FilterBytes(BloomShapeOf(inserted, n, coding.false_positives))
                 : sent * sizeof(std::uint32_t));
}

}  // namespace

std::size_t RankBits(std::size_t count) { return std::bit_width(count - 1); }  // count >= 1

std::size_t RankBytes(std::size_t count) { return (count * RankBits(count) + 31) / 32 * 4; }

PayloadCoding SelectionCodingOf(PayloadCoding coding, std::size_t n) {
  if (n > kLeastElements) return coding;
  return {coding.values == ValueCoding::kF16 ? ValueCoding::kF16 : ValueCoding::kF32,
          IndexCoding::kU32};
}

std::size_t SelectionBytesBound(PayloadCoding coding, std::size_t capacity, std::size_t n) {
  // Filters grow with what is put into them, but for their rate of false positives.
  const PayloadCoding as = SelectionCodingOf(coding, n);
  const std::size_t segments = 2 * CountFitSegments(capacity, capacity);
  return (BytesOf(as, capacity, capacity, n, segments) + 7) / 8 * 8;
}

ExpectedSelection ExpectSelection(PayloadCoding coding, std::size_t count, std::size_t n) {
  const PayloadCoding as = SelectionCodingOf(coding, n);
  std::size_t sent = count;
  if (as.indices == IndexCoding::kBloom && as.policy == BloomPolicy::kAll) {
    sent = static_cast<std::size_t>(std::llround(ExpectedPositives(count, n, as.false_positives)));
  }
  return {sent, BytesOf(as, sent, count, n, CountFitSegments(sent, sent / 2))};
}

SelectionWork WorkOfDecoding(PayloadCoding coding, std::size_t count, std::size_t n) {
  const PayloadCoding as = SelectionCodingOf(coding, n);
  SelectionWork work;
  if (as.indices == IndexCoding::kBloom) work.queries = static_cast<double>(n);
  if (as.values == ValueCoding::kFitted) work.restored = static_cast<double>(count);
  return work;
}

SelectionWork WorkOfEncoding(PayloadCoding coding, std::size_t count, std::size_t n) {
  const PayloadCoding as = SelectionCodingOf(coding, n);
  SelectionWork work = WorkOfDecoding(coding, count, n);
  if (as.indices == IndexCoding::kBloom) {
    work.inserts = static_cast<double>(count) *
                   static_cast<double>(BloomShapeOf(count, n, as.false_positives).hashes);
  }
  if (as.values == ValueCoding::kFitted) work.fitted = static_cast<double>(count);
  return work;
}

}  // namespace sparfuse
