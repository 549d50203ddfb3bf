// Tests a modelled trial by hand, and the errors about missing parts of its profile.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/error.hpp"
#include "harness/records/record.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/statistics/statistics.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kNumel = 100000;

// A profile in which only backward (10 ms) and the link (1 ms + 10 ns a byte) take time, besides
// forward and the update.
ProfileOutcome ProfileOn(int ranks, const std::optional<LinkShape>& link,
                         double backward_seconds = 0.010) {
  json free = json::array({{1, 0.0}});
  json profile = {{"backward",
                   {{"steps", 5},
                    {"begin_seconds", 0},
                    {"forward_seconds", 0.005},
                    {"tail_seconds", 0},
                    {"update_seconds", 0.001},
                    {"tensors", json::array({{{"name", "weight"},
                                              {"shape", {kNumel}},
                                              {"numel", kNumel},
                                              {"seconds", backward_seconds}}})}}},
                  {"dispatch_seconds", 0},
                  {"exchange_dispatch_seconds", 0},
                  {"pack", free},
                  {"scale", free},
                  {"clear", free},
                  {"seconds_per_entry", 0},
                  {"seconds_per_reduced_element", 0},
                  {"selection", {{"topk", json::array({{{"density", 0.01}, {"seconds", free}}})}}}};
  if (ranks > 1) {
    profile["link"] = {{"class", "intra_node"},
                       {"fit", nullptr},
                       {"round_seconds", json::array({{0, 1e-3}, {1000000, 11e-3}})},
                       {"seconds_per_extra_message", 0},
                       {"cpu_seconds", 0},
                       {"round_cpu_seconds", 0},
                       {"cpu_fraction", 0}};
  }
  ProfileOutcome outcome;
  outcome.profile = RecordOf<Profile>(profile, "profile");
  outcome.machine = {
      {"communication_threads", "normal"}, {"cores", 2}, {"kernels", "avx2"}, {"cuda_devices", 0}};
  outcome.software = json::object();
  outcome.config.kind = TrialKind::kProfile;
  outcome.config.mode = Mode::kEmulated;
  outcome.config.workers = ranks;
  if (ranks > 1) outcome.config.link = link;
  return outcome;
}

const LinkShape kLink = {1, 100};

TrialConfig Config(int workers, const std::string& cluster) {
  TrialConfig trial;
  trial.seed = 1;
  CellConfig& config = trial.cell;
  config.mode = Mode::kModelled;
  config.workload = "digits-resnet";
  config.cluster = cluster;
  config.workers = workers;
  config.batch_per_worker = 32;
  config.steps = 5;
  config.link = kLink;
  config.method = "dense";
  config.method_options.strategy = "dense-units";
  config.method_options.planner = "whole-model";
  config.method_options.collective = "ring-allreduce";
  return trial;
}

class ModelTrial : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("sparfuse-model-trial-" +
                  std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  double StepSeconds(const TrialConfig& config, const ProfileOutcomes& profiles) {
    return *RunModelledTrial(config, profiles, nullptr, directory_)
                .metrics.at("step_seconds")
                .value;
  }
  std::filesystem::path directory_;
};

TEST_F(ModelTrial, ComputesAStepByHand) {
  const ProfileOutcomes profiles = {ProfileOn(1, kLink), ProfileOn(2, kLink)};
  // 5 + 10 + 1 ms, and two rounds of 1 ms + 200,000 bytes * 10 ns.
  EXPECT_NEAR(StepSeconds(Config(2, "this-machine"), profiles), 0.016 + 2 * 0.003, 1e-9);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "steps.npy"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "spans.npy"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "trace.json"));
}

