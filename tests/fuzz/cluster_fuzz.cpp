// Feeds arbitrary text to the reader of declared clusters, and makes a profile of accepted ones.
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/tree/source_directory.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  static const std::filesystem::path profiles =
      sparfuse::testing::SourceDirectory() / "results/profiles";
  DeclaredCluster cluster;
  const auto read = [&] {
    cluster = ParseDeclaredCluster(TomlFile::Parse(fuzz::Text(data, size), "fuzz.toml"), profiles);
  };
  if (!fuzz::Accepts(read, FailureKind::kConfig)) return 0;
  fuzz::Require(cluster.ranks() >= 1, "devices");
  for (const ComputeTime& time : cluster.compute) {
    CellConfig config;
    config.workload = time.workload;
    config.batch_per_worker = time.batch_per_worker;
    fuzz::Accepts([&] { DeclaredProfile(cluster, config); }, FailureKind::kConfig);
  }
  for (const ReferenceStep& step : cluster.references)
    fuzz::Accepts([&] { RateConflict(cluster, step); }, FailureKind::kConfig);
  return 0;
}
