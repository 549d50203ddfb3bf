// Decodes images and cuts, scales and turns them as Pillow and torchvision do. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sparfuse::workloads {

// Pixels of three bytes, red first, row by row.
struct Image {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;

  std::uint8_t* at(std::size_t x, std::size_t y) { return pixels.data() + 3 * (y * width + x); }
  const std::uint8_t* at(std::size_t x, std::size_t y) const {
    return pixels.data() + 3 * (y * width + x);
  }
};

// Decodes a JPEG (grey or in colour) or a binary PPM of 255 to pixels: by libjpeg-turbo with its
// defaults, accurate DCT and smooth upsampling, like Pillow. Throws Error{kData} for any other
// bytes; `what` begins the message.
Image DecodeImage(std::span<const std::uint8_t> bytes, std::string_view what);

struct Box {
  std::size_t x = 0, y = 0, width = 0, height = 0;
};
// Precondition: the box lies within the image, and has pixels.
Image Cropped(const Image& image, const Box& box);

// Triangle filter with a support that grows with the reduction, across and then down, 8 bits
// between: Pillow's BILINEAR, to the bit.
Image Resized(const Image& image, std::size_t width, std::size_t height);
// To a short side of `side`, the other in proportion, rounded down.
Image ShortSideOf(const Image& image, std::size_t side);
// Precondition: the image is at least as large.
Image Centre(const Image& image, std::size_t side);

// Turned about its centre, counter-clockwise, by the nearest pixel, black from outside: Pillow's
// rotate, to the bit.
Image Rotated(const Image& image, double degrees);

// Numbers of one sample in one epoch, in order.
class Draws {
 public:
  Draws(std::uint64_t epoch_key, std::uint64_t sample);
  double Uniform(double from, double to);
  // 0 to `choices` - 1.
  std::size_t Choose(std::size_t choices);

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

// A part of an image as torchvision's RandomResizedCrop chooses it: area 0.08 to 1 of the whole,
// width over height 3/4 to 4/3, ten tries, then the largest central part of such a shape.
Box RandomPart(std::size_t width, std::size_t height, Draws& draws);

}  // namespace sparfuse::workloads
