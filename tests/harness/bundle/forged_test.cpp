// Tests that a forged bundle whose hashes all agree is refused, whichever key of a trial or number
// of its series was changed. `verify` names the values that nothing in a bundle contradicts.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "core/base/error.hpp"
#include "harness/files/npy.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "tests/harness/bundle/computer.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kWorkload = "lstm-small";

// The record of two ranks, each on a node of its own.
json LaunchJson(const std::string& id) {
  const json node = {{"cpu_model", "made up"}, {"cores", 2}, {"memory_gib", 8},
                     {"gpus", json::array()},  {"count", 2}, {"network", json::array()}};
  return {{"id", id},
          {"trials", 1},
          {"start_seconds", 1.5},
          {"nodes", {node}},
          {"binding",
           {{"hosts", {"host0", "host1"}},
            {"cores", {"0-1", "0-1"}},
            {"numa", {"0", "0"}},
            {"card", {nullptr, nullptr}},
            {"interface", {"interface0", "interface0"}}}},
          {"network",
           {{"interface", "interface0"},
            {"hosts", {"host0", "host1"}},
            {"bytes", {{{"interface0", {{"received", 100}, {"sent", 200}}}}, json::object()}},
            {"others", {json::array(), json::array()}}}},
          {"clocks",
           {{"hosts", {"host0", "host1"}},
            {"offset_seconds", {0.0, 1e-3}},
            {"drift_ppm", {0.0, 0.5}},
            {"drift_uncertainty_ppm", {0.0, 0.125}},
            {"uncertainty_seconds", {0.0, 1e-5}}}}};
}

json QuietJson() {
  Quiet read;
  read.other_cpu = 0.2;
  read.stolen = 0.0;
  read.resolution = 0.01;
  read.seconds = 0.6;
  read.cores = 2;
  read.loop_seconds = {1e-3, 1e-3, 1.1e-3, 1e-3};
  return ToJson(std::optional(JudgeQuiet(read, {}, std::nullopt)));
}

json EmulatedConfig() {
  const workloads::WorkloadDescriptor& workload = workloads::FindWorkload(kWorkload);
  return {{"kind", "convergence"},
          {"mode", "emulated"},
          {"evaluate_every", 1},
          {"method", "wfbp"},
          {"workload", workload.name},
          {"workers", 2},
          {"ranks_per_node", 1},
          {"batch_per_worker", 32},
          {"accumulation", 1},
          {"steps", 2},
          {"warmup_steps", 0},
          {"density", 0.01},
          {"sparsifier", "topk"},
          {"sparsifier_options", json::object()},
          {"device", "cpu"},
          {"target", 0.8},
          {"link", {{"gbps", 1.0}, {"alpha_us", 100.0}}},
          {"dense_tensors", {{"max_ndim", 0}, {"names", json::array()}}},
          {"feedback", "residual"},
          {"method_options",
           {{"strategy", "ahead"},
            {"strategy_options", json::object()},
            {"planner", "layer-wise"},
            {"planner_options", json::object()},
            {"collective", "sparse-allgather"},
            {"collective_options", json::object()},
            {"bloom_fpr", 0.0},
            {"bloom_policy", "leftmost"},
            {"dense_fallback", false},
            {"dense_warmup_steps", 0},
            {"payload_dense", "indexed"},
            {"payload_indices", "u32"},
            {"payload_values", "f32"},
            {"replan_every", 0},
            {"threshold_period", 1}}}};
}

