// Tests data files: every damage is found. Over ranks, micro-steps and steps, an epoch deals each
// sample at most once, the same for every division of the work.
#include "workloads/data/data_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/support/errors.hpp"
#include "workloads/data/sampler.hpp"

namespace sparfuse::workloads {
namespace {

using sparfuse::testing::ExpectIn;
using Bytes = std::vector<std::uint8_t>;

// A file in the form that scripts/fetch_data.py writes.
Bytes Encode(std::uint32_t kind, std::array<std::uint64_t, 4> dims, const Bytes& payload) {
  Bytes file(64, 0);
  const std::uint32_t version = 1;
  const std::uint64_t payload_bytes = payload.size();
  std::memcpy(file.data(), "SPARFDAT", 8);
  std::memcpy(file.data() + 8, &version, 4);
  std::memcpy(file.data() + 12, &kind, 4);
  std::memcpy(file.data() + 16, dims.data(), 32);
  std::memcpy(file.data() + 48, &payload_bytes, 8);
  const std::uint32_t crc = Crc32(payload, Crc32(std::span(file).first(60)));
  std::memcpy(file.data() + 60, &crc, 4);
  file.insert(file.end(), payload.begin(), payload.end());
  return file;
}

DataFileSpec SpecOf(const Bytes& file) {
  DataFileSpec spec{"tiny", "tiny/tiny.bin", file.size(), 0};
  std::memcpy(&spec.crc32, file.data() + 60, 4);
  return spec;
}

class DataFileTest : public ::testing::Test {
 protected:
  DataFileTest()
      : directory_(std::filesystem::temp_directory_path() /
                   ("sparfuse_data_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_ / "tiny");
  }
  ~DataFileTest() override { std::filesystem::remove_all(directory_); }

  void Write(const Bytes& file) {
    std::ofstream(directory_ / "tiny/tiny.bin", std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
  }

  std::string DataError(const auto& call) {
    return sparfuse::testing::ErrorOf(call, FailureKind::kData);
  }

  std::filesystem::path directory_;
  // Two images of 1 x 3, the first for training.
  const Bytes images_ = Encode(1, {2, 1, 3, 1}, {10, 20, 30, 40, 50, 60, 7, 9});
  // "abba" over the vocabulary "ab", three tokens for training.
  const Bytes text_ = Encode(2, {4, 2, 3, 0}, {'a', 'b', 0, 1, 1, 0});
};

TEST(Crc32, IsThatOfZlib) {
  const std::string check = "123456789";
  const Bytes bytes(check.begin(), check.end());
  EXPECT_EQ(Crc32(bytes), 0xCBF43926u);  // the check value of CRC-32/ISO-HDLC
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(Crc32(std::span(bytes).subspan(cut), Crc32(std::span(bytes).first(cut))),
              0xCBF43926u);
  }
}

TEST_F(DataFileTest, ReadsImages) {
  Write(images_);
  const ImageSet set = ReadImages(directory_, SpecOf(images_));
  EXPECT_EQ(set.count, 2u);
  EXPECT_EQ(set.train_count, 1u);
  EXPECT_EQ(Bytes(set.pixels(1).begin(), set.pixels(1).end()), (Bytes{40, 50, 60}));
  EXPECT_EQ(set.label(0), 7);
  EXPECT_EQ(set.label(1), 9);
}

TEST_F(DataFileTest, ReadsText) {
  Write(text_);
  const TextSet set = ReadText(directory_, SpecOf(text_));
  EXPECT_EQ(Bytes(set.vocabulary().begin(), set.vocabulary().end()), (Bytes{'a', 'b'}));
  EXPECT_EQ(Bytes(set.tokens().begin(), set.tokens().end()), (Bytes{0, 1, 1, 0}));
  EXPECT_EQ(set.train_count, 3u);
}

TEST_F(DataFileTest, MissingNamesFileSizeAndCommand) {
  for (const bool whole : {false, true}) {
    const std::string message = DataError([&] {
      whole ? void(ReadImages(directory_, SpecOf(images_)))
            : CheckDataFile(directory_, SpecOf(images_));
    });
    ExpectIn((directory_ / "tiny/tiny.bin").string(), message);
    ExpectIn("No such file", message);
    ExpectIn("expected 72 bytes", message);
    ExpectIn("scripts/fetch_data.py tiny --data-dir " + directory_.string(), message);
  }
}

TEST_F(DataFileTest, EveryTruncationIsFound) {
  for (std::size_t size = 0; size < images_.size(); ++size) {
    Write(Bytes(images_.begin(), images_.begin() + static_cast<std::ptrdiff_t>(size)));
    const std::string message = DataError([&] { CheckDataFile(directory_, SpecOf(images_)); });
    ExpectIn("truncated: " + std::to_string(size) + " bytes, expected 72", message);
    EXPECT_EQ(message, DataError([&] { ReadImages(directory_, SpecOf(images_)); }));
  }
}

TEST_F(DataFileTest, EveryDamagedByteIsFound) {
  for (std::size_t at = 0; at < text_.size(); ++at) {
    Bytes damaged = text_;
    damaged[at] ^= 0x10;
    Write(damaged);
    sparfuse::testing::ExpectError(FailureKind::kData, {},
                                   [&] { ReadText(directory_, SpecOf(text_)); });
  }
}

TEST_F(DataFileTest, AnotherEditionIsRefused) {
  const Bytes other = Encode(2, {4, 2, 3, 0}, {'a', 'b', 0, 1, 1, 1});
  Write(other);
  ExpectIn("another edition", DataError([&] { CheckDataFile(directory_, SpecOf(text_)); }));
  EXPECT_EQ(ReadText(directory_, SpecOf(other)).tokens().back(), 1);
}

TEST_F(DataFileTest, WellFormedNonsenseIsRefused) {
  const auto refuse = [&](const Bytes& file, bool as_text, const std::string& why) {
    Write(file);
    ExpectIn(why, DataError([&] {
               as_text ? void(ReadText(directory_, SpecOf(file)))
                       : void(ReadImages(directory_, SpecOf(file)));
             }));
  };
  refuse(text_, false, "kind 2, expected kind 1");
  refuse(Encode(1, {3, 1, 3, 1}, {10, 20, 30, 40, 50, 60, 7, 9}), false, "contradicts itself");
  refuse(Encode(1, {2, 1, 3, 1}, {10, 20, 30, 40, 50, 60, 7, 10}), false, "label 10 for image 1");
  refuse(Encode(2, {4, 2, 3, 0}, {'a', 'b', 0, 1, 2, 0}), true, "token 2, expected less than 2");
  refuse(Encode(2, {4, 2, 5, 0}, {'a', 'b', 0, 1, 1, 0}), true, "contradicts itself");
}

TEST(ResolveDataDirectory, PrefersArgumentThenEnvironmentThenCheckout) {
  setenv("SPARFUSE_DATA", "/from/environment", 1);
  EXPECT_EQ(ResolveDataDirectory("/given"), "/given");
  EXPECT_EQ(ResolveDataDirectory({}), "/from/environment");
  unsetenv("SPARFUSE_DATA");
  EXPECT_TRUE(ResolveDataDirectory({}).is_absolute());
  EXPECT_EQ(ResolveDataDirectory({}).filename(), "data");
}

constexpr std::size_t kSamples = 1003;

Sampler Make(int rank, int world, int accumulation, std::size_t batch, std::uint64_t seed = 7) {
  return Sampler({.samples = kSamples,
                  .batch = batch,
                  .rank = rank,
                  .world = world,
                  .accumulation = accumulation,
                  .seed = seed});
}

// The samples of all ranks at a step, in the order of ranks and micro-steps.
std::vector<std::uint32_t> StepSamples(std::uint64_t step, int world, int accumulation,
                                       std::size_t batch) {
  std::vector<std::uint32_t> samples;
  for (int rank = 0; rank < world; ++rank) {
    Sampler sampler = Make(rank, world, accumulation, batch);
    for (int micro = 0; micro < accumulation; ++micro) {
      const auto part = sampler.Batch(step, micro);
      EXPECT_EQ(part.size(), batch);
      samples.insert(samples.end(), part.begin(), part.end());
    }
  }
  return samples;
}

TEST(Sampler, AnEpochCoversTheDataOnce) {
  for (const int world : {1, 2, 3, 8}) {
    for (const int accumulation : {1, 3}) {
      const std::uint64_t steps = Make(0, world, accumulation, 5).steps_per_epoch();
      for (const std::uint64_t epoch : {0, 2}) {
        std::set<std::uint32_t> seen;
        std::size_t dealt = 0;
        for (std::uint64_t s = epoch * steps; s < (epoch + 1) * steps; ++s) {
          for (const std::uint32_t sample : StepSamples(s, world, accumulation, 5)) {
            EXPECT_LT(sample, kSamples);
            seen.insert(sample);
            ++dealt;
          }
        }
        EXPECT_EQ(seen.size(), dealt) << "a sample was dealt twice";
        EXPECT_LT(kSamples - dealt, static_cast<std::size_t>(world * accumulation) * 5)
            << "a whole step was dropped";
      }
    }
  }
}

TEST(Sampler, AStepTakesTheSameSamplesHoweverItIsCut) {
  for (const std::uint64_t step : {0, 1, 17, 40, 200}) {
    const auto whole = StepSamples(step, 1, 1, 24);
    EXPECT_EQ(whole, StepSamples(step, 2, 1, 12));
    EXPECT_EQ(whole, StepSamples(step, 1, 4, 6));
    EXPECT_EQ(whole, StepSamples(step, 3, 2, 4));
  }
}

TEST(Sampler, DependsOnSeedAndEpochAndNotOnThePast) {
  Sampler sampler = Make(0, 1, 1, 100);
  const auto copy = [](std::span<const std::uint32_t> s) {
    return std::vector<std::uint32_t>(s.begin(), s.end());
  };
  const auto first = copy(sampler.Batch(0, 0));
  const auto next_epoch = copy(sampler.Batch(sampler.steps_per_epoch(), 0));
  EXPECT_NE(first, next_epoch);
  EXPECT_EQ(first, copy(sampler.Batch(0, 0)));
  EXPECT_NE(first, copy(Make(0, 1, 1, 100, 8).Batch(0, 0)));
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST(Sampler, RefusesWhatCannotBeDealt) {
  EXPECT_THROW(Make(0, 2, 1, 502), Error);
  EXPECT_NO_THROW(Make(0, 2, 1, 501));
  EXPECT_THROW(Make(2, 2, 1, 5), Error);
  EXPECT_THROW(Make(-1, 2, 1, 5), Error);
  EXPECT_THROW(Make(0, 1, 0, 5), Error);
  EXPECT_THROW(Make(0, 1, 1, 0), Error);
}

}  // namespace
}  // namespace sparfuse::workloads
