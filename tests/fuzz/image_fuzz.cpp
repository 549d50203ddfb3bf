// Feeds arbitrary bytes to the decoder of images: it returns all pixels of an image, or a data
// error.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz.hpp"
#include "workloads/data/image.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  const auto decode = [&] {
    const workloads::Image image = workloads::DecodeImage({data, size}, "fuzz");
    fuzz::Require(image.pixels.size() == 3 * image.width * image.height, "a value for each pixel");
  };
  fuzz::Accepts(decode, FailureKind::kData);
  return 0;
}
