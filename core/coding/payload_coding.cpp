#include "core/coding/payload_coding.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/coding/payload_coding_kernels.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"
#include "core/device/launch.hpp"
#include "core/sparsify/scan/quantiles.hpp"
#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {

namespace {

constexpr std::array<std::uint8_t, 3> kMagic = {'S', 'P', 1};
constexpr std::uint32_t kEscape = 65535;
constexpr std::size_t kEscapedBytes = 6;

std::byte* EncodeGaps(std::span<const std::uint32_t> indices, std::byte* to) {
  std::uint32_t previous = 0;
  for (const std::uint32_t index : indices) {
    const std::uint32_t gap = index - previous;
    if (gap < kEscape) {
      to = StoreBytes(to, static_cast<std::uint16_t>(gap));
    } else {
      // A step back would exceed the room of EncodedBytesBound.
      if (index < previous) {
        SPARFUSE_THROW(kInternal, "a sparse payload has index ", index, " after ", previous,
                       "; expected increasing indices");
      }
      to = StoreBytes(StoreBytes(to, static_cast<std::uint16_t>(kEscape)), gap);
    }
    previous = index;
  }
  return to;
}

// Returns whether one of four u16 is zero. The answer is exact, though the bits do not show which.
bool HasZero(std::uint64_t four) {
  return ((four - 0x0001000100010001u) & ~four & 0x8000800080008000u) != 0;
}

// Returns the end of the bytes read.
const std::byte* DecodeGaps(const std::byte* from, const std::byte* end,
                            std::span<std::uint32_t> indices) {
  std::uint64_t index = 0;  // the sum of 2^32 gaps below 2^32 fits
  for (std::size_t i = 0; i < indices.size();) {
    if (i != 0 && indices.size() - i >= 4 && end - from >= 8) {
      const auto four = LoadBytes<std::uint64_t>(from);
      if (!HasZero(four) && !HasZero(~four)) {  // neither a repeated index nor an escape
        const std::uint64_t a = index + (four & 0xffff);
        const std::uint64_t b = (four >> 16) & 0xffff;
        const std::uint64_t c = b + ((four >> 32) & 0xffff);
        const std::uint64_t d = c + (four >> 48);
        indices[i] = static_cast<std::uint32_t>(a);
        indices[i + 1] = static_cast<std::uint32_t>(a + b);
        indices[i + 2] = static_cast<std::uint32_t>(a + c);
        indices[i + 3] = static_cast<std::uint32_t>(a + d);
        index = a + d;
        from += 8;
        i += 4;
        continue;
      }
    }
    const auto truncated = [&] {
      MalformedPayload("it ends within index ", i, " of ", indices.size());
    };
    if (end - from < 2) truncated();
    std::uint32_t gap = LoadBytes<std::uint16_t>(from);
    from += 2;
    if (gap == kEscape) {
      if (end - from < 4) truncated();
      gap = LoadBytes<std::uint32_t>(from);
      from += 4;
      if (gap < kEscape) {
        MalformedPayload("an escaped gap of ", gap, " before index ", i, "; expected at least ",
                         kEscape);
      }
    }
    if (gap == 0 && i > 0) {
      MalformedPayload("index ", i, " repeats ", index, "; expected increasing indices");
    }
    index += gap;
    indices[i++] = static_cast<std::uint32_t>(index);
    if (index > 0xffffffffu) {
      MalformedPayload("index ", i - 1, " is ", index, "; expected 32 bits");
    }
  }
  // The fast steps do not check: as gaps are positive, the last index is the largest.
  if (index > 0xffffffffu) MalformedPayload("the last index is ", index);
  return from;
}

void DecodeIndices(const std::byte* from, std::span<std::uint32_t> indices) {
  std::uint32_t previous = 0;
  for (std::size_t begin = 0; begin < indices.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, indices.size() - begin);
    std::uint32_t* const to = indices.data() + begin;
    std::memcpy(to, from + begin * sizeof *to, size * sizeof *to);
    bool ascending = begin == 0 || to[0] > previous;
    for (std::size_t i = 1; i < size; ++i) ascending &= to[i] > to[i - 1];
    if (!ascending) {
      std::size_t i = begin == 0 ? 1 : begin;
      while (indices[i] > indices[i - 1]) ++i;
      MalformedPayload("index ", i, " is ", indices[i], " after ", indices[i - 1],
                       "; expected increasing indices");
    }
    previous = to[size - 1];
  }
}