void WriteEvaluations(const fs::path& directory, json& trial) {
  const std::string unit = workloads::FindWorkload(kWorkload).metric;
  NpyTable evaluations("every evaluation");
  evaluations.AddColumn("step", "", std::vector<std::int64_t>{1, 2});
  evaluations.AddColumn("epoch", "epochs", std::vector<double>{0.5, 1});
  evaluations.AddColumn("samples", "samples", std::vector<std::int64_t>{32, 64});
  evaluations.AddColumn("seconds", "seconds", std::vector<double>{0.2, 0.2 + 0.4});
  evaluations.AddColumn("seconds_with_evaluation", "seconds", std::vector<double>{0.45, 1.1});
  evaluations.AddColumn("learning_rate", "", std::vector<double>{0.1, 0.01});
  evaluations.AddColumn("metric", unit, std::vector<double>{0.9, 0.75});
  evaluations.AddColumn("loss", "nats", std::vector<double>{2, 1});
  evaluations.Write(directory / "evaluations.npy");
  trial["series"]["evaluations.npy"] = ToJson(SeriesByFile{{"e", SeriesOf(evaluations)}}).at("e");
  for (const auto& [name, value, of] : {std::tuple("final_metric", 0.75, unit.c_str()),
                                        {"final_loss", 1, "nats"},
                                        {"steps_to_target", 2, "steps"},
                                        {"seconds_to_target", 0.2 + 0.4, "seconds"},
                                        {"seconds_to_target_with_evaluation", 1.1, "seconds"},
                                        {"epochs_to_target", 1, "epochs"},
                                        {"samples_to_target", 64, "samples"}})
    trial["metrics"][name] = {{"value", value}, {"unit", of}};
}

void WriteTwoSpans(const fs::path& directory, double elements, json& trial) {
  TracedStep traced{1, {{}, {}}};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const double forward = (0.4 - 0.05 * static_cast<double>(rank)) / 4;
    traced.by_rank[rank] = {{SpanKind::kForward, "compute", "", 0, forward, 0},
                            {SpanKind::kExchange, "data", "unit", 0.2, 0.3,
                             8 * static_cast<std::uint64_t>(elements / 100)}};
  }
  SeriesByFile series;
  WriteSpans(directory, std::array{traced}, series);
  trial["series"]["spans.npy"] = ToJson(series).at("spans.npy");
}

// A finished trial with all records that can be checked against something.
void WriteEverything(const fs::path& directory, json& trial) {
  const workloads::WorkloadDescriptor& workload = workloads::FindWorkload(kWorkload);
  const workloads::LayerTable& layers = workloads::LayersOf(kWorkload);
  WriteTwoStepsOf(static_cast<double>(layers.numel()), directory, trial);
  trial["config"] = EmulatedConfig();
  trial["config_hash"] = ConfigHash(trial["config"]);
  const double units = 2.0 * 32 * static_cast<double>(workload.units_per_sample);
  trial["metrics"]["throughput"] = {
      {"value", units / trial["metrics"]["step_seconds"]["value"].get<double>()},
      {"unit", workload.unit + "/s"}};
  std::string sizes;
  for (const workloads::LayerTensor& tensor : layers.tensors) {
    trial["layout"].push_back({{"name", tensor.name},
                               {"shape", tensor.shape},
                               {"numel", tensor.numel},
                               {"dense", false}});
    sizes += sizes.empty() ? "1" : ",1";
  }
  WriteEvaluations(directory, trial);
  WriteTwoSpans(directory, static_cast<double>(layers.numel()), trial);
  trial["metrics"]["imbalance"] = {{"value", 1.5}, {"unit", ""}};
  trial["checks"] = {{"loss_finite", true}, {"replicas_equal", true}};
  trial["revisions"] = {{"method:wfbp", 1},
                        {"strategy:ahead", 1},
                        {"planner:layer-wise", 1},
                        {"collective:sparse-allgather", 1},
                        {"sparsifier:topk", 1},
                        {"engine:live", 2},
                        {"workload:" + workload.name, workload.revision}};
  for (const auto& [part, revision] : trial["revisions"].items())
    trial["sources"][part] = "0123456789ab";
  trial["source"] = {{"commit", std::string(40, 'c')}, {"dirty", false}};
  trial["software"] = {{"compiler", "g++ 12.2.0"}, {"cuda_build", ""}, {"container", "unknown"}};
  trial["environment"] = {{"OMP_NUM_THREADS", "1"}};
  trial["machine"] = {{"placement", {"host0", "host1"}},
                      {"communication_threads", "real time"},
                      {"cores", 2},
                      {"cuda_devices", 0},
                      {"kernels", "avx2"}};
  trial["quiet"] = QuietJson();
  trial["launch"] = LaunchJson(trial["trial_id"].get<std::string>() + ".1");
  json node = trial["launch"]["nodes"][0];
  node.erase("count");
  trial["system"] = {{"nodes", {node}}};
  trial["system_hash"] = ContentHash(trial["system"]);
  trial["seconds"] = 2.25 + 1.5;
  json outcome = OutcomeOfTrial(trial);
  for (const char* judged : {"limits", "slowdown", "disturbed", "causes", "why"})
    outcome["quiet"].erase(judged);
  outcome["turn_seconds"] = 2.25;
  outcome["plan"] = sizes;
  outcome["plans"] = {{{"step", 0}, {"unit_sizes", sizes}}};
  outcome["selection_counters"] = {{"selections", 22}};
  WriteFileDurably(directory / "outcome.json", WrittenJson(outcome));
}

