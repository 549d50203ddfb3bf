// Feeds arbitrary text to the reader of experiment files. An accepted file has cells, and each cell
// comes back from its stored JSON.
#include "harness/experiment/experiment.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/tree/source_directory.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  static const Catalog catalog = BuiltInCatalog();
  static const std::filesystem::path results = sparfuse::testing::SourceDirectory() / "results";
  Experiment experiment;
  const auto read = [&] {
    const TomlFile file = TomlFile::Parse(fuzz::Text(data, size), "fuzz.toml");
    experiment = ParseExperiment(file, catalog, results / "profiles", results / "published");
  };
  // A file that the experiment names may be damaged.
  if (!fuzz::Accepts(read, FailureKind::kConfig, FailureKind::kData)) return 0;
  fuzz::Require(experiment.cells() > 0, "cells");
  for (const Part& part : PartsWithTwins(experiment)) {
    fuzz::Require(part.blocks >= 1 && part.timeout_seconds > 0 && part.base_seed >= 0, "repeat");
    for (const Cell& cell : part.cells) {
      fuzz::Require(CellConfigOf(ToJson(cell.config)) == cell.config, "the cell as it is stored");
      fuzz::Require(cell.config.workers >= 1 && cell.config.steps >= 1, "ranks and steps");
    }
  }
  return 0;
}