// Returns how many of `count` random elements of n are expected to lie kEscape places or more after
// the previous element (the first: after the start). Each of n - kEscape places may hold such an
// element. The kEscape - 1 places before it are then free, and the others share the rest.
double ExpectedEscapes(double count, double n) {
  const double places = n - kEscape;
  if (count == 0 || places < std::max(1.0, count - 1)) return 0;
  const auto log_choose = [](double of, double chosen) {
    return LogGamma(of + 1) - LogGamma(chosen + 1) - LogGamma(of - chosen + 1);
  };
  return places * std::exp(log_choose(places, count - 1) - log_choose(n, count));
}

gpu::CodedLayout LayoutOf(PayloadCoding coding) {
  return {coding.values == ValueCoding::kF16, coding.indices == IndexCoding::kDelta};
}

std::size_t Blocks(std::size_t size, std::size_t per_block) {
  return (size + per_block - 1) / per_block;
}

}  // namespace

std::byte* StoreHeader(std::byte* to, PayloadHeader header) {
  for (const std::uint8_t part : kMagic) to = StoreBytes(to, part);
  return StoreBytes(StoreBytes(to, header.flags), header.count);
}

PayloadHeader ReadHeader(std::span<const std::byte> bytes, std::uint8_t most_flags) {
  if (bytes.size() < kPayloadHeaderBytes) {
    MalformedPayload(bytes.size(), " bytes; expected a header of ", kPayloadHeaderBytes);
  }
  for (std::size_t i = 0; i < kMagic.size(); ++i) {
    const auto found = std::to_integer<std::uint8_t>(bytes[i]);
    if (found != kMagic[i]) {
      MalformedPayload("byte ", i, " of the header is ", found, "; expected ", kMagic[i]);
    }
  }
  const auto flags = std::to_integer<std::uint8_t>(bytes[kMagic.size()]);
  if (flags > most_flags) {
    MalformedPayload("flags ", flags, "; expected at most ", most_flags);
  }
  return {flags, LoadBytes<std::uint32_t>(bytes.data() + 4)};
}

std::size_t ValueBytes(ValueCoding coding, std::size_t count) {
  return coding == ValueCoding::kF32 ? count * 4 : (count * 2 + 3) / 4 * 4;
}

std::byte* StoreValues(ValueCoding coding, std::span<const float> values, std::byte* to) {
  std::byte* const end = to + ValueBytes(coding, values.size());
  if (values.empty()) return end;
  if (coding == ValueCoding::kF32) {
    std::memcpy(to, values.data(), values.size_bytes());
    return end;
  }
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  std::memset(end - 4, 0, 4);
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, values.size() - begin);
    std::uint16_t codes[kBlock];
    kernels.half_encode(values.data() + begin, nullptr, size, codes);
    std::memcpy(to + begin * sizeof *codes, codes, size * sizeof *codes);
  }
  return end;
}

void ReadValues(ValueCoding coding, std::span<const std::byte> payload, std::size_t begin,
                std::span<float> values) {
  const std::byte* const from = payload.data() + begin;
  const std::size_t bytes = ValueBytes(coding, values.size());
  for (std::size_t i = coding == ValueCoding::kF32 ? bytes : values.size() * 2; i < bytes; ++i) {
    if (from[i] == std::byte{0}) continue;
    MalformedPayload("byte ", begin + i, ", between values and indices, is ",
                     std::to_integer<int>(from[i]), "; expected 0");
  }
  const SelectKernels& select = SelectKernelsFor(ActiveIsa());
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  for (std::size_t at = 0; at < values.size(); at += kBlock) {
    const std::size_t size = std::min(kBlock, values.size() - at);
    float* const to = values.data() + at;
    std::uint16_t codes[kBlock];
    if (coding == ValueCoding::kF32) {
      std::memcpy(to, from + at * sizeof *to, size * sizeof *to);
      if (select.add(to, nullptr, size) < kInfinityKey) continue;
    } else {
      std::memcpy(codes, from + at * sizeof *codes, size * sizeof *codes);
      if (kernels.half_decode(codes, size, to) < kHalfInfinity) continue;
    }
    const auto finite = [&](std::size_t i) {
      return coding == ValueCoding::kF32 ? std::isfinite(to[i])
                                         : (codes[i] & 0x7fff) < kHalfInfinity;
    };
    std::size_t i = 0;
    while (i + 1 < size && finite(i)) ++i;
    MalformedPayload("value ", at + i, " is not finite");
  }
}