// A step that sends beside the next one: 6 ms of exchange are hidden behind 16 ms; on a slower link
// a step lasts as long as its exchange. It sends as much as a step that waits.
TEST_F(ModelTrial, ADelayedUpdateIsModelledWithTheExchangeThatItWaitsFor) {
  TrialConfig config = Config(2, "this-machine");
  config.cell.method = "delayed-gradients";
  config.cell.method_options.strategy = "delayed-units";
  ProfileOutcomes profiles = {ProfileOn(1, kLink), ProfileOn(2, kLink)};
  EXPECT_NEAR(StepSeconds(config, profiles), 0.016, 1e-9);
  profiles[1].profile.link->round_seconds = {{0, 0.1}, {1000000, 0.1}};
  const Outcome slow = RunModelledTrial(config, profiles, nullptr, directory_);
  EXPECT_NEAR(*slow.metrics.at("step_seconds").value, 2 * 0.1, 1e-9);
  EXPECT_GT(*slow.metrics.at("exposed_communication_seconds").value, 0.18);
  EXPECT_EQ(slow.metrics.at("sent_bytes").value, 4.0 * kNumel);
  EXPECT_EQ(slow.metrics.at("exchanges").value, 1);
}

TEST_F(ModelTrial, TheOutcomeDescribesTheSeries) {
  const Outcome outcome = RunModelledTrial(
      Config(2, "this-machine"), {ProfileOn(1, kLink), ProfileOn(2, kLink)}, nullptr, directory_);
  const Series& steps = outcome.series.at("steps.npy");
  EXPECT_EQ(steps.rows, 2);
  EXPECT_EQ(steps.sampling, "every step of every rank");
  EXPECT_EQ(steps.units.at("step_seconds"), "seconds");
  EXPECT_EQ(outcome.series.at("spans.npy").units.at("bytes"), "bytes");
  EXPECT_EQ(outcome.metrics.at("exchanges").value, 1);
}

TEST_F(ModelTrial, RanksShareOneMachineOrHaveOneEach) {
  const ProfileOutcomes profiles = {ProfileOn(1, kLink), ProfileOn(2, kLink)};
  const double shared = StepSeconds(Config(4, "this-machine"), profiles);
  const double own = StepSeconds(Config(4, "machines-like-this"), profiles);
  EXPECT_NEAR(shared - own, 0.016, 1e-9);  // four ranks on two cores compute at half speed
}

TEST_F(ModelTrial, TakesTheBackwardPassOfAsManyRanks) {
  const ProfileOutcomes profiles = {ProfileOn(1, kLink, 0.010), ProfileOn(2, kLink, 0.013)};
  EXPECT_NEAR(StepSeconds(Config(2, "this-machine"), profiles), 0.019 + 2 * 0.003, 1e-9);
  EXPECT_NEAR(StepSeconds(Config(2, "machines-like-this"), profiles), 0.016 + 2 * 0.003, 1e-9);
}

// Two ranks need 20 ms for a step of 16 ms, and four need 44 ms instead of 40.
TEST_F(ModelTrial, ComputationOnSharedCoresTakesLongerByWhatWasMeasuredOfSharing) {
  ProfileOutcomes profiles = {ProfileOn(1, kLink), ProfileOn(2, kLink), ProfileOn(4, kLink)};
  const double without = StepSeconds(Config(4, "this-machine"), profiles);
  profiles[1].profile.backward->all_ranks_seconds = 0.020;
  profiles[2].profile.backward->all_ranks_seconds = 0.044;
  EXPECT_NEAR(StepSeconds(Config(4, "this-machine"), profiles) - without, 0.1 * 2 * 0.016, 1e-9);
  EXPECT_NEAR(StepSeconds(Config(2, "this-machine"), profiles), 0.016 + 2 * 0.003, 1e-9);
  profiles[2].profile.backward->all_ranks_seconds = 0.030;  // some of it was sleep
  EXPECT_NEAR(StepSeconds(Config(4, "this-machine"), profiles), without, 1e-9);
  // On three cores, two ranks do not disturb each other, and four need 4/3 of their time.
  for (ProfileOutcome& outcome : profiles) outcome.machine["cores"] = 3;
  profiles[2].profile.backward->all_ranks_seconds = 0.020 * 4 / 3 * 1.2;
  EXPECT_NEAR(StepSeconds(Config(4, "this-machine"), profiles), 1.2 * 0.016 * 4 / 3 + 6 * 0.002,
              1e-9);
}

