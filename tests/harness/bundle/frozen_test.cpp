// Tests that a bundle of today has the frozen bytes, for a store made here with everything that a
// bundle can contain. SPARFUSE_FREEZE=1 in the environment writes these bytes, for a version that
// was never released.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "harness/bundle/bundle.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/store/step_log.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const SourceState kWrittenBy{std::string(40, 'c'), false};

// The launch record of a run on two hosts.
json LaunchOfTwoHosts(const std::string& id) {
  return {{"id", id},
          {"trials", 1},
          {"start_seconds", 1.5},
          {"binding",
           {{"hosts", {"host0", "host1"}},
            {"cores", {"0-3", "0-3"}},
            {"numa", {"0", "0"}},
            {"card", {"card0", nullptr}},
            {"interface", {"interface0", nullptr}}}},
          {"network",
           {{"interface", "interface0"},
            {"hosts", {"host0", "host1"}},
            {"bytes", {{{"interface0", {{"received", 100}, {"sent", 200}}}}, json::object()}},
            {"others", {json::array(), json::array({"interface1"})}}}},
          {"clocks",
           {{"hosts", {"host0", "host1"}},
            {"offset_seconds", {0.0, 1e-3}},
            {"drift_ppm", {0.0, 0.5}},
            {"drift_uncertainty_ppm", {0.0, 0.125}},
            {"uncertainty_seconds", {0.0, 1e-5}}}},
          {"warnings", {"node-b has another clock"}}};
}

json NodeOfCores(int cores) {
  return {{"cpu_model", "Processor 1"},
          {"cores", cores},
          {"memory_gib", 16},
          {"gpus", json::array({"Card 9000"})},
          {"network", json::array({json{{"kind", "ethernet"}, {"gbps", 25}}})}};
}

json FingerprintJson() {
  return {{"id", "e/p.1"},
          {"taken_utc", "2026-11-24T01:00:00.000Z"},
          {"ranks", 2},
          {"ranks_per_node", 1},
          {"threads", 1},
          {"device", "cpu"},
          {"transport", "mpi"},
          {"link", nullptr},
          {"all_reduce", "ring"},
          {"all_gather", "ring"},
          {"changed", json::array({"memory read of node-b took twice as long"})},
          {"quantities",
           {{"link_alpha_seconds",
             {{"value", 1e-5},
              {"low", 9e-6},
              {"high", 1.5e-5},
              {"n", 16},
              {"unit", "s"},
              {"worst", {{"value", 2e-5}, {"ranks", {0, 1}}}}}}}}};
}

json MachineJson() {
  return {
      {"placement", {"host0", "host1"}},
      {"communication_threads", "funneled"},
      {"cores", 4},
      {"cuda_devices", 2},
      {"kernels", "avx2"},
      {"cards", {"cuda:0 Card 9000", "cuda:1 Card 9000"}},
      {"load_before", 0.5},
      {"gpus",
       {{"driver", "535.1"},
        {"cuda", "12.2"},
        {"cards", {{{"index", 0}, {"name", "Card 9000"}}, {{"index", 1}, {"name", "Card 9000"}}}},
        {"topology", json::array({json{{"cards", {0, 1}}, {"kind", "NV4"}}})}}}};
}

class FrozenStore {
 public:
  FrozenStore() : store_(folder_.path()) {
    const StoreLock lock(store_.results());
    Add(lock, 0, "ok");
    Add(lock, 1, "ok");
    Add(lock, 2, "failed");
    AddImportedOne(lock);
    MakeDirectories(store_.results() / "annotations");
    WriteFileDurably(
        store_.results() / "annotations" / "2026-11-24T02:00:00.000Z-1.json",
        WrittenJson({{"annotation_id", "2026-11-24T02:00:00.000Z-1"},
                     {"trial_id", ids_.at(1)},
                     {"reason", "alice ran a backup on node-b, see /users/alice/notes"},
                     {"created_utc", "2026-11-24T02:00:00.000Z"}}));
  }

