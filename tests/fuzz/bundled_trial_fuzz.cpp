// Feeds arbitrary JSON as a trial to what makes trials of bundles: what leaves is a trial, leaves
// again with the same bytes, and makes a table.
#include <nlohmann/json.hpp>

#include "harness/bundle/bundle_table.hpp"
#include "harness/bundle/bundled_trial.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  const std::string text(fuzz::Text(data, size));
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
  const nlohmann::json table = TableOfTrials({RowOf(once.trial)});
  fuzz::Require(table.size() == 1 && FirstDifference(table, table).empty(),
                "a table equals itself");
  return 0;
}
