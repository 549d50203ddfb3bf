#include "core/coding/quantizers/block_codes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

constexpr float kTop[] = {127.0f, 7.0f, 448.0f};

float TopOf(BlockCode code) { return kTop[static_cast<std::size_t>(code)]; }

std::array<float, 256> MakeFp8Values() {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned exponent = code >> 3 & 15, mantissa = code & 7;
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                          : std::ldexp(static_cast<float>(8 + mantissa),
                                                       static_cast<int>(exponent) - 10);
    values[code] = code < 128 ? magnitude : -magnitude;
  }
  return values;
}

// Returns the integer nearest to value / scale, or one of its neighbours at random; `scale` keeps
// it within `top`.
int Level(float value, float scale, float top, const BlockRounding& rounding, std::size_t i) {
  const float steps = value / scale;
  float level = 0;
  if (rounding.stream == nullptr) {
    level = std::nearbyint(steps);
  } else {
    const float below = std::floor(steps);
    level = rounding.Draw(i) < steps - below ? below + 1 : below;
  }
  return static_cast<int>(std::clamp(level, -top, top));
}

}  // namespace

std::uint8_t Fp8Of(float value) {
  constexpr std::uint32_t kLargest = 0x7e;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  if (magnitude < 0x1p-6f) {  // below the smallest normal number, in steps of 2^-9
    return static_cast<std::uint8_t>(sign |
                                     static_cast<std::uint8_t>(std::nearbyint(magnitude * 0x1p9f)));
  }
  std::uint32_t rounded = bits & 0x7fffffff;
  rounded = (rounded + 0x7ffff + (rounded >> 20 & 1)) >> 20;  // three bits of mantissa are left
  const std::uint32_t code = rounded - ((127 - 7) << 3);
  return static_cast<std::uint8_t>(sign | std::min(code, kLargest));
}

std::uint8_t Fp8Of(float value, float draw) {
  constexpr std::uint32_t kLargest = 0x7e;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  std::uint32_t below = 0;
  float rest = 0;
  if (magnitude < 0x1p-6f) {
    const float steps = magnitude * 0x1p9f;
    below = static_cast<std::uint32_t>(steps);
    rest = steps - static_cast<float>(below);
  } else {
    below = ((bits & 0x7fffffff) >> 20) - ((127 - 7) << 3);
    rest = static_cast<float>(bits & 0xfffff) * 0x1p-20f;
  }
  return static_cast<std::uint8_t>(sign | std::min(below + (draw < rest ? 1 : 0), kLargest));
}

float OfFp8(std::uint8_t code) {
  static const std::array<float, 256> kValues = MakeFp8Values();
  return kValues[code];
}

float BlockScale(BlockCode code, std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / TopOf(code);
  // The largest float must not decode to an infinity.
  return std::isfinite(scale * TopOf(code)) ? scale : std::nextafter(scale, 0.0f);
}

void EncodeBlock(BlockCode code, std::span<const float> values, float scale, std::byte* codes,
                 BlockRounding rounding) {
  const std::size_t n = values.size();
  if (scale == 0) {
    std::memset(codes, 0, code == BlockCode::kInt4 ? (n + 1) / 2 : n);
    return;
  }
  const float top = TopOf(code);
  switch (code) {
    case BlockCode::kInt8:
      for (std::size_t i = 0; i < n; ++i) {
        codes[i] = static_cast<std::byte>(
            static_cast<std::int8_t>(Level(values[i], scale, top, rounding, i)));
      }
      return;
    case BlockCode::kInt4:
      for (std::size_t i = 0; i < n; i += 2) {
        const int low = Level(values[i], scale, top, rounding, i) & 15;
        const int high = i + 1 < n ? Level(values[i + 1], scale, top, rounding, i + 1) & 15 : 0;
        codes[i / 2] = static_cast<std::byte>(high << 4 | low);
      }
      return;
    case BlockCode::kFp8:
      for (std::size_t i = 0; i < n; ++i) {
        const float steps = values[i] / scale;
        codes[i] = static_cast<std::byte>(
            rounding.stream == nullptr ? Fp8Of(steps) : Fp8Of(steps, rounding.Draw(i)));
      }
      return;
  }
}

bool DecodeBlock(BlockCode code, const std::byte* codes, float scale, std::span<float> out) {
  bool known = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    float level = 0;
    if (code == BlockCode::kInt4) {
      const int nibble = static_cast<int>(codes[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15;
      known &= nibble != 8;
      level = static_cast<float>(nibble < 8 ? nibble : nibble - 16);
    } else if (code == BlockCode::kInt8) {
      const auto value = static_cast<std::int8_t>(codes[i]);
      known &= value != -128;
      level = static_cast<float>(value);
    } else {
      const auto byte = static_cast<std::uint8_t>(codes[i]);
      known &= (byte & 0x7f) != 0x7f;
      level = OfFp8(byte);
    }
    out[i] = level * scale;
  }
  return known;
}

void EncodeBlocks(const BlockForm& form, std::span<const float> values, std::span<std::byte> out,
                  const RandomStream* stream) {
  assert(form.stochastic == (stream != nullptr));
  const std::size_t n = values.size();
  if (n == 0) return;
  std::memset(out.last(4).data(), 0, 4);
  auto* const scales = reinterpret_cast<float*>(out.data());
  std::byte* const codes = out.data() + form.CodesAt(n);
  for (std::size_t begin = 0; begin < n; begin += form.block) {
    const auto part = values.subspan(begin, std::min(form.block, n - begin));
    const float scale = scales[begin / form.block] = BlockScale(form.code, part);
    EncodeBlock(form.code, part, scale, codes + form.CodeBytes(begin), {stream, begin});
  }
}

void DecodeBlocks(const BlockForm& form, std::span<const std::byte> payload, std::span<float> out,
                  std::string_view what) {
  const std::size_t n = out.size();
  const auto refuse = [&](const auto&... why) { SPARFUSE_THROW(kComm, what, ": ", why...); };
  if (payload.size() != form.Bytes(n)) {
    refuse(payload.size(), " bytes: expected ", form.Bytes(n), " for ", n, " elements");
  }
  const auto* const scales = reinterpret_cast<const float*>(payload.data());
  const std::byte* const codes = payload.data() + form.CodesAt(n);
  for (std::size_t begin = 0; begin < n; begin += form.block) {
    const float scale = scales[begin / form.block];
    if (!std::isfinite(scale) || std::signbit(scale)) {
      refuse("a scale of ", scale, "; expected a finite scale of at least 0");
    }
    const auto part = out.subspan(begin, std::min(form.block, n - begin));
    if (!DecodeBlock(form.code, codes + form.CodeBytes(begin), scale, part)) {
      refuse("an invalid code at or after element ", begin);
    }
  }
}

}  // namespace sparfuse
