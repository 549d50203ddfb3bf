// Reads the numbers that papers published: published-numbers.csv and ddl-benchmarks.csv of
// results/published. README.md there says what the columns mean and where the numbers are from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

struct PublishedNumber {
  std::string paper, artifact, workload, model, dataset, workers, network, method, sparsifier,
      density, metric, stated;  // as the file gives the value
  // `stated` as a number, of "925.020 +- 4.42" the mean; absent for "28.20-58.28" or ">80".
  std::optional<double> value;
  std::optional<double> deviation;  // what follows "+-"
  std::string unit, source, confidence;
};

// All rows in the order of the file. Throws Error{kConfig} naming file, line and column for what is
// not as expected.
std::vector<PublishedNumber> ReadPublished(const std::filesystem::path& file);
std::vector<PublishedNumber> ParsePublished(std::string_view text, const std::string& name);

// Those of every file of numbers in `folder`: published-numbers.csv, and ddl-benchmarks.csv where
// it is there. Throws as ReadPublished.
std::vector<PublishedNumber> ReadAllPublished(const std::filesystem::path& folder);

}  // namespace sparfuse::harness