// Replaces a number of a series by another one.
void ForgeSeries(std::string& bytes, const SeriesHeader& header, const SeriesColumn& column,
                 std::uint64_t row, std::optional<double> value = {}) {
  char* at = bytes.data() + header.begin + row * header.row_bytes + column.offset;
  if (column.type == "|b1") {
    *at = static_cast<char>(*at == 0);
  } else if (column.type == "<i8") {
    const std::int64_t other = static_cast<std::int64_t>(NumberIn(bytes, header, column, row)) + 7;
    std::memcpy(at, &other, 8);
  } else {
    const double other = value.value_or(1.25 * NumberIn(bytes, header, column, row) + 0.125);
    std::memcpy(at, &other, 8);
  }
}

// A bundle of one trial, and the fate of its forged versions.
class Forger {
 public:
  Forger() {
    a_.Run(0, 1.5, WriteEverything);
    const fs::path file = a_.Bundled();
    ExpectGood(file);
    const Bundle bundle(file);
    id_ = bundle.content().trials.begin()->first;
    good_ = bundle.Trial(id_);
    bundle_ = file;
  }

  const BundledTrial& good() const { return good_; }

  // The trial with another value of a key in those of trial.json, config.json and outcome.json that
  // have it. Its hashes, and for a configuration its name, are made again. Keys of outcome.json
  // alone begin with "outcome.json".
  BundledTrial With(const json::json_pointer& at, const std::function<void(json&)>& forge) const {
    BundledTrial forged = good_;
    const auto edit = [&](const char* file, const json::json_pointer& pointer) {
      json record = json::parse(forged.files.at(file));
      if (record.contains(pointer)) forge(record[pointer]);
      return record;
    };
    if (at.to_string().starts_with(kOfOutcome)) {
      forged.files["outcome.json"] = WrittenJson(
          edit("outcome.json", json::json_pointer(at.to_string().substr(std::strlen(kOfOutcome)))));
      return forged;
    }
    json trial = edit("trial.json", at);
    if (trial.at("config").is_object()) trial["config_hash"] = ConfigHash(trial["config"]);
    if (trial.contains("system") && trial["system"].is_object())
      trial["system_hash"] = ContentHash(trial["system"]);
    forged.files["outcome.json"] = WrittenJson(edit("outcome.json", at));
    json config = json::parse(forged.files["config.json"]);
    for (const auto& [key, value] : trial["config"].items()) config[key] = value;
    for (const char* key : {"block", "seed"}) {
      if (config.contains(key)) config[key] = trial[key];
    }
    if (at.to_string().starts_with("/config/")) {
      const std::string cell = fmt::format(
          "e/p/{}-{}-w{}-{:.8}", trial["config"]["method"].get<std::string>(),
          trial["config"]["workload"].get<std::string>(), trial["config"]["workers"].get<int>(),
          trial["config_hash"].get<std::string>());
      trial["trial_id"] = config["trial_id"] =
          fmt::format("{}-{}-b0-1", cell, trial["origin"].get<std::string>());
    }
    forged.files["config.json"] = WrittenJson(config);
    forged.files["trial.json"] = WrittenJson(trial);
    return forged;
  }

