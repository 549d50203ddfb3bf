// Tests decoding, scaling, turning and cutting of images against Pillow 13's results for the same
// images: CRC-32 of its pixels.
#include "workloads/data/image.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/errors.hpp"
#include "workloads/data/data_file.hpp"

namespace sparfuse::workloads {
namespace {

using sparfuse::testing::ErrorOf;

// 9 x 7 pixels in Pillow's quality 60.
constexpr const char* kColoursHalved =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f1320151312"
    "1213271c1e17202e2931302e292d2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a5152"
    "4fffdb0043010e0e0e131113261515264f352d354f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f"
    "4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4fffc000110800070009030122000211010311"
    "01ffc400160001010100000000000000000000000000000304ffc4001b100001040300000000000000000000"
    "00000001020421051551ffc4001501010100000000000000000000000000000204ffc4001811000203000000"
    "000000000000000000000004031331ffda000c03010002110311003f00845c1b6a90dba36f1002171d9acd0a"
    "0dcb569fffd9";
constexpr const char* kColoursWhole =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f1320151312"
    "1213271c1e17202e2931302e292d2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a5152"
    "4fffdb0043010e0e0e131113261515264f352d354f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f"
    "4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4fffc000110800070009030111000211010311"
    "01ffc4001500010100000000000000000000000000000304ffc4001b10000104030000000000000000000000"
    "000001020421051551ffc4001501010100000000000000000000000000000305ffc4001a1100030003010000"
    "00000000000000000000010405141521ffda000c03010002110311003f0008b836d520f5e45810dcfc2dd1b7"
    "8849e8b2e6f33fffd9";
constexpr const char* kGrey =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f1320151312"
    "1213271c1e17202e2931302e292d2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a5152"
    "4fffc0000b080007000901012200ffc4001500010100000000000000000000000000000304ffc4001b100001"
    "04030000000000000000000000000001020421051551ffda0008010100003f0008b836d5216e8dbc43ffd9";

std::vector<std::uint8_t> Bytes(const std::string& hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

Image Made(std::size_t width, std::size_t height) {
  Image image{width, height, {}};
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (const std::size_t value : {37 * x + 11 * y, 5 * x * y + 13, 201 * x + 91 * y * y})
        image.pixels.push_back(static_cast<std::uint8_t>(value % 256));
    }
  }
  return image;
}

TEST(Image, DecodesAsPillow) {
  const struct {
    const char* hex;
    std::uint32_t pixels;
  } cases[] = {{kColoursHalved, 0x76a5f9c2u}, {kColoursWhole, 0x06d6d23fu}, {kGrey, 0xb6b0eba6u}};
  for (const auto& [hex, pixels] : cases) {
    const Image image = DecodeImage(Bytes(hex), "a test");
    EXPECT_EQ(image.width, 9u);
    EXPECT_EQ(image.height, 7u);
    EXPECT_EQ(Crc32(image.pixels), pixels);
  }
}

TEST(Image, DecodesAPpm) {
  const std::string text = "P6\n2 1\n255\nabcdef";
  const Image image =
      DecodeImage({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "a test");
  EXPECT_EQ(image.width, 2u);
  EXPECT_EQ(image.pixels, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
}

TEST(Image, RefusesWhatIsNoWholeImage) {
  std::vector<std::uint8_t> half = Bytes(kColoursWhole);
  half.resize(half.size() - 20);
  EXPECT_NE(ErrorOf([&] { DecodeImage(half, "train image 7"); }, FailureKind::kData)
                .find("train image 7: is no whole JPEG"),
            std::string::npos);
  for (const std::string text : {"", "P6\n2 2\n255\nabc", "<html>no image</html>"}) {
    ErrorOf(
        [&] {
          DecodeImage({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "a test");
        },
        FailureKind::kData);
  }
}

TEST(Image, ResizesAsPillow) {
  const struct {
    std::size_t width, height;
    std::uint32_t pixels;
  } cases[] = {{24, 24, 0xea9101e2u},
               {61, 20, 0x4ac1bdd2u},
               {90, 47, 0xa0126e01u},
               {97, 103, 0xbd71f671u},
               {7, 5, 0x4c74a041u}};
  for (const auto& [width, height, pixels] : cases)
    EXPECT_EQ(Crc32(Resized(Made(61, 47), width, height).pixels), pixels) << width << " " << height;
}

TEST(Image, RotatesAsPillow) {
  const struct {
    double degrees;
    std::uint32_t pixels;
  } cases[] = {{15.0, 0x3e706eb2u}, {-15.0, 0x538babf7u}, {3.25, 0xb08a234fu},
               {-0.5, 0x2a18be37u}, {90.0, 0xb47b61f9u},  {7.7, 0xe842f4a7u}};
  for (const auto& [degrees, pixels] : cases)
    EXPECT_EQ(Crc32(Rotated(Made(32, 32), degrees).pixels), pixels) << degrees;
}

TEST(Image, ShortSidesAndCentresAreTorchvisions) {
  const Image image = ShortSideOf(Made(50, 37), 16);
  EXPECT_EQ(image.width, 21u);  // 16 * 50 / 37, rounded down
  EXPECT_EQ(image.height, 16u);
  const Image tall = ShortSideOf(Made(37, 50), 16);
  EXPECT_EQ(tall.height, 21u);
  const Image whole = Made(21, 16);
  const Image centre = Centre(whole, 16);
  EXPECT_EQ(centre.at(0, 0)[0], whole.at(2, 0)[0]);  // 2.5 rounds to the even number
}

// If the shape fits, the area is uniform between 0.08 and 1 of the whole, and the shape's logarithm
// between those of 3/4 and 4/3.
TEST(RandomPart, HasTheSizesThatItsRuleSays) {
  double area = 0, shape = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    Draws draws(7, static_cast<std::uint64_t>(i));
    const Box box = RandomPart(500, 400, draws);
    ASSERT_LE(box.x + box.width, 500u);
    ASSERT_LE(box.y + box.height, 400u);
    const double w = static_cast<double>(box.width), h = static_cast<double>(box.height);
    EXPECT_GT(w * h, 0.079 * 500 * 400);
    EXPECT_LT(std::abs(std::log(w / h)), std::log(4.0 / 3.0) + 0.03);
    area += w * h / (500 * 400) / kDraws;
    shape += std::log(w / h) / kDraws;
  }
  EXPECT_NEAR(area, 0.452, 0.02);  // below 0.54: parts that do not fit are drawn again
  EXPECT_NEAR(shape, 0, 0.03);
}

TEST(RandomPart, TakesTheLargestPartWhereNoneFits) {
  Draws draws(1, 2);
  const Box box = RandomPart(1000, 4, draws);
  EXPECT_EQ(box.height, 4u);
  EXPECT_EQ(box.width, 5u);
  EXPECT_EQ(box.x, 497u);
}

TEST(Draws, AreOfASampleAndAnEpoch) {
  const auto first = [](std::uint64_t epoch, std::uint64_t sample) {
    return Draws(epoch, sample).Choose(1 << 30);
  };
  EXPECT_EQ(first(1, 2), first(1, 2));
  EXPECT_NE(first(1, 2), first(1, 3));
  EXPECT_NE(first(1, 2), first(2, 2));
}

}  // namespace
}  // namespace sparfuse::workloads
