#include "workloads/data/image.hpp"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <numbers>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/data/sampler.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kMostPixels = std::size_t{1} << 28;  // pixels of an image

[[noreturn]] void Fail(std::string_view what, const std::string& problem) {
  SPARFUSE_THROW(kData, std::string(what) + ": " + problem);
}

struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> text;
};

void LeaveOnError(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  errors->manager.format_message(jpeg, errors->text.data());
  std::longjmp(errors->jump, 1);
}

// Fails if the data ends before the image does. Other warnings are harmless: Pillow ignores them,
// too.
void LeaveAtTheEnd(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) LeaveOnError(jpeg);
}

// longjmp skips no destructor: only the caller's objects have one.
bool ReadJpeg(std::span<const std::uint8_t> bytes, jpeg_decompress_struct& jpeg, JpegErrors& errors,
              Image& image) {
  if (setjmp(errors.jump) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  image.width = jpeg.image_width;
  image.height = jpeg.image_height;
  if (image.width * image.height > kMostPixels) return true;  // before memory is allocated
  jpeg_start_decompress(&jpeg);
  image.pixels.resize(3 * image.width * image.height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = image.pixels.data() + 3 * image.width * jpeg.output_scanline;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

Image DecodeJpeg(std::span<const std::uint8_t> bytes, std::string_view what) {
  Image image;
  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = LeaveOnError;
  errors.manager.emit_message = LeaveAtTheEnd;
  const bool good = ReadJpeg(bytes, jpeg, errors, image);
  jpeg_destroy_decompress(&jpeg);
  if (!good) Fail(what, std::string("is no whole JPEG: ") + errors.text.data());
  if (image.pixels.empty()) {
    Fail(what, "has " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                   " pixels, expected at most " + std::to_string(kMostPixels));
  }
  return image;
}

// Decodes "P6\nWIDTH HEIGHT\n255\n" and the pixels, as `prepare` writes them.
Image DecodePpm(std::span<const std::uint8_t> bytes, std::string_view what) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 64));
  std::array<std::size_t, 3> numbers{};  // width, height, the largest value
  std::size_t at = 3;
  for (std::size_t& number : numbers) {
    if (at >= text.size()) Fail(what, "is no binary PPM: expected width, height and 255");
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    if (error != std::errc()) Fail(what, "is no binary PPM: expected width, height and 255");
    at = static_cast<std::size_t>(end - text.data()) + 1;
  }
  Image image{numbers[0], numbers[1], {}};
  const bool fits = image.width > 0 && image.height > 0 && image.width <= kMostPixels &&
                    image.height <= kMostPixels / image.width && numbers[2] == 255 &&
                    bytes.size() == at + 3 * image.width * image.height;
  if (!fits) Fail(what, "is a PPM whose size does not match its width and height");
  image.pixels.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
  return image;
}

// The share of the `in` positions in one of the `out` positions: a first position and integer
// weights of 22 bits.
struct Weights {
  std::size_t first = 0;
  std::vector<std::int32_t> values;
};
constexpr int kWeightBits = 22;

std::vector<Weights> TriangleWeights(std::size_t in, std::size_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  std::vector<Weights> all(out);
  std::vector<double> triangle;
  for (std::size_t i = 0; i < out; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = static_cast<std::size_t>(std::max(0.0, centre - support + 0.5));
    const auto behind = std::min(in, static_cast<std::size_t>(centre + support + 0.5));
    triangle.clear();
    double sum = 0;
    for (std::size_t x = first; x < behind; ++x) {
      const double distance = std::abs((static_cast<double>(x) - centre + 0.5) / support);
      triangle.push_back(std::max(0.0, 1.0 - distance));
      sum += triangle.back();
    }
    all[i].first = first;
    for (const double weight : triangle) {
      all[i].values.push_back(
          static_cast<std::int32_t>(0.5 + weight / sum * static_cast<double>(1 << kWeightBits)));
    }
  }
  return all;
}

std::uint8_t Rounded(std::int64_t sum) {
  return static_cast<std::uint8_t>(
      std::clamp<std::int64_t>((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 0, 255));
}

}  // namespace

Image DecodeImage(std::span<const std::uint8_t> bytes, std::string_view what) {
  if (bytes.size() > 3 && bytes[0] == 'P' && bytes[1] == '6') return DecodePpm(bytes, what);
  return DecodeJpeg(bytes, what);
}

Image Cropped(const Image& image, const Box& box) {
  Image part{box.width, box.height, std::vector<std::uint8_t>(3 * box.width * box.height)};
  for (std::size_t y = 0; y < box.height; ++y) {
    std::memcpy(part.at(0, y), image.at(box.x, box.y + y), 3 * box.width);
  }
  return part;
}