  // A bundle of this trial, under the name that config.json gives it.
  fs::path Written(const BundledTrial& forged) const {
    return Forged(bundle_, json::parse(forged.files.at("config.json"))["trial_id"], forged);
  }

  // Whether `verify` and `merge` refuse the trial. A value that they accept must be named as not
  // checked.
  // what: "metrics.loss.value" or "steps.npy: loss".
  bool IsRefused(const std::string& what, const BundledTrial& forged) {
    const fs::path with = Written(forged);
    const Verification verified = Verify(Bundle(with));
    if (!verified.problems.empty()) {
      // A merge syncs files to disk, which is slow: only one of many runs.
      if (refused_++ % 32 == 0) {
        const MergeSummary merged = b_.Take(with);
        EXPECT_TRUE(merged.added.empty());
        EXPECT_SAYS(merged.refused.front(), "e/p/");
      }
      return true;
    }
    const std::string said = fmt::format("{}", fmt::join(WhatIsNotChecked(verified), "; "));
    const bool is_counted = std::ranges::any_of(verified.unchecked, [&](const auto& counted) {
      const std::string& fact = counted.first.second;
      return what.find("." + fact) != std::string::npos || what.starts_with(fact);
    });
    const bool is_column = verified.unchecked_columns.contains(what) &&
                           said.find(what.substr(what.find(": ") + 2)) < said.size();
    const auto keys = KeysThatNothingTells();
    const auto named = std::ranges::find_if(
        keys, [&](const std::string& key) { return what == key || what.starts_with(key + "."); });
    if (named != keys.end()) met_.insert(*named);
    EXPECT_TRUE(is_counted || is_column || named != keys.end()) << what << " is not checked";
    return false;
  }

  // The keys of KeysThatNothingTells that were forged without notice.
  const std::set<std::string>& met() const { return met_; }

  static constexpr const char* kOfOutcome = "/outcome.json";

 private:
  Computer a_{2, "0a1b2c3d"}, b_{2};
  fs::path bundle_;
  std::string id_;
  BundledTrial good_;
  std::set<std::string> met_;
  std::size_t refused_ = 0;
};

// The name of a pointer, such as "metrics.loss.value".
std::string Dotted(const json::json_pointer& pointer) {
  std::string text = pointer.to_string().substr(1);
  std::ranges::replace(text, '/', '.');
  return text;
}

// Replaces the value by another of the same type.
void Forge(json& value) {
  if (value.is_boolean()) {
    value = !value.get<bool>();
  } else if (value.is_number_integer()) {
    value = value.get<std::int64_t>() + 1;
  } else if (value.is_number()) {
    value = 1.25 * value.get<double>() + 0.125;
  } else if (value.is_string() && IsUtcTime(value.get<std::string>())) {
    value = "2030-01-01T00:00:00.000Z";
  } else if (value.is_string()) {
    const std::string text = value;
    const bool is_hash =
        text.size() >= 8 && text.find_first_not_of("0123456789abcdef") == text.npos;
    value = is_hash ? text.substr(1) + text.substr(0, 1) : text + "x";
  } else {
    value = 1;  // null, or an empty value
  }
}

// Forges every key of a trial's records, found by walking them.
TEST(Forged, EveryKeyIsRefusedCountedOrNamed) {
  Forger forger;
  json records = json::parse(forger.good().files.at("trial.json"));
  records["outcome.json"] = json::parse(forger.good().files.at("outcome.json"));
  const json outcome = records["outcome.json"];
  for (const auto& [key, value] : outcome.items()) {
    if (records.contains(key) && key != "outcome.json") records["outcome.json"].erase(key);
  }
  const json flat = records.flatten();
  ASSERT_GT(flat.size(), 200u);
  std::size_t refused = 0;
  for (const auto& [name, leaf] : flat.items()) {
    if (name == "/config_hash" || name == "/system_hash") continue;  // made again
    const json::json_pointer pointer(name);
    refused += forger.IsRefused(Dotted(pointer), forger.With(pointer, Forge));
  }
  EXPECT_GT(refused, 150u);
  // The list must not name checked keys either. The hosts of this trial are several.
  for (const std::string& key : KeysThatNothingTells()) {
    const bool is_of_one_host = key.starts_with("system.") || key.starts_with("launch.nodes.");
    const bool is_of_profiles = key == "outcome.json.profile";
    EXPECT_TRUE(key.starts_with("config.") || is_of_one_host || is_of_profiles ||
                forger.met().contains(key))
        << key;
  }
}