  fs::path Bundled() const {
    std::vector<std::string> problems;
    const std::vector<TrialRow> rows = store_.Rows(problems);
    EXPECT_EQ(problems, std::vector<std::string>());
    PrivateNames names;
    names.users = {"alice"};
    for (const char* host : {"node-a.cluster.org", "node-b.cluster.org"}) names.AddHost(host);
    const fs::path file = outside_.path() / "frozen.sparfuse";
    const Export made(store_, rows, names);
    EXPECT_EQ(made.summary().left_out, std::vector<std::string>());
    made.Write(kWrittenBy, file);
    return file;
  }

 private:
  void Add(const StoreLock& lock, int block, const std::string& status) {
    json trial = AddTrial(store_, lock, block, status);
    const fs::path directory = store_.Directory(trial["trial_id"]);
    const std::string id = trial["trial_id"];
    trial["started_utc"] = "2026-11-24T01:00:0" + std::to_string(block) + ".000Z";
    trial["system"] = {{"cpu_model", "Processor 1"},
                       {"cores", 4},
                       {"memory_gib", 16},
                       {"gpus", {"Card 9000", "Card 9000"}},
                       {"kernel", "Linux 6.1"}};
    if (block == 0) trial["system"] = {{"nodes", json::array({NodeOfCores(4), NodeOfCores(8)})}};
    trial["system_hash"] = ContentHash(trial["system"]);
    trial["machine"] = MachineJson();
    trial["origin"] = "0a1b2c3d";
    trial["launch"] = LaunchOfTwoHosts(id + ".1");
    trial["launch"]["nodes"] = json::array({NodeOfCores(4)});
    trial["launch"]["nodes"][0]["count"] = 2;
    if (block == 0) {
      trial["launch"]["nodes"] = json::array({NodeOfCores(4), NodeOfCores(8)});
      for (json& node : trial["launch"]["nodes"]) node["count"] = 1;
    }
    trial["environment"] = {
        {"OMP_NUM_THREADS", "1"}, {"NCCL_ALGO", "Ring"}, {"HOME", "/users/alice"}};
    trial["software"] = {{"compiler", "g++ 12.2.0"}, {"cuda_build", "12.2"}};
    trial["source"] = {{"commit", std::string(40, 'c')}, {"dirty", false}};
    trial["sources"] = {{"method:wfbp", "0123456789ab"}};
    Quiet quiet;
    quiet.limits.emplace();
    quiet.other_cpu = 0.01;
    quiet.load = {0.5, 0.25};
    quiet.why = "alice's shell on node-a";
    trial["quiet"] = ToJson(std::optional(quiet));
    if (block == 0) trial["fingerprint"] = FingerprintJson();
    if (status == "ok") AddSeries(directory, trial);
    json config = trial["config"];
    config["trial_id"] = id;
    config["block"] = block;
    config["seed"] = block + 1;
    const json outcome = {{"status", status},
                          {"machine", MachineJson()},
                          {"plan", "1,1"},
                          {"plans", {{{"step", 0}, {"unit_sizes", "1,1"}}}},
                          {"turn_seconds", 2.0},
                          {"metrics", trial["metrics"]},
                          {"checks", trial["checks"]},
                          {"software", trial["software"]},
                          {"quiet", trial["quiet"]}};
    PrivateFacts facts;
    facts.hosts = {"node-a.cluster.org", "node-b.cluster.org"};
    facts.cards = {{"0", {"GPU-1", "0000:17:00.0"}}};
    facts.buses = {"0000:17:00.0"};
    facts.users = {"alice"};
    facts.failure = "rank 1 on node-a";
    WritePrivateFacts(directory, facts);
    WriteFileDurably(directory / "config.json", WrittenJson(config));
    WriteFileDurably(directory / "outcome.json", WrittenJson(outcome));
    WriteFileDurably(directory / "trial.json", WrittenJson(trial));
    ids_.push_back(id);
  }

