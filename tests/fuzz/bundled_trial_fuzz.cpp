// Feeds arbitrary JSON as a trial to what makes trials of bundles: what leaves is a trial, leaves
// again with the same bytes, and makes a table. The same bytes are the header and rows of a series.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/bundle/bundle.hpp"
#include "harness/bundle/bundle_table.hpp"
#include "harness/bundle/bundled_trial.hpp"
#include "harness/bundle/recomputed.hpp"
#include "harness/bundle/series_file.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

// What is no series is named; of what is one, every number is there.
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
    trial.trial = {{"status", "ok"},
                   {"config", nlohmann::json::object()},
                   {"metrics", {{"step_seconds", {{"value", 1}}}}}};
    trial.files["steps.npy"] = bytes;
    RecomputeMetrics(trial);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  const std::string text(fuzz::Text(data, size));
  ReadAsSeries(text);
  const PrivateNames names = {{"node7"}, {"alice"}};
  Redactions met;
  BundledTrial once, twice;
  const auto bundle = [&] {
    once = BundleFiles({{"trial.json", text}, {"config.json", text}, {"outcome.json", text}},
                       "trial", names, met);
  };
  if (!fuzz::Accepts(bundle, FailureKind::kData)) return 0;
  const bool again =
      fuzz::Accepts([&] { twice = BundleFiles(once.files, "trial", {}, met); }, FailureKind::kData);
  fuzz::Require(again && twice.id == once.id && twice.files == once.files,
                "what leaves once leaves again with the same bytes");
  const nlohmann::json table = TableOfTrials({RowOf(once.trial)}, kBundleVersion);
  fuzz::Require(table.size() == 1 && FirstDifference(table, table).empty(),
                "a table equals itself");
  return 0;
}
