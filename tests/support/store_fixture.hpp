// Puts finished trials into a store, for tests.
#pragma once

#include <string>

#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// A finished trial in `store`, as the runner writes it.
inline nlohmann::json AddTrial(const Store& store, const StoreLock& lock, int block,
                               const std::string& status = "ok") {
  using nlohmann::json;
  const json config = {{"kind", "throughput"}, {"mode", "measured"}, {"method", "wfbp"},
                       {"workload", "w"},      {"workers", 2},       {"density", 0.01},
                       {"sparsifier", "topk"}, {"link", nullptr}};
  json trial = {{"schema", kTrialSchema},
                {"experiment", "e"},
                {"part", "p"},
                {"status", status},
                {"config", config}};
  trial["trial_id"] = store.CreateTrial(lock, "e", "p", "wfbp-b" + std::to_string(block));
  trial["config_hash"] = ConfigHash(config);
  trial["system"] = {
      {"cores", 2}, {"cpu_model", "made up"}, {"gpus", json::array()}, {"memory_gib", 8}};
  trial["system_hash"] = ContentHash(trial["system"]);
  trial["failure"] = status == "ok" ? json() : json{{"kind", "comm"}};
  trial["metrics"] = {{"step_seconds", {{"value", 0.5 + block}, {"unit", "s"}}}};
  trial["checks"] = {{"replicas_equal", true}};
  trial["revisions"] = {{"method:wfbp", 1}};
  trial["block"] = block;
  trial["seed"] = block + 1;
  trial["started_utc"] = UtcNow();
  trial["seconds"] = 3.5;
  store.Finish(lock, TrialOf(trial));
  return trial;
}

}  // namespace sparfuse::harness
