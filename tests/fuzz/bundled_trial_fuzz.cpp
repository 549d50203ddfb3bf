// Feeds arbitrary JSON as a trial to the export of bundles. An exported trial is a valid trial,
// exports again to the same bytes, and makes a table. The same bytes also serve as the header and
// rows of a series.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/bundle/bundle.hpp"
#include "harness/bundle/bundled_trial.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

// An invalid series gets an error; every number of a valid one can be read.
void ReadAsSeries(const std::string& text) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  const std::size_t end = text.find('\n');
  const std::size_t length =
      std::min<std::size_t>(end == std::string::npos ? text.size() : end + 1, 65'535);
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(length % 256);
  bytes += static_cast<char>(length / 256);
  bytes += text;
  for (const std::string& name : SeriesFiles()) {
    SeriesHeader header;
    if (!WhatIsWrongWithSeries(name, bytes, &header).empty()) continue;
    fuzz::Require(header.begin + header.rows * header.row_bytes == bytes.size(),
                  "rows fill the file");
    for (const SeriesColumn& column : header.columns) {
      if (header.rows > 0 && !column.type.starts_with("<U"))
        NumberIn(bytes, header, column, header.rows - 1);
    }
    BundledTrial trial;
    for (const char* metric : {"step_seconds", "throughput", "final_metric", "steps_to_target"})
      trial.trial.metrics[metric].value = 1;
    trial.files["steps.npy"] = trial.files["evaluations.npy"] = bytes;
    RecomputeMetrics(trial.trial, trial.files);
  }
}

// The files of a trial with this trial.json; the other files repeat parts of it.
std::map<std::string, std::string> FilesOf(const std::string& text) {
  const nlohmann::json trial = nlohmann::json::parse(text, nullptr, false);
  nlohmann::json config = nlohmann::json::object(), outcome = nlohmann::json::object();
  if (trial.is_object() && trial.contains("config") && trial["config"].is_object())
    config = trial["config"];
  for (const char* key : {"trial_id", "seed", "block"}) {
    if (trial.is_object() && trial.contains(key)) config[key] = trial[key];
  }
  for (const char* key : {"status", "metrics", "checks", "machine", "software", "layout"}) {
    if (trial.is_object() && trial.contains(key)) outcome[key] = trial[key];
  }
  using sparfuse::harness::WrittenJson;
  return {{"trial.json", text},
          {"config.json", WrittenJson(config)},
          {"outcome.json", WrittenJson(outcome)}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  const std::string text(fuzz::Text(data, size));
  ReadAsSeries(text);
  const TextScrubber scrubber({{"node7"}, {"alice"}});
  BundledTrial once, twice;
  const auto bundle = [&] { once = BundleFiles(FilesOf(text), "trial", scrubber); };
  if (!fuzz::Accepts(bundle, FailureKind::kData)) return 0;
  const bool again = fuzz::Accepts(
      [&] { twice = BundleFiles(once.files, "trial", TextScrubber()); }, FailureKind::kData);
  fuzz::Require(again && twice.id() == once.id() && twice.files == once.files,
                "what leaves once leaves again with the same bytes");
  const nlohmann::json table = TableOfTrials({RowOf(once.trial)}, kBundleVersion);
  fuzz::Require(table.size() == 1 && FirstDifference(table, table).empty(),
                "a table equals itself");
  return 0;
}
