// Feeds arbitrary JSON to the readers of a trial.json: the store's check, the index, the
// configuration, and the judgement of an outcome.
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
  fuzz::Accepts(
      [&] {
        const Outcome judged = JudgeOutcome(OutcomeOf(trial));
        fuzz::Require(judged.failure.has_value() == (judged.status != TrialStatus::kOk),
                      "what is not ok says why");
      },
      FailureKind::kData);
  IsOlderTrial(trial);
  Trial read;
  if (!fuzz::Accepts([&] { read = TrialOf(trial); }, FailureKind::kData)) return 0;
  Index index = Index::OpenToWrite(":memory:");
  if (!fuzz::Accepts([&] { index.AddTrial(read); }, FailureKind::kData)) return 0;
  const auto rows = index.Rows();
  fuzz::Require(rows.size() == 1 && rows[0].config == trial["config"], "the row that was added");
  return 0;
}