// Forges a number of each column, in the first and last row: another number, NaN, and a negative
// one.
TEST(Forged, EveryNumberOfASeriesIsRefusedOrCounted) {
  Forger forger;
  std::size_t refused = 0, counted = 0;
  for (const char* series : {"steps.npy", "evaluations.npy", "spans.npy"}) {
    SeriesHeader header;
    ASSERT_EQ(WhatIsWrongWithSeries(series, forger.good().files.at(series), &header), "");
    for (const SeriesColumn& column : header.columns) {
      if (column.type.starts_with("<U")) continue;
      for (const std::uint64_t row : {std::uint64_t{0}, header.rows - 1}) {
        for (const std::optional<double> value :
             {std::optional<double>(), std::optional(std::nan("")), std::optional(-1.0)}) {
          if (value && column.type != "<f8") continue;
          BundledTrial forged = forger.good();
          ForgeSeries(forged.files.at(series), header, column, row, value);
          if (forged.files.at(series) == forger.good().files.at(series)) continue;
          const bool is_refused =
              forger.IsRefused(fmt::format("{}: {}", series, column.name), forged);
          (is_refused ? refused : counted)++;
        }
      }
    }
  }
  EXPECT_GT(refused, 60u);
  EXPECT_GE(counted, 3u);
}

// With and without the file's entry in the trial's list.
TEST(Forged, AFileThatIsTakenOutIsMissed) {
  const Forger forger;
  for (const std::string file : {"steps.npy", "evaluations.npy", "outcome.json"}) {
    for (const bool is_listed : {true, false}) {
      BundledTrial without = forger.good();
      without.files.erase(file);
      json trial = json::parse(without.files.at("trial.json"));
      if (!is_listed) {
        trial["series"].erase(file);
        std::erase_if(trial["files"].get_ref<json::array_t&>(),
                      [&](const json& each) { return each == file; });
        if (const auto outcome = without.files.find("outcome.json"); outcome != without.files.end())
          outcome->second = WrittenJson(OutcomeOfTrial(trial));
      }
      without.files["trial.json"] = WrittenJson(trial);
      const Verification verified = Verify(Bundle(forger.Written(without)));
      const bool is_counted = verified.without_steps == 1 ||
                              verified.unchecked.contains({"no series has it", "final_metric"});
      EXPECT_TRUE(!verified.problems.empty() || (!is_listed && is_counted)) << file;
    }
  }
}

// Prepared data have a vocabulary of their own, the same in all tensors. Other data have the
// catalogue's.
TEST(Forged, AVocabularyIsThatOfTheData) {
  const workloads::WorkloadDescriptor& workload = workloads::FindWorkload(kWorkload);
  const std::int64_t vocabulary = workloads::LayersOf(kWorkload).tensors.back().shape[0];
  for (const bool prepared : {true, false}) {
    for (const bool two : {false, true}) {
      Trial trial;
      trial.config = {{"workload", kWorkload},
                      {"kind", "convergence"},
                      {"mode", "measured"},
                      {"data", prepared ? "mine" : ""}};
      trial.revisions["workload:" + workload.name] = workload.revision;
      std::int64_t other = 10'000;
      int replaced = 0;
      for (const workloads::LayerTensor& tensor : workloads::LayersOf(kWorkload).tensors) {
        LayoutTensor& made = trial.layout.emplace_back();
        made.name = tensor.name;
        made.shape = tensor.shape;
        for (std::int64_t& extent : made.shape) {
          if (extent != vocabulary) continue;
          extent = two ? other++ : other;
          ++replaced;
        }
      }
      ASSERT_GE(replaced, 2);
      EXPECT_EQ(WhatRecordContradicts(trial, {}).starts_with("layout."), !prepared || two);
    }
  }
}

