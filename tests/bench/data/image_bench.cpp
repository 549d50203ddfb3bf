// Times the processing of an ImageNet photograph for training on one core. It decodes a JPEG of 500
// x 375, and cuts and scales a random part of it to 224 x 224; decoding alone is the reference. The
// goal is 150 crops a second and core. The photograph is made up: smooth colours with fine grain,
// some 80 kB.
#include <benchmark/benchmark.h>
#include <jpeglib.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "workloads/data/image.hpp"
#include "workloads/data/sampler.hpp"

namespace sparfuse::bench {
namespace {

constexpr std::size_t kWidth = 500, kHeight = 375, kSide = 224;

std::vector<std::uint8_t> MadePhotograph() {
  std::vector<std::uint8_t> pixels(3 * kWidth * kHeight);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t x = i / 3 % kWidth, y = i / 3 / kWidth;
    const std::uint64_t grain = workloads::RandomBits(1, i) % 32;
    pixels[i] = static_cast<std::uint8_t>(40 + x * (1 + i % 3) / 10 + y / 5 + grain);
  }
  jpeg_compress_struct file{};
  jpeg_error_mgr errors{};
  file.err = jpeg_std_error(&errors);
  jpeg_create_compress(&file);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&file, &bytes, &size);
  file.image_width = kWidth;
  file.image_height = kHeight;
  file.input_components = 3;
  file.in_color_space = JCS_RGB;
  jpeg_set_defaults(&file);
  jpeg_set_quality(&file, 90, TRUE);
  jpeg_start_compress(&file, TRUE);
  for (std::size_t y = 0; y < kHeight; ++y) {
    JSAMPROW row = pixels.data() + 3 * kWidth * y;
    jpeg_write_scanlines(&file, &row, 1);
  }
  jpeg_finish_compress(&file);
  std::vector<std::uint8_t> made(bytes, bytes + size);
  jpeg_destroy_compress(&file);
  std::free(bytes);
  return made;
}

const std::vector<std::uint8_t>& Photograph() {
  static const std::vector<std::uint8_t> kBytes = MadePhotograph();
  return kBytes;
}

void Decode(::benchmark::State& state) {
  for (auto _ : state) {
    ::benchmark::DoNotOptimize(workloads::DecodeImage(Photograph(), "made").pixels.data());
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["bytes"] = static_cast<double>(Photograph().size());
}

void Crop(::benchmark::State& state) {
  std::uint64_t sample = 0;
  for (auto _ : state) {
    workloads::Draws draws(1, sample++);
    const workloads::Image image = workloads::DecodeImage(Photograph(), "made");
    const workloads::Box part = workloads::RandomPart(image.width, image.height, draws);
    const auto crop = workloads::Resized(workloads::Cropped(image, part), kSide, kSide);
    ::benchmark::DoNotOptimize(crop.pixels.data());
  }
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(Decode)->Unit(::benchmark::kMillisecond);
BENCHMARK(Crop)->Unit(::benchmark::kMillisecond);

}  // namespace
}  // namespace sparfuse::bench

BENCHMARK_MAIN();
