#include "core/coding/selection_coding.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/coding/bloom_filter.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {

namespace {

constexpr std::array<std::size_t, 10> kParts = {5,    10,   30,    100,   300,
                                                1000, 3000, 10000, 30000, 100000};
constexpr std::size_t kShort = 30;  // segments of at most so many are not cut off

// Returns the lengths of segments of `count` values of one sign, from the steepest to the flattest.
std::vector<std::size_t> TowardsZero(std::size_t count) {
  std::vector<std::size_t> lengths;
  std::size_t rest = count;
  for (const std::size_t part : kParts) {
    if (count / part <= kShort) break;
    lengths.push_back(count / part);
    rest -= count / part;
  }
  std::ranges::reverse(lengths);
  if (rest > 0) lengths.push_back(rest);
  return lengths;
}

double PositionOf(std::size_t j, std::size_t length) {
  if (length == 1) return 0;
  return -1 + 2 * static_cast<double>(j) / static_cast<double>(length - 1);
}

std::uint8_t FlagsOf(PayloadCoding coding) {
  int flags = 0;
  if (coding.values == ValueCoding::kF16) flags |= kFlagF16;
  if (coding.values == ValueCoding::kFitted) flags |= kFlagFitted;
  if (coding.indices == IndexCoding::kBloom) {
    flags |= kFlagBloom;
    if (coding.policy == BloomPolicy::kRandom) flags |= kFlagPermuted;
  }
  return static_cast<std::uint8_t>(flags);
}

// The key increases as the value decreases. Equal values order by place, the lower half.
std::uint64_t DescendingKey(float value, std::uint32_t place) {
  const auto bits = std::bit_cast<std::uint32_t>(value == 0 ? 0.0f : value);
  const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | place;
}
std::uint32_t PlaceOf(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

constexpr std::size_t kFilterHeaderBytes = 8;

// For `count` >= 1 ranks of fitted values: the bits of each, the bytes of all.
std::size_t RankBits(std::size_t count) { return std::bit_width(count - 1); }
std::size_t RankBytes(std::size_t count) { return (count * RankBits(count) + 31) / 32 * 4; }

std::byte* StoreRanks(std::span<const std::uint32_t> ranks, std::byte* to) {
  const std::size_t width = RankBits(ranks.size());
  std::byte* const end = to + RankBytes(ranks.size());
  std::uint64_t waiting = 0;
  std::size_t bits = 0;
  for (const std::uint32_t rank : ranks) {
    waiting |= std::uint64_t{rank} << bits;
    bits += width;
    if (bits < 32) continue;
    to = StoreBytes(to, static_cast<std::uint32_t>(waiting));
    waiting >>= 32;
    bits -= 32;
  }
  if (to < end) StoreBytes(to, static_cast<std::uint32_t>(waiting));
  return end;
}

// Reads a payload part by part.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes), at_(kPayloadHeaderBytes) {}

  std::size_t at() const { return at_; }
  const std::byte* Take(std::size_t size, const char* what) {
    if (bytes_.size() - at_ < size) {
      MalformedPayload("it ends after ", bytes_.size(), " bytes, within its ", what,
                       "; expected at least ", at_ + size);
    }
    at_ += size;
    return bytes_.data() + at_ - size;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_;
};

// values[i] becomes restored[rank i].
void ReadRanks(const std::byte* from, std::span<const float> restored, std::span<float> values,
               std::vector<std::uint32_t>& seen) {
  const std::size_t count = values.size();
  const std::size_t width = RankBits(count);
  seen.assign((count + 31) / 32, 0);
  std::uint64_t waiting = 0;
  std::size_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (bits < width) {
      waiting |= std::uint64_t{LoadBytes<std::uint32_t>(from)} << bits;
      from += sizeof(std::uint32_t);
      bits += 32;
    }
    const auto rank = static_cast<std::uint32_t>(waiting & ((std::uint64_t{1} << width) - 1));
    waiting >>= width;
    bits -= width;
    if (rank >= count || (seen[rank / 32] >> rank % 32 & 1) != 0) {
      MalformedPayload("rank ", i, " is ", rank, "; expected each of 0 to ", count - 1, " once");
    }
    seen[rank / 32] |= std::uint32_t{1} << rank % 32;
    values[i] = restored[rank];
  }
  if (waiting != 0) MalformedPayload("bits after the ranks are set; expected zeros");
}

}  // namespace

std::vector<std::size_t> FitSegments(std::size_t count, std::size_t positives) {
  std::vector<std::size_t> lengths = TowardsZero(positives);
  const std::vector<std::size_t> others = TowardsZero(count - positives);
  lengths.insert(lengths.end(), others.rbegin(), others.rend());
  return lengths;
}