// A profile on hosts of `ranks_per_node` ranks, with a link whose rounds take this long for any
// bytes.
ProfileOutcome LinkOutcome(int ranks, double round_seconds, int ranks_per_node, int cores) {
  ProfileOutcome outcome = ProfileOn(ranks, {});
  outcome.profile.link->round_seconds = {{0, round_seconds}};
  outcome.config.mode = Mode::kMeasured;
  outcome.config.ranks_per_node = ranks_per_node;
  outcome.machine["cores"] = cores;
  return outcome;
}

TEST_F(ModelTrial, OfAFileTakesTheLinkOfTheNearestNumberOfRanks) {
  TrialConfig config = Config(16, "a-file");
  config.cell.link = std::nullopt;
  // The seconds of a round: exchanges add 2 (P - 1) rounds of a ring to a step of 16 ms.
  const auto round = [&](int workers, const ProfileOutcomes& profiles) {
    config.cell.workers = workers;
    return (StepSeconds(config, profiles) - 0.016) / (2 * (workers - 1));
  };
  const ProfileOutcome one = ProfileOn(1, {});
  // On one machine: the largest number of ranks that it has cores for.
  const ProfileOutcomes local = {one, LinkOutcome(2, 2e-3, 2, 8), LinkOutcome(4, 4e-3, 4, 8),
                                 LinkOutcome(16, 16e-3, 16, 8)};
  EXPECT_NEAR(round(2, local), 2e-3, 1e-9);
  EXPECT_NEAR(round(4, local), 4e-3, 1e-9);
  EXPECT_NEAR(round(64, local), 4e-3, 1e-9);
  // Across machines, even if these had fewer ranks.
  ProfileOutcomes across = local;
  across.push_back(LinkOutcome(2, 3e-3, 1, 8));
  across.push_back(LinkOutcome(32, 9e-3, 8, 8));
  EXPECT_NEAR(round(4, across), 3e-3, 1e-9);
  EXPECT_NEAR(round(16, across), 9e-3, 1e-9);
  EXPECT_NEAR(round(256, across), 9e-3, 1e-9);
}

TEST_F(ModelTrial, OfAFileTakesTheLinksOfItsFingerprint) {
  TrialConfig config = Config(4, "a-file");
  config.cell.link = std::nullopt;
  ProfileOutcome fingerprint = LinkOutcome(4, 7e-3, 2, 8);
  fingerprint.config.kind = TrialKind::kFingerprint;
  fingerprint.profile.backward.reset();
  const auto step = [&](const ProfileOutcomes& profiles) { return StepSeconds(config, profiles); };
  const ProfileOutcome one = ProfileOn(1, {});
  EXPECT_NEAR(step({one, fingerprint}), 0.016 + 2 * 3 * 7e-3, 1e-9);
  // The same if the file has links of its own.
  const ProfileOutcomes linked = {one, LinkOutcome(4, 3e-3, 1, 8), fingerprint};
  EXPECT_NEAR(step(linked), 0.016 + 2 * 3 * 7e-3, 1e-9);
  // A link that the fingerprint did not measure comes from the file.
  config.cell.link = kLink;
  EXPECT_NEAR(step({one, ProfileOn(2, kLink), fingerprint}), 0.016 + 2 * 3 * (1e-3 + 1e5 * 1e-8),
              1e-9);
}

