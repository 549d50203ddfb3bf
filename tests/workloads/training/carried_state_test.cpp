// Tests texts that continue over windows, the state of recurrent layers carried from window to
// window, and the dealing of windows of columns.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/workload_state.hpp"
#include "workloads/data/data_file.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/data/sampler.hpp"

namespace sparfuse::workloads {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::SmallConfig;

TEST(Columns, EachStepTakesOneWindowOfAllAndRanksKeepTheirsForAnEpoch) {
  constexpr std::size_t kColumns = 6, kWindows = 4;
  std::vector<std::vector<std::uint32_t>> of_rank(2);
  for (int rank = 0; rank < 2; ++rank) {
    Sampler sampler({.samples = kColumns * kWindows,
                     .batch = 3,
                     .rank = rank,
                     .world = 2,
                     .seed = 5,
                     .columns = kColumns});
    ASSERT_EQ(sampler.steps_per_epoch(), kWindows);
    for (std::uint64_t step = 0; step < 2 * kWindows; ++step) {
      for (const std::uint32_t sample : sampler.Batch(step, 0)) {
        EXPECT_EQ(sample / kColumns, step % kWindows);
        of_rank[static_cast<std::size_t>(rank)].push_back(sample % kColumns);
      }
    }
  }
  for (const auto& columns : of_rank) {
    for (std::size_t i = 0; i < 3 * kWindows; ++i) EXPECT_EQ(columns[i], columns[i % 3]);
  }
  std::vector<std::uint32_t> first(of_rank[0].begin(), of_rank[0].begin() + 3);
  first.insert(first.end(), of_rank[1].begin(), of_rank[1].begin() + 3);
  std::ranges::sort(first);
  EXPECT_EQ(first, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

class CarriedState : public ::testing::Test {
 protected:
  CarriedState() {
    std::string path = (fs::temp_directory_path() / "sparfuse-text-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    json splits = json::object();
    for (const auto& [split, count] :
         {std::pair<const char*, std::size_t>("train", 1500), {"valid", 1409}}) {
      std::vector<std::uint16_t> tokens(count);
      for (std::size_t i = 0; i < count; ++i)
        tokens[i] = static_cast<std::uint16_t>(RandomBits(count, i / 3) % 20);
      const std::string bytes(reinterpret_cast<const char*>(tokens.data()), 2 * count);
      std::ofstream(folder_ / (std::string(split) + ".tokens"), std::ios::binary) << bytes;
      const std::uint32_t sum =
          Crc32({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      splits[split] = {{"count", count},
                       {"files", {{"tokens", {{"bytes", bytes.size()}, {"crc32", sum}}}}}};
    }
    const json content = {{"kind", "text"},
                          {"tokens", "words"},
                          {"vocabulary_size", 20},
                          {"token_bytes", 2},
                          {"splits", splits}};
    std::ofstream(folder_ / "meta.json") << json{
        {"format", kPreparedFormat}, {"id", Sha256Of(content.dump())}, {"content", content}};
  }
  ~CarriedState() override { fs::remove_all(folder_); }

  std::unique_ptr<TrainingWorkload> Make(std::size_t batch, const std::string& state = "carried",
                                         const char* workload = "lstm-small") const {
    WorkloadConfig config = SmallConfig();
    config.data = folder_.string();
    config.batch_per_worker = batch;
    config.options["state"] = state;
    return MakeWorkload(workload, config);
  }

  fs::path folder_;
};

// 1,500 tokens in four columns of 375: six windows of 64, the last of 54.
TEST_F(CarriedState, GoesOnFromWindowToWindowAndBeginsAnewInEachEpoch) {
  const auto through = Make(4);
  ASSERT_EQ(through->StepsPerEpoch(), 6u);
  EXPECT_EQ(through->TrainingSamples(), 24u);
  std::vector<float> losses;
  for (std::uint64_t step = 0; step < 7; ++step) {
    through->ClearGradients();
    losses.push_back(through->Forward(step, 0));
    through->Backward(true);
  }
  EXPECT_EQ(Make(4)->Forward(0, 0), losses[0]);
  EXPECT_NE(Make(4)->Forward(1, 0), losses[1]);  // the same window from zero
  EXPECT_EQ(Make(4)->Forward(6, 0), losses[6]);  // the first window of the next epoch
}

TEST_F(CarriedState, PerplexityDependsOnNoBatchAndEvaluationsChangeNothing) {
  const auto small = Make(2), large = Make(8);
  const double perplexity = small->Evaluate(0).metric;
  EXPECT_EQ(large->Evaluate(0).metric, perplexity);
  EXPECT_NE(Make(2, "zero")->Evaluate(0).metric, perplexity);
  const float first = small->Forward(0, 0);
  const float second = small->Forward(1, 0);
  const auto again = Make(2);
  EXPECT_EQ(again->Forward(0, 0), first);
  again->Evaluate(0);
  EXPECT_EQ(again->Forward(1, 0), second);
}

TEST_F(CarriedState, WantsRecurrentLayers) { EXPECT_THROW(Make(4, "carried", "gpt-small"), Error); }

}  // namespace
}  // namespace sparfuse::workloads