std::size_t CountFitSegments(std::size_t count, std::size_t positives) {
  return TowardsZero(positives).size() + TowardsZero(count - positives).size();
}

FitPolynomial Fit(std::span<const float> values) {
  const std::size_t terms = std::min(kFitCoefficients, values.size());
  // Solves the normal equations: well conditioned for positions in [-1, 1] and this degree.
  std::array<double, 2 * kFitCoefficients - 1> moments{};
  FitPolynomial right{};
  for (std::size_t j = 0; j < values.size(); ++j) {
    const double t = PositionOf(j, values.size());
    double power = 1;
    for (std::size_t a = 0; a < 2 * terms - 1; ++a, power *= t) {
      moments[a] += power;
      if (a < terms) right[a] += power * values[j];
    }
  }
  // Factors by Cholesky: A = L L^T.
  std::array<FitPolynomial, kFitCoefficients> lower{};
  for (std::size_t i = 0; i < terms; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = moments[i + j];
      for (std::size_t c = 0; c < j; ++c) sum -= lower[i][c] * lower[j][c];
      lower[i][j] = i == j ? std::sqrt(sum) : sum / lower[j][j];
    }
  }
  for (std::size_t i = 0; i < terms; ++i) {
    for (std::size_t c = 0; c < i; ++c) right[i] -= lower[i][c] * right[c];
    right[i] /= lower[i][i];
  }
  for (std::size_t i = terms; i-- > 0;) {
    for (std::size_t c = i + 1; c < terms; ++c) right[i] -= lower[c][i] * right[c];
    right[i] /= lower[i][i];
  }
  return right;
}

void Restore(const FitPolynomial& polynomial, std::span<float> values) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (std::size_t j = 0; j < values.size(); ++j) {
    const double t = PositionOf(j, values.size());
    double sum = polynomial.back();
    for (std::size_t a = kFitCoefficients - 1; a-- > 0;) sum = sum * t + polynomial[a];
    values[j] = static_cast<float>(std::clamp(sum, -kMost, kMost));
  }
}

// --- encoding

void SelectionCoder::Choose(std::size_t n, std::size_t count, bool permuted, ThreadPool& pool) {
  const std::span<const std::uint32_t> positives = filter_.Positives(n, permuted ? n : count, pool);
  if (!permuted || positives.size() <= count) {
    chosen_.assign(positives.begin(), positives.end());
    return;
  }
  constexpr RandomStream kStream(kBloomPermutationSeed, 0, 0);
  permuted_.assign(positives.begin(), positives.end());
  for (std::size_t i = positives.size(); i-- > count;) {
    std::swap(permuted_[i], permuted_[kStream.Below(i + 1, positives.size() - 1 - i)]);
  }
  // Sorts the left-out elements, which are fewer: the others keep their order.
  const auto left_out = permuted_.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(left_out, permuted_.end());
  chosen_.clear();
  std::set_difference(positives.begin(), positives.end(), left_out, permuted_.end(),
                      std::back_inserter(chosen_));
}

// Replaces the selected elements in the slot by the chosen ones.
void SelectionCoder::TakeChosen(std::span<const float> source, std::span<float> residual,
                                Slot& slot) {
  const std::span<std::uint32_t> indices = slot.indices.host();
  const std::span<float> values = slot.values.host();
  const std::span<const float> unsent = residual.empty() ? source : residual;
  chosen_values_.resize(chosen_.size());
  std::size_t selected = 0;
  const auto give_back = [&] {
    if (!residual.empty()) residual[indices[selected]] = values[selected];
    ++selected;
  };
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    const std::uint32_t index = chosen_[i];
    while (selected < slot.count && indices[selected] < index) give_back();
    if (selected < slot.count && indices[selected] == index) {
      chosen_values_[i] = values[selected++];
      continue;
    }
    chosen_values_[i] = unsent[index];
    if (!residual.empty()) residual[index] = 0;
  }
  while (selected < slot.count) give_back();
  slot.count = chosen_.size();
  std::ranges::copy(chosen_, indices.begin());
  std::ranges::copy(chosen_values_, values.begin());
}

// Sorts the places of the values into sorted_; returns how many values are above 0.
std::size_t SelectionCoder::SortValues(std::span<const float> values) {
  sorted_.resize(values.size());
  std::size_t positives = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sorted_[i] = DescendingKey(values[i], static_cast<std::uint32_t>(i));
    positives += values[i] > 0;
  }
  std::ranges::sort(sorted_);
  return positives;
}

