// Feeds arbitrary JSON to what reads a trial.json: the store's check, the index, the configuration,
// and the judgement of an outcome.
#include <nlohmann/json.hpp>

#include "harness/files/durable_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/run/live/outcome.hpp"
#include "harness/store/index.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  nlohmann::json trial;
  if (!fuzz::Accepts([&] { trial = ParseJson(fuzz::Text(data, size), "trial.json"); },
                     FailureKind::kData))
    return 0;
  fuzz::Accepts([&] { TrialConfigOf(trial); }, FailureKind::kData, FailureKind::kConfig);
  const nlohmann::json judged = JudgeOutcome(trial);
  fuzz::Require(judged["status"].is_string(), "a judged outcome has a status");
  if (IsOlderTrial(trial) || !WhatIsWrongWithTrial(trial).empty()) return 0;
  Index index = Index::OpenToWrite(":memory:");
  if (!fuzz::Accepts([&] { index.AddTrial(trial); }, FailureKind::kData)) return 0;
  const auto rows = index.Rows();
  fuzz::Require(rows.size() == 1 && rows[0].config == trial["config"], "the row that was added");
  return 0;
}
