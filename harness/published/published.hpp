// Reads the numbers that papers published: results/published/published-numbers.csv. README.md there
// says what the columns mean and where the numbers are from.
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
  std::optional<double> value;  // `stated` as a number; absent for "28.20-58.28" or ">80"
  std::string unit, source, confidence;
};

// All rows in the order of the file. Throws Error{kConfig} naming file, line and column for what is
// not as expected.
std::vector<PublishedNumber> ReadPublished(const std::filesystem::path& file);
std::vector<PublishedNumber> ParsePublished(std::string_view text, const std::string& name);

}  // namespace sparfuse::harness
