#include "core/coding/exponent_coding.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "core/base/error.hpp"
#include "core/coding/payload_coding.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kMantissaBytes = 3;

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint8_t ExponentOf(float value) { return static_cast<std::uint8_t>(BitsOf(value) >> 23); }

// The coding of a block's exponents.
struct Form {
  std::uint8_t largest = 0;
  std::uint8_t width = 0;
  std::uint16_t escaped = 0;

  std::size_t CodeBytes(std::size_t n) const { return (n * width + 7) / 8; }
  std::size_t Bytes(std::size_t n) const {
    return (kHeaderBytes + kMantissaBytes * n + CodeBytes(n) + escaped + 3) / 4 * 4;
  }
  bool Escapes(std::uint8_t exponent) const {
    return width < 8 && largest - exponent >= (1 << width) - 1;
  }
};

Form FormOf(std::span<const float> values) {
  std::array<std::uint16_t, 256> counts{};
  for (const float value : values) ++counts[ExponentOf(value)];
  Form best;
  std::size_t top = 255;
  while (counts[top] == 0) --top;
  best.largest = static_cast<std::uint8_t>(top);
  if (counts[top] == values.size()) return best;
  std::size_t least = values.size() + 1;
  std::size_t coded = 0;  // values less than `apart` below the largest
  std::size_t apart = 0;
  for (std::uint8_t width = 1; width <= 8; ++width) {
    const std::size_t codes = width == 8 ? 256 : (std::size_t{1} << width) - 1;
    for (; apart < codes && apart <= top; ++apart) coded += counts[top - apart];
    Form form{best.largest, width, static_cast<std::uint16_t>(values.size() - coded)};
    const std::size_t bytes = form.CodeBytes(values.size()) + form.escaped;
    if (bytes < least) {
      least = bytes;
      best = form;
    }
  }
  return best;
}

std::size_t EncodeBlock(std::span<const float> values, std::byte* out) {
  const Form form = FormOf(values);
  std::byte* to = StoreBytes(StoreBytes(StoreBytes(out, form.largest), form.width), form.escaped);
  for (const float value : values) {
    const std::uint32_t bits = BitsOf(value);
    const std::uint32_t mantissa = (bits >> 8 & 0x800000) | (bits & 0x7fffff);
    std::memcpy(to, &mantissa, kMantissaBytes);
    to += kMantissaBytes;
  }
  std::byte* escaped = to + form.CodeBytes(values.size());
  const std::uint32_t escape = (1u << form.width) - 1;
  std::uint32_t waiting = 0;
  unsigned bits = 0;
  for (std::size_t i = 0; form.width > 0 && i < values.size(); ++i) {
    const std::uint8_t exponent = ExponentOf(values[i]);
    const bool escapes = form.Escapes(exponent);
    const std::uint32_t code = form.width == 8 ? exponent
                               : escapes       ? escape
                                               : std::uint32_t{form.largest} - exponent;
    if (escapes) escaped = StoreBytes(escaped, exponent);
    waiting |= code << bits;
    for (bits += form.width; bits >= 8; bits -= 8, waiting >>= 8) {
      to = StoreBytes(to, static_cast<std::uint8_t>(waiting));
    }
  }
  if (bits > 0) StoreBytes(to, static_cast<std::uint8_t>(waiting));
  std::fill(escaped, out + form.Bytes(values.size()), std::byte{0});
  return form.Bytes(values.size());
}

template <class... Parts>
[[noreturn]] void Refuse(const char* what, const Parts&... why) {
  SPARFUSE_THROW(kComm, what, ": ", why...);
}

// Returns the number of bytes read.
std::size_t DecodeBlock(std::span<const std::byte> bytes, std::span<float> values,
                        const char* what) {
  const std::size_t n = values.size();
  const auto require = [&](std::size_t expected) {
    if (bytes.size() >= expected) return;
    Refuse(what, bytes.size(), " bytes of a block of ", n, " values: expected at least ", expected);
  };
  require(kHeaderBytes);
  const Form form{LoadBytes<std::uint8_t>(bytes.data()), LoadBytes<std::uint8_t>(bytes.data() + 1),
                  LoadBytes<std::uint16_t>(bytes.data() + 2)};
  if (form.width > 8 || form.escaped > n) {
    Refuse(what, "codes of ", form.width, " bits, ", form.escaped, " of ", n, " exponents escaped");
  }
  require(form.Bytes(n));
  const std::byte* mantissas = bytes.data() + kHeaderBytes;
  const std::byte* codes = mantissas + kMantissaBytes * n;
  const std::byte* escaped = codes + form.CodeBytes(n);
  const std::byte* const escaped_end = escaped + form.escaped;
  const std::uint32_t escape = (1u << form.width) - 1;
  std::uint32_t waiting = 0;
  unsigned bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t exponent = form.largest;
    if (form.width > 0) {
      for (; bits < form.width; bits += 8) {
        waiting |= std::to_integer<std::uint32_t>(*codes++) << bits;
      }
      const std::uint32_t code = waiting & escape;
      waiting >>= form.width;
      bits -= form.width;
      if (form.width == 8) {
        exponent = code;
      } else if (code == escape) {
        if (escaped == escaped_end) Refuse(what, "more exponents are escaped than its header says");
        exponent = std::to_integer<std::uint32_t>(*escaped++);
      } else {
        exponent = form.largest - code;
      }
      if (exponent > 255) Refuse(what, "an exponent below 0");
    }
    std::uint32_t mantissa = 0;
    std::memcpy(&mantissa, mantissas + kMantissaBytes * i, kMantissaBytes);
    values[i] =
        std::bit_cast<float>((mantissa & 0x800000) << 8 | exponent << 23 | (mantissa & 0x7fffff));
  }
  if (escaped != escaped_end) Refuse(what, "fewer exponents are escaped than its header says");
  const std::span<const std::byte> rest(escaped_end, bytes.data() + form.Bytes(n));
  if (waiting != 0 || std::ranges::any_of(rest, [](std::byte b) { return b != std::byte{0}; })) {
    Refuse(what, "the padding of its codes is not zero");
  }
  return form.Bytes(n);
}

}  // namespace

std::size_t ExponentBytesBound(std::size_t n) {
  const auto bound = [](std::size_t size) {
    return Form{.largest = 0, .width = 8, .escaped = 0}.Bytes(size);
  };
  const std::size_t rest = n % kExponentBlock;
  return n / kExponentBlock * bound(kExponentBlock) + (rest > 0 ? bound(rest) : 0);
}

std::size_t EncodeExponents(std::span<const float> values, std::span<std::byte> out) {
  assert(out.size() >= ExponentBytesBound(values.size()));
  std::size_t written = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kExponentBlock) {
    const auto block = values.subspan(begin, std::min(kExponentBlock, values.size() - begin));
    written += EncodeBlock(block, out.data() + written);
  }
  return written;
}

void DecodeExponents(std::span<const std::byte> bytes, std::span<float> values, const char* what) {
  std::size_t read = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kExponentBlock) {
    const auto block = values.subspan(begin, std::min(kExponentBlock, values.size() - begin));
    read += DecodeBlock(bytes.subspan(read), block, what);
  }
  if (read != bytes.size()) {
    Refuse(what, bytes.size(), " bytes for ", values.size(), " values: expected ", read);
  }
}

}  // namespace sparfuse
