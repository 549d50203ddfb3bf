// Feeds arbitrary text to the readers of other programs' tables and logs, and of the maps that
// explain them.

#include "harness/imports/imports.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace sparfuse;
using namespace sparfuse::harness;

constexpr const char* kMap = R"(source = "s"
system = "lab"
workload = "resnet50-imagenet"
method = "dense"
workers = 8
batch_per_worker = 32
network_gbps = 10
ranks_per_node = 1
per = "worker"
unit = "img/s"
)";
constexpr const char* kLog = R"(warmup = 1
metric_unit = "%"
target = 0.5
steps_per_epoch = 7
patterns = ['(?<step>\d+) (?<seconds>[\d.]+) (?<rate>\S+)', 'e(?<epoch>\d+) (?<metric>\S+)']
)";

void Check(std::vector<ImportedResult> results, const Catalog& catalog) {
  fuzz::Require(!results.empty(), "a result, or an error");
  Doubt(results, catalog);
  for (const ImportedResult& result : results) {
    const Trial trial = TrialOf(result);
    fuzz::Require(TrialOf(ToJson(trial)) == trial, "a trial that comes back as it was written");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Catalog catalog = BuiltInCatalog();
  static const std::string base = kMap;
  static const ImportMap table =
      ParseImportMap(base + "metric = \"throughput\"\n", "m.toml", ImportForm::kTable);
  static const ImportMap log = ParseImportMap(base + kLog, "m.toml", ImportForm::kLog);
  static const ImportMap columns =
      ParseImportMap(base + "warmup = 0\n[columns]\nseconds = \"t\"\n", "m.toml", ImportForm::kLog);
  const std::string_view text = fuzz::Text(data, size);
  const auto reads = [&](const auto& read) {
    fuzz::Accepts([&] { Check(read(), catalog); }, FailureKind::kConfig);
  };
  reads([&] { return ReadResultTable(text, "f.csv", table, catalog); });
  reads([&] { return ReadTrainingLog(text, "f.log", log, catalog); });
  reads([&] { return ReadTrainingLog(text, "f.csv", columns, catalog); });
  for (const ImportForm form : {ImportForm::kTable, ImportForm::kLog})
    fuzz::Accepts([&] { ParseImportMap(text, "f.toml", form); }, FailureKind::kConfig);
  return 0;
}