// Replaces `values` by the values of their polynomials.
void SelectionCoder::FitValues(std::span<const std::uint32_t> indices, std::span<float> values,
                               std::span<float> residual, std::size_t positives) {
  restored_.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) restored_[i] = values[PlaceOf(sorted_[i])];
  polynomials_.clear();
  std::size_t begin = 0;
  for (const std::size_t length : FitSegments(values.size(), positives)) {
    const std::span<float> segment = std::span(restored_).subspan(begin, length);
    polynomials_.push_back(Fit(segment));
    Restore(polynomials_.back(), segment);
    begin += length;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& value = values[PlaceOf(sorted_[i])];
    if (!residual.empty()) residual[indices[PlaceOf(sorted_[i])]] += value - restored_[i];
    value = restored_[i];
  }
}

std::size_t SelectionCoder::Encode(const PayloadCoding& coding, std::span<const float> source,
                                   std::span<float> residual, Slot& slot, std::span<std::byte> out,
                                   ThreadPool& pool) {
  const std::size_t n = source.size();
  const PayloadCoding as = SelectionCodingOf(coding, n);
  if (out.size() < SelectionBytesBound(coding, slot.capacity, n)) {
    SPARFUSE_THROW(kInternal, "a coded selection of up to ", slot.capacity, " of ", n,
                   " elements has room for ", out.size(), " bytes; expected ",
                   SelectionBytesBound(coding, slot.capacity, n));
  }
  const auto indices = [&] { return slot.indices.host().first(slot.count); };
  const auto values = [&] { return slot.values.host().first(slot.count); };
  if (as.indices == IndexCoding::kU12) {
    return EncodeChunks(as, indices(), values(), residual, n, out);
  }
  if (!as.of_selections()) {
    RoundToCoding(as, indices(), values(), residual);
    return EncodePayload(as, {indices(), values()}, n, out);
  }
  const bool filter = as.indices == IndexCoding::kBloom;
  if (filter) {
    filter_.Build(BloomShapeOf(slot.count, n, as.false_positives), indices());
    Choose(n, as.policy == BloomPolicy::kAll ? slot.capacity : slot.count,
           as.policy == BloomPolicy::kRandom, pool);
    TakeChosen(source, residual, slot);
  }
  const std::size_t count = slot.count;
  std::byte* to = StoreHeader(out.data(), {FlagsOf(as), static_cast<std::uint32_t>(count)});
  if (count == 0) return kPayloadHeaderBytes;

  if (as.values == ValueCoding::kFitted) {
    const std::size_t positives = SortValues(values());
    FitValues(indices(), values(), residual, positives);
    to = StoreBytes(to, static_cast<std::uint32_t>(positives));
    for (const FitPolynomial& polynomial : polynomials_) to = StoreBytes(to, polynomial);
    if (filter) {
      permuted_.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        permuted_[PlaceOf(sorted_[i])] = static_cast<std::uint32_t>(i);
      }
      to = StoreRanks(permuted_, to);
    } else {
      for (const std::uint64_t key : sorted_) to = StoreBytes(to, indices()[PlaceOf(key)]);
    }
  } else {
    RoundToCoding({as.values}, indices(), values(), residual);
    to = StoreValues(as.values, values(), to);
  }
  if (filter) {
    to = StoreBytes(StoreBytes(to, filter_.shape().hashes), filter_.shape().bits);
    const std::span<const std::uint32_t> words = filter_.words();
    std::memcpy(to, words.data(), words.size_bytes());
    to += words.size_bytes();
  }
  return static_cast<std::size_t>(to - out.data());
}

// --- decoding