  static void AddSeries(const fs::path& directory, json& trial) {
    StepLog log(2);
    for (int rank = 0; rank < 2; ++rank) {
      for (int step = 0; step < 3; ++step) {
        LoggedStep logged{step, step > 0, 0.5 + 0.25 * trial["block"].get<int>(), {}, step};
        logged.record.step_seconds = 0.25 * (step + 1) + 0.125 * rank;
        logged.record.payload_bytes = 1024;
        log[static_cast<std::size_t>(rank)].push_back(logged);
      }
    }
    StepLogContext context;
    context.dense_elements = 2048;
    context.units_per_step = 64;
    context.unit = "images";
    trial["metrics"] = ToJson(MetricsOf(log, context));
    trial["rounds"] = RoundSeconds(log);
    SeriesByFile series;
    WriteSteps(directory, log, context, series);
    WriteSpans(
        directory,
        std::vector<TracedStep>{{2, {{Span{SpanKind::kForward, "compute", "conv", 0, 0.25, 0}}}}},
        series);
    NpyTable evaluations("every evaluation");
    evaluations.AddColumn("step", "", std::vector<std::int64_t>{1, 2});
    evaluations.AddColumn("metric", "accuracy", std::vector<double>{0.5, 0.75});
    evaluations.Write(directory / "evaluations.npy");
    series["evaluations.npy"] = SeriesOf(evaluations);
    trial["series"] = ToJson(series);
  }

  void AddImportedOne(const StoreLock& lock) {
    json trial = AddTrial(store_, lock, 0);
    const fs::path directory = store_.Directory(trial["trial_id"]);
    trial["started_utc"] = "2026-11-24T01:30:00.000Z";
    trial["config"] = {{"kind", "throughput"}, {"mode", "imported"}, {"method", "wfbp"},
                       {"workload", "w"},      {"workers", 16},      {"metric", "throughput"}};
    trial["config_hash"] = ConfigHash(trial["config"]);
    trial["origin"] = "0a1b2c3d";
    trial["system"] = {{"kind", "imported"},
                       {"name", "doe-lab"},
                       {"source", "Doe et al., https://alice:pass@example.org/p?q=1"}};
    trial["system_hash"] = ContentHash(trial["system"]);
    trial["imported"] = {
        {"file", "theirs.csv"}, {"sha256", std::string(64, 'f')}, {"stated", "900"}};
    trial["metrics"] = {{"throughput", {{"value", 900}, {"unit", "images/s"}}}};
    json config = trial["config"];
    config["trial_id"] = trial["trial_id"];
    WriteFileDurably(directory / "config.json", WrittenJson(config));
    WriteFileDurably(directory / "trial.json", WrittenJson(trial));
  }

  const TemporaryFolder folder_, outside_;
  const Store store_;
  std::vector<std::string> ids_;
};

TEST(Frozen, TodaysBundleIsThatOfItsVersion) {
  const fs::path frozen = testing::SourceDirectory() / "tests/harness/bundle/frozen" /
                          ("v" + std::to_string(kBundleVersion) + ".sparfuse");
  const std::string bytes = ReadFile(FrozenStore().Bundled());
  if (std::getenv("SPARFUSE_FREEZE") != nullptr) std::ofstream(frozen, std::ios::binary) << bytes;
  ASSERT_TRUE(SomethingIsAt(frozen)) << frozen;
  const Verification verification = Verify(Bundle(frozen));
  EXPECT_EQ(verification.problems, std::vector<std::string>());
  EXPECT_TRUE(bytes == ReadFile(frozen))
      << "what `export` writes is another: raise kBundleVersion and kRedaction where a bundle of "
         "this version has left; else SPARFUSE_FREEZE=1 freezes it again";
  for (const char* key : {"fingerprint", "\"network\"", "\"imported\"", "NCCL_ALGO", "topology"})
    EXPECT_SAYS(bytes, key) << key;
  for (const char* secret : {"alice", "node-a", "node-b", "GPU-1", "0000:17", "pass@"})
    EXPECT_EQ(bytes.find(secret), std::string::npos) << secret;
}

}  // namespace
}  // namespace sparfuse::harness