Image Resized(const Image& image, std::size_t width, std::size_t height) {
  Image across{width, image.height, {}};
  if (width == image.width) {
    across = image;
  } else {
    across.pixels.resize(3 * width * image.height);
    const std::vector<Weights> weights = TriangleWeights(image.width, width);
    for (std::size_t y = 0; y < image.height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        std::int64_t red = 0, green = 0, blue = 0;
        const std::uint8_t* from = image.at(weights[x].first, y);
        for (const std::int32_t weight : weights[x].values) {
          red += std::int64_t{weight} * from[0];
          green += std::int64_t{weight} * from[1];
          blue += std::int64_t{weight} * from[2];
          from += 3;
        }
        std::uint8_t* to = across.at(x, y);
        to[0] = Rounded(red);
        to[1] = Rounded(green);
        to[2] = Rounded(blue);
      }
    }
  }
  if (height == image.height) return across;
  Image down{width, height, std::vector<std::uint8_t>(3 * width * height)};
  const std::vector<Weights> weights = TriangleWeights(image.height, height);
  std::vector<std::int64_t> sums(3 * width);
  for (std::size_t y = 0; y < height; ++y) {
    std::ranges::fill(sums, 0);
    std::size_t row = weights[y].first;
    for (const std::int32_t weight : weights[y].values) {
      const std::uint8_t* from = across.at(0, row++);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += std::int64_t{weight} * from[i];
    }
    std::ranges::transform(sums, down.at(0, y), Rounded);
  }
  return down;
}

Image ShortSideOf(const Image& image, std::size_t side) {
  const auto other = [side](std::size_t longer, std::size_t shorter) {
    return static_cast<std::size_t>(static_cast<double>(side) * static_cast<double>(longer) /
                                    static_cast<double>(shorter));
  };
  return image.width <= image.height ? Resized(image, side, other(image.height, image.width))
                                     : Resized(image, other(image.width, image.height), side);
}

Image Centre(const Image& image, std::size_t side) {
  // Rounds to the nearest, halves to even, as Python does.
  const auto margin = [side](std::size_t whole) {
    return static_cast<std::size_t>(std::nearbyint(static_cast<double>(whole - side) / 2));
  };
  return Cropped(image, {margin(image.width), margin(image.height), side, side});
}

Image Rotated(const Image& image, double degrees) {
  const auto fixed = [](double value) {  // 16 bits after the binary point
    return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5));
  };
  const auto round15 = [](double value) { return std::round(value * 1e15) / 1e15; };
  double turn = std::fmod(degrees, 360.0);
  if (turn < 0) turn += 360.0;
  if (turn == 0) return image;
  const double angle = -turn * std::numbers::pi / 180.0;
  const double a = round15(std::cos(angle)), b = round15(std::sin(angle));
  const double d = round15(-std::sin(angle)), e = round15(std::cos(angle));
  const double middle_x = static_cast<double>(image.width) / 2;
  const double middle_y = static_cast<double>(image.height) / 2;
  const double c = a * -middle_x + b * -middle_y + middle_x;
  const double f = d * -middle_x + e * -middle_y + middle_y;
  Image turned{image.width, image.height, std::vector<std::uint8_t>(image.pixels.size())};
  std::int64_t row_x = fixed(c + a * 0.5 + b * 0.5), row_y = fixed(f + d * 0.5 + e * 0.5);
  for (std::size_t y = 0; y < image.height; ++y) {
    std::int64_t at_x = row_x, at_y = row_y;
    for (std::size_t x = 0; x < image.width; ++x) {
      const std::int64_t from_x = at_x >> 16, from_y = at_y >> 16;
      if (from_x >= 0 && std::cmp_less(from_x, image.width) && from_y >= 0 &&
          std::cmp_less(from_y, image.height)) {
        std::memcpy(turned.at(x, y),
                    image.at(static_cast<std::size_t>(from_x), static_cast<std::size_t>(from_y)),
                    3);
      }
      at_x += fixed(a);
      at_y += fixed(d);
    }
    row_x += fixed(b);
    row_y += fixed(e);
  }
  return turned;
}

Draws::Draws(std::uint64_t epoch_key, std::uint64_t sample) : key_(RandomBits(epoch_key, sample)) {}

double Draws::Uniform(double from, double to) {
  const double part = static_cast<double>(RandomBits(key_, next_++) >> 11) * 0x1p-53;
  return from + (to - from) * part;
}

std::size_t Draws::Choose(std::size_t choices) { return RandomBits(key_, next_++) % choices; }

Box RandomPart(std::size_t width, std::size_t height, Draws& draws) {
  constexpr int kTries = 10;
  const double narrowest = std::log(3.0 / 4.0), widest = std::log(4.0 / 3.0);
  const auto w = static_cast<double>(width), h = static_cast<double>(height);
  for (int i = 0; i < kTries; ++i) {
    const double area = w * h * draws.Uniform(0.08, 1.0);
    const double shape = std::exp(draws.Uniform(narrowest, widest));
    const auto wide = static_cast<std::size_t>(std::nearbyint(std::sqrt(area * shape)));
    const auto high = static_cast<std::size_t>(std::nearbyint(std::sqrt(area / shape)));
    if (wide == 0 || wide > width || high == 0 || high > height) continue;
    const std::size_t y = draws.Choose(height - high + 1);
    return {draws.Choose(width - wide + 1), y, wide, high};
  }
  Box box{0, 0, width, height};
  if (w / h < 3.0 / 4.0) {
    box.height = static_cast<std::size_t>(std::nearbyint(w / (3.0 / 4.0)));
  } else if (w / h > 4.0 / 3.0) {
    box.width = static_cast<std::size_t>(std::nearbyint(h * (4.0 / 3.0)));
  }
  box.x = (width - box.width) / 2;
  box.y = (height - box.height) / 2;
  return box;
}

}  // namespace sparfuse::workloads