std::size_t ExpectedPayloadBytes(PayloadCoding coding, std::size_t count, std::size_t n) {
  assert(!coding.of_selections());
  const std::size_t header_and_values = kPayloadHeaderBytes + ValueBytes(coding.values, count);
  if (coding.indices == IndexCoding::kU32) return header_and_values + 4 * count;
  const double escapes = ExpectedEscapes(static_cast<double>(count), static_cast<double>(n));
  return header_and_values + 2 * count +
         static_cast<std::size_t>(std::llround((kEscapedBytes - 2) * escapes));
}

std::size_t EncodedBytesBound(PayloadCoding coding, std::size_t capacity, std::size_t n) {
  assert(!coding.of_selections());
  // A gap of 65535 or more uses up as much of the range, which bounds the number of escapes.
  const std::size_t escapes = std::min(capacity, n / kEscape);
  const std::size_t index_bytes = coding.indices == IndexCoding::kU32
                                      ? 4 * capacity
                                      : 2 * (capacity - escapes) + kEscapedBytes * escapes;
  return (kPayloadHeaderBytes + ValueBytes(coding.values, capacity) + index_bytes + 7) / 8 * 8;
}

void RoundToCoding(PayloadCoding coding, std::span<const std::uint32_t> indices,
                   std::span<float> values, std::span<float> residual) {
  assert(indices.size() == values.size() && coding.values != ValueCoding::kFitted);
  if (coding.values == ValueCoding::kF32) return;
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, values.size() - begin);
    std::uint16_t codes[kBlock];
    float lost[kBlock];
    std::memcpy(lost, values.data() + begin, size * sizeof *lost);
    kernels.half_encode(lost, lost, size, codes);
    kernels.half_decode(codes, size, values.data() + begin);
    if (residual.empty()) continue;
    for (std::size_t i = 0; i < size; ++i) residual[indices[begin + i]] += lost[i];
  }
}

std::size_t EncodePayload(PayloadCoding coding, const SparsePayload& payload, std::size_t n,
                          std::span<std::byte> out) {
  const std::size_t count = payload.indices.size();
  assert(payload.values.size() == count);
  assert(count == 0 || payload.indices.back() < n);
  if (out.size() < EncodedBytesBound(coding, count, n)) {
    SPARFUSE_THROW(kInternal, "a sparse payload of ", count, " elements of ", n, " has room for ",
                   out.size(), " bytes; expected ", EncodedBytesBound(coding, count, n));
  }
  std::byte* to = StoreHeader(
      out.data(),
      {static_cast<std::uint8_t>((coding.values == ValueCoding::kF16 ? kFlagF16 : 0) |
                                 (coding.indices == IndexCoding::kDelta ? kFlagDelta : 0)),
       static_cast<std::uint32_t>(count)});
  if (count == 0) return kPayloadHeaderBytes;
  to = StoreValues(coding.values, payload.values, to);
  if (coding.indices == IndexCoding::kU32) {
    std::memcpy(to, payload.indices.data(), payload.indices.size_bytes());
    to += payload.indices.size_bytes();
  } else {
    to = EncodeGaps(payload.indices, to);
  }
  return static_cast<std::size_t>(to - out.data());
}

PayloadCoding CodingOf(std::span<const std::byte> bytes) {
  const std::uint8_t flags = ReadHeader(bytes, kFlagF16 | kFlagDelta).flags;
  return {(flags & kFlagF16) != 0 ? ValueCoding::kF16 : ValueCoding::kF32,
          (flags & kFlagDelta) != 0 ? IndexCoding::kDelta : IndexCoding::kU32};
}

SparsePayload DecodePayload(std::span<const std::byte> bytes, std::size_t n,
                            std::span<std::uint32_t> indices, std::span<float> values) {
  assert(indices.size() == values.size());
  const PayloadCoding coding = CodingOf(bytes);
  const std::size_t count = LoadBytes<std::uint32_t>(bytes.data() + 4);
  if (count > indices.size()) {
    MalformedPayload(count, " elements; expected at most ", indices.size());
  }
  indices = indices.first(count);
  values = values.first(count);
  const std::byte* const value_begin = bytes.data() + kPayloadHeaderBytes;
  const std::byte* const end = bytes.data() + bytes.size();
  const std::size_t value_bytes = ValueBytes(coding.values, count);
  // Length of the shortest payload with so many elements; u32 indices have one length only.
  const std::size_t least =
      kPayloadHeaderBytes + value_bytes + count * (coding.indices == IndexCoding::kU32 ? 4 : 2);
  const auto wrong_length = [&](std::size_t expected, const char* relation) {
    MalformedPayload(bytes.size(), " bytes for ", count, " elements; expected ", relation,
                     expected);
  };
  if (bytes.size() < least) wrong_length(least, "at least ");
  if (coding.indices == IndexCoding::kU32 && bytes.size() != least) wrong_length(least, "");

  ReadValues(coding.values, bytes, kPayloadHeaderBytes, values);
  if (coding.indices == IndexCoding::kU32) {
    DecodeIndices(value_begin + value_bytes, indices);
  } else {
    const std::byte* const read = DecodeGaps(value_begin + value_bytes, end, indices);
    if (read != end) wrong_length(static_cast<std::size_t>(read - bytes.data()), "");
  }
  if (count > 0 && indices.back() >= n) {
    MalformedPayload("the last index is ", indices.back(), "; expected one below ", n);
  }
  return {indices, values};
}