// Copies of a trial would make an interval too narrow.
TEST(Forged, OneTrialIsNotTwo) {
  Computer a(2);
  for (int block = 0; block < 2; ++block) {
    a.Run(block, 1.5, [](const fs::path& directory, json& trial) {
      const json id = std::exchange(trial["trial_id"], "e/p/of-both");
      WriteEverything(directory, trial);
      trial["trial_id"] = id;
    });
  }
  const Verification verified = Verify(Bundle(a.Bundled()));
  ASSERT_EQ(verified.refused.size(), 1u);
  EXPECT_SAYS(verified.refused.begin()->second, "to the last bit");
}

// Of two trials that began together, one states another start.
TEST(Forged, TrialsOfOneLaunchSayTheSameOfIt) {
  for (const bool is_forged : {false, true}) {
    Computer a(2);
    for (int block = 0; block < 2; ++block) {
      a.Run(block, 1.5, [&](const fs::path& directory, json& trial) {
        WriteEverything(directory, trial);
        trial["launch"] = LaunchJson("e/p/wfbp.1");
        trial["launch"]["trials"] = 2;
        trial["seconds"] = 2.25 + 1.5 / 2;
        trial["started_utc"] =
            is_forged && block == 1 ? "2026-11-24T03:00:00.000Z" : "2026-11-24T01:00:00.000Z";
      });
    }
    const Verification verified = Verify(Bundle(a.Bundled()));
    ASSERT_EQ(verified.refused.size(), is_forged ? 1u : 0u);
    if (is_forged) {
      EXPECT_SAYS(verified.refused.begin()->second, "of the same launch began at");
    }
  }
}

// Forges numbers of a trial's metrics and series, whatever hashes agree.
TEST(Forged, NothingThatVerifyRefusesIsMerged) {
  Computer a(2, "0a1b2c3d");
  a.Run(0, 1.5, WriteEverything);
  const fs::path file = a.Bundled();
  ExpectGood(file);
  Computer b(2);
  const auto refused = [&](const std::string& name, const fs::path& forged, const char* said) {
    const MergeSummary summary = b.Take(forged);
    EXPECT_TRUE(summary.added.empty()) << name;
    ASSERT_EQ(summary.refused.size(), 1u) << name;
    EXPECT_NE(summary.refused[0].find(said), std::string::npos)
        << name << ": " << summary.refused[0];
  };
  for (const char* metric : {"step_seconds", "payload_bytes", "final_metric", "final_loss",
                             "steps_to_target", "seconds_to_target", "loss", "other_seconds"}) {
    refused(metric, Forged(file, [&](json& trial) { trial["metrics"][metric]["value"] = 0.123; }),
            metric);
  }
  const Bundle bundle(file);
  const std::string id = bundle.content().trials.begin()->first;
  for (const char* column : {"step_seconds", "payload_bytes", "loss"}) {
    BundledTrial trial = bundle.Trial(id);
    std::string& bytes = trial.files.at("steps.npy");
    const std::string named = fmt::format("('{}'", column);
    const std::size_t at = bytes.find(named);
    ASSERT_NE(at, std::string::npos) << column;
    bytes[at + 3] = 'x';  // another name of the same length
    refused(column, Forged(file, id, trial), column);
  }
  {
    BundledTrial trial = bundle.Trial(id);
    std::string& bytes = trial.files.at("steps.npy");
    SeriesHeader header;
    ASSERT_EQ(WhatIsWrongWithSeries("steps.npy", bytes, &header), "");
    const double nothing = std::nan("");
    std::memcpy(bytes.data() + header.begin + header.Find("step_seconds")->offset, &nothing, 8);
    refused("NaN", Forged(file, id, trial), "step_seconds = nan");
  }
  EXPECT_EQ(b.Take(file).added.size(), 1u);
}

}  // namespace
}  // namespace sparfuse::harness