TEST_F(ModelTrial, ErrorsOfTheProfileSpreadIntoTheStep) {
  ProfileOutcomes profiles = {ProfileOn(1, kLink), ProfileOn(2, kLink)};
  const auto metrics = [&] {
    return RunModelledTrial(Config(2, "machines-like-this"), profiles, nullptr, directory_).metrics;
  };
  EXPECT_FALSE(metrics().contains("step_uncertainty"));
  // Forward is known to 20 %: 1 ms of 22. 12 draws of normal deviates almost always give their size
  // within a factor of two.
  profiles[0].profile.relative_errors["/backward/forward_seconds"] = {0.2, {}};
  const double expected = StudentTQuantile(0.975, 12) * 0.001 / 0.022;
  const double found = *metrics().at("step_uncertainty").value;
  EXPECT_GT(found, expected / 2);
  EXPECT_LT(found, expected * 2);
  profiles[0].profile.relative_errors["/backward/forward_seconds"] = {0, {}};
  EXPECT_EQ(metrics().at("step_uncertainty").value, 0);
}

// Ok-Topk's ranks vote on their regions in the first step, which takes longer than the others.
TEST_F(ModelTrial, DrawsAreOfTheStepsThatItsMetricsSay) {
  const ProfileOutcomes profiles = {ProfileOn(1, kLink), ProfileOn(2, kLink), ProfileOn(4, kLink)};
  TrialConfig config = Config(4, "machines-like-this");
  CellConfig& cell = config.cell;
  cell.method = "oktopk";
  cell.method_options.strategy = "behind";
  cell.method_options.collective = "oktopk";
  cell.sparsifier = "topk";
  cell.density = 0.01;
  cell.feedback = "residual";
  const auto the_same = [&](int) { return profiles; };
  const Outcome outcome = RunModelledTrial(config, profiles, the_same, directory_);
  for (const char* metric : {"step_seconds", "exposed_communication_seconds"}) {
    const std::vector<double>& draws = outcome.draws.at(metric);
    EXPECT_FALSE(draws.empty());
    for (const double drawn : draws)
      EXPECT_NEAR(drawn, *outcome.metrics.at(metric).value, 1e-9) << metric;
  }
}

// Two nodes of two ranks: neither the link of one node of two, nor of nodes of four.
TEST_F(ModelTrial, TakesLinksOfAsManyRanksANode) {
  LinkShape shape = kLink;
  shape.intra_node_gbps = 10;
  shape.intra_node_us = 100;
  const auto measured = [&](int ranks, int ranks_per_node, double start) {
    ProfileOutcome outcome = ProfileOn(ranks, shape);
    outcome.config.ranks_per_node = ranks_per_node;
    if (ranks > 1) outcome.profile.link->round_seconds = {{0, start}, {1000000, start + 0.010}};
    return outcome;
  };
  for (const char* cluster : {"this-machine", "machines-like-this"}) {
    TrialConfig config = Config(4, cluster);
    config.cell.link = shape;
    config.cell.ranks_per_node = 2;
    const ProfileOutcomes needed = {measured(1, 1, 0), measured(4, 2, 1e-3)};
    ProfileOutcomes all = needed;
    all.push_back(measured(2, 2, 5e-3));
    all.push_back(measured(4, 4, 7e-3));
    EXPECT_EQ(StepSeconds(config, all), StepSeconds(config, needed)) << cluster;
    all.erase(all.begin() + 1);
    EXPECT_THROW(StepSeconds(config, all), Error) << cluster;
  }
}

TEST_F(ModelTrial, SaysWhatTheProfileLacks) {
  const auto message = [&](const ProfileOutcomes& profiles, FailureKind kind) {
    return testing::ErrorOf([&] { StepSeconds(Config(2, "this-machine"), profiles); }, kind);
  };
  EXPECT_SAYS(message({}, FailureKind::kConfig), "lacks every measurement");
  EXPECT_SAYS(message({ProfileOn(1, kLink)}, FailureKind::kConfig), "lacks the link");
  ProfileOutcomes damaged = {ProfileOn(1, kLink), ProfileOn(2, kLink)};
  damaged[1].profile.pack.clear();
  EXPECT_SAYS(message(damaged, FailureKind::kData), "damaged: the profile has no pack");
}

}  // namespace
}  // namespace sparfuse::harness