void RoundToCodingOnDevice(const Stream& stream, PayloadCoding coding, const DeviceSlot& slot,
                           DeviceSpan<float> residual) {
  if (coding.values == ValueCoding::kF32) return;
  // A slot usually has room for four times the selection.
  gpu::Launch(stream, Blocks(slot.capacity, 4 * gpu::RoundToHalves::kPerBlock),
              gpu::RoundToHalves{slot.indices, slot.values, slot.report,
                                 static_cast<std::uint32_t>(slot.capacity),
                                 residual.size == 0 ? nullptr : residual.data});
}

void EncodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace, PayloadCoding coding,
                           const DevicePayload& payload, std::size_t n, DeviceSpan<std::byte> out,
                           std::uint32_t* out_bytes) {
  if (out.size < EncodedBytesBound(coding, payload.count, n)) {
    SPARFUSE_THROW(kInternal, "a sparse payload of up to ", payload.count, " elements of ", n,
                   " has room for ", out.size, " bytes; expected ",
                   EncodedBytesBound(coding, payload.count, n));
  }
  using Kernel = gpu::EncodeElements;
  const gpu::EncodeSource source{payload.indices, payload.values,
                                 static_cast<std::uint32_t>(payload.count), payload.count_word};
  const std::size_t blocks = std::max<std::size_t>(1, Blocks(payload.count, Kernel::kPerBlock));
  std::uint32_t* escapes = nullptr;
  if (coding.indices == IndexCoding::kDelta) {
    escapes = workspace.Get<std::uint32_t>(stream, kUseTiles, blocks);
    gpu::Launch(stream, blocks, gpu::CountEscapes{source, escapes});
  }
  gpu::Launch(stream, blocks,
              Kernel{source, LayoutOf(coding), escapes, out.data, out.size, out_bytes});
}

DevicePayload DecodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                                    PayloadCoding coding, DeviceSpan<const std::byte> bytes,
                                    std::size_t n, DeviceSpan<std::uint32_t> indices,
                                    DeviceSpan<float> values, std::uint32_t* count, int rank,
                                    std::uint64_t* fault) {
  assert(indices.size == values.size);
  const gpu::CodedPayload coded{bytes.data, bytes.size, LayoutOf(coding)};
  const auto number = static_cast<std::uint32_t>(rank);
  constexpr std::size_t kTile = gpu::DecodeElements::kPerBlock;
  // An element without gaps takes at least 6 bytes. Gaps may be escaped: bytes bound their words.
  const std::size_t most =
      coded.layout.delta ? bytes.size / 2 : std::min(indices.size, bytes.size / 6);
  const std::size_t tiles = std::max<std::size_t>(1, Blocks(most, kTile));
  gpu::GapTile* of_tiles = nullptr;
  if (coded.layout.delta) of_tiles = workspace.Get<gpu::GapTile>(stream, kUseTiles, tiles);
  gpu::Launch(stream, tiles,
              gpu::DecodeElements{coded, n, static_cast<std::uint32_t>(indices.size), indices.data,
                                  values.data, count, of_tiles, number, fault});
  if (coded.layout.delta) {
    auto* const starts = workspace.Get<gpu::GapStart>(stream, kUseTileStarts, tiles);
    gpu::Launch(stream, 1, gpu::ChainTiles{coded, count, of_tiles, starts, number, fault});
    gpu::Launch(stream, tiles,
                gpu::WriteIndices{coded, n, count, starts, indices.data, number, fault});
  }
  return {indices.data, values.data, indices.size, count};
}

}  // namespace sparfuse