DecodedSelection SelectionCoder::Decode(std::span<const std::byte> bytes, std::size_t n,
                                        std::span<std::uint32_t> indices, std::span<float> values,
                                        ThreadPool& pool) {
  assert(indices.size() == values.size());
  const auto [flags, count] =
      ReadHeader(bytes, kFlagF16 | kFlagFitted | kFlagBloom | kFlagPermuted);
  const bool filter = (flags & kFlagBloom) != 0;
  const bool fitted = (flags & kFlagFitted) != 0;
  const ValueCoding coding = (flags & kFlagF16) != 0 ? ValueCoding::kF16 : ValueCoding::kF32;
  if ((flags & kFlagDelta) != 0 || (fitted && coding == ValueCoding::kF16) ||
      (!filter && (flags & kFlagPermuted) != 0) || ((filter || fitted) && n <= kLeastElements)) {
    MalformedPayload("flags ", flags, ", which no selection of ", n, " elements has");
  }
  if (count > indices.size()) {
    MalformedPayload(count, " elements; expected at most ", indices.size());
  }
  if (count == 0) return {{}, kPayloadHeaderBytes};
  indices = indices.first(count);
  values = values.first(count);
  Reader reader(bytes);
  if (!filter && !fitted) {
    reader.Take(ValueBytes(coding, count) + count * sizeof(std::uint32_t), "elements");
    return {DecodePayload(bytes.first(reader.at()), n, indices, values), reader.at()};
  }

  if (fitted) {
    const auto positives = LoadBytes<std::uint32_t>(reader.Take(sizeof(std::uint32_t), "counts"));
    if (positives > count) {
      MalformedPayload(positives, " values above 0 of ", count);
    }
    restored_.resize(count);
    std::size_t begin = 0;
    for (const std::size_t length : FitSegments(count, positives)) {
      Restore(LoadBytes<FitPolynomial>(reader.Take(sizeof(FitPolynomial), "polynomials")),
              std::span(restored_).subspan(begin, length));
      begin += length;
    }
    if (const std::size_t bad = FirstNotFinite(restored_); bad != restored_.size()) {
      MalformedPayload("value ", bad, " in descending order is not finite");
    }
  } else {
    const std::size_t begin = reader.at();
    reader.Take(ValueBytes(coding, count), "values");
    ReadValues(coding, bytes, begin, values);
  }

  if (!filter) {
    const std::byte* const from = reader.Take(count * sizeof(std::uint32_t), "indices");
    sorted_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      sorted_[i] =
          std::uint64_t{LoadBytes<std::uint32_t>(from + i * sizeof(std::uint32_t))} << 32 | i;
    }
    std::ranges::sort(sorted_);
    for (std::size_t i = 0; i < count; ++i) {
      indices[i] = static_cast<std::uint32_t>(sorted_[i] >> 32);
      values[i] = restored_[PlaceOf(sorted_[i])];
      if (i > 0 && indices[i] == indices[i - 1]) {
        MalformedPayload("index ", indices[i], " occurs twice");
      }
    }
    if (indices.back() >= n) {
      MalformedPayload("the last index is ", indices.back(), "; expected one below ", n);
    }
    return {{indices, values}, reader.at()};
  }
  if (fitted) ReadRanks(reader.Take(RankBytes(count), "ranks"), restored_, values, permuted_);

  const std::byte* const shape_at = reader.Take(kFilterHeaderBytes, "filter");
  const BloomShape shape{LoadBytes<std::uint32_t>(shape_at + 4),
                         LoadBytes<std::uint32_t>(shape_at)};
  if (shape.hashes == 0 || shape.hashes > kMostBloomHashes || shape.bits == 0) {
    MalformedPayload("a filter of ", shape.bits, " bits and ", shape.hashes,
                     " hashes; expected 1 bit or more, and 1 to ", kMostBloomHashes, " hashes");
  }
  const std::byte* const from = reader.Take(shape.words() * sizeof(std::uint32_t), "filter");
  const std::span<std::uint32_t> words = filter_.Take(shape);
  std::memcpy(words.data(), from, words.size_bytes());
  if (shape.bits % 32 != 0 && words.back() >> shape.bits % 32 != 0) {
    MalformedPayload("bits after the filter are set; expected zeros");
  }
  Choose(n, count, (flags & kFlagPermuted) != 0, pool);
  if (chosen_.size() < count) {
    MalformedPayload("its filter has ", chosen_.size(), " of ", n, " indices; expected at least ",
                     count);
  }
  std::ranges::copy(chosen_, indices.begin());
  return {{indices, values}, reader.at()};
}

namespace {

std::size_t FilterBytes(BloomShape shape) {
  return kFilterHeaderBytes + shape.words() * sizeof(std::uint32_t);
}

// Returns the bytes of `sent` elements, with `inserted` elements in a filter.
std::size_t BytesOf(PayloadCoding coding, std::size_t sent, std::size_t inserted, std::size_t n,
                    std::size_t segments) {
  if (coding.indices == IndexCoding::kU12) return ChunkCodedBytes(coding, sent, n);
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

PayloadCoding SelectionCodingOf(PayloadCoding coding, std::size_t n) {
  if (n > kLeastElements || coding.indices == IndexCoding::kU12) return coding;
  return {coding.values == ValueCoding::kF16 ? ValueCoding::kF16 : ValueCoding::kF32,
          IndexCoding::kU32};
}

std::size_t SelectionBytesBound(PayloadCoding coding, std::size_t capacity, std::size_t n) {
  // Filters grow with their elements, except that their rate of false positives changes.
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
  if (as.indices == IndexCoding::kU12) work.unpacked = static_cast<double>(count);
  return work;
}

SelectionWork WorkOfEncoding(PayloadCoding coding, std::size_t count, std::size_t n) {
  const PayloadCoding as = SelectionCodingOf(coding, n);
  SelectionWork work = WorkOfDecoding(coding, count, n);
  work.packed = std::exchange(work.unpacked, 0);
  if (as.indices == IndexCoding::kBloom) {
    work.inserts = static_cast<double>(count) *
                   static_cast<double>(BloomShapeOf(count, n, as.false_positives).hashes);
  }
  if (as.values == ValueCoding::kFitted) work.fitted = static_cast<double>(count);
  return work;
}

}  // namespace sparfuse
