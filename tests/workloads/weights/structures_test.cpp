// Maps the tensors of published files, as scripts/accuracy/library_structures.py lists them, to our
// models of the same sizes, and compares both lists both ways.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/tree/source_directory.hpp"
#include "tests/support/workload_state.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/models/description.hpp"
#include "workloads/weights/weights.hpp"

namespace sparfuse::workloads {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<StoredTensor>;

const fs::path kFolder =
    sparfuse::testing::SourceDirectory() / "tests/workloads/weights/structures";

Tensors ReadStructure(const std::string& workload) {
  std::ifstream file(kFolder / (workload + ".txt"));
  Tensors tensors;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    StoredTensor tensor{.name = {}, .type = "F32", .shape = {}, .bytes = {}};
    words >> tensor.name;
    for (std::int64_t extent = 0; words >> extent;) tensor.shape.push_back(extent);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<std::string> Published() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder))
    names.push_back(entry.path().stem().string());
  return names;
}

// BERT's files for questions have no pooler, which ours has without a gradient.
std::vector<std::string> FreshIn(const std::string& workload) {
  if (!workload.starts_with("bert")) return {};
  return {"pooler.dense.bias", "pooler.dense.weight"};
}

class Structures : public ::testing::TestWithParam<std::string> {
 protected:
  WeightMap Map(const Tensors& tensors) const {
    return MapWeights(FindWorkload(GetParam()).model, tensors);
  }
};

TEST_P(Structures, EveryParameterIsFilledOnceAndEveryTensorIsOneOrABuffer) {
  const Tensors tensors = ReadStructure(GetParam());
  const WeightMap map = Map(tensors);
  EXPECT_EQ(map.missing, std::vector<std::string>{});
  EXPECT_EQ(map.unknown, std::vector<std::string>{});
  EXPECT_EQ(map.unfit, std::vector<std::string>{});
  EXPECT_EQ(map.fresh, FreshIn(GetParam()));
  std::set<std::string> filled;
  std::size_t statistics = 0;
  for (const WeightMap::Filled& each : map.filled) {
    filled.insert(each.parameter);
    statistics += each.statistic;
  }
  const ModelDescription model = Describe(FindWorkload(GetParam()).model);
  EXPECT_EQ(filled.size(), map.filled.size());
  EXPECT_EQ(filled.size() - statistics + map.fresh.size(), model.parameters().size());
  EXPECT_EQ(statistics, 2 * model.statistics().size());
  EXPECT_EQ(map.filled.size() + map.skipped.size(), tensors.size());
  filled.insert(map.fresh.begin(), map.fresh.end());
  for (const ParameterDescription& parameter : model.parameters())
    EXPECT_TRUE(filled.contains(parameter.name)) << parameter.name;
}

TEST_P(Structures, AFileThatDiffersByOneTensorIsTold) {
  const Tensors whole = ReadStructure(GetParam());
  const std::size_t fresh = FreshIn(GetParam()).size();
  for (const WeightMap::Filled& each : Map(whole).filled) {
    SCOPED_TRACE(each.parameter);
    Tensors without = whole;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(each.tensor));
    const WeightMap less = Map(without);
    EXPECT_EQ(less.missing.size() + less.fresh.size(), fresh + 1);  // a head may start fresh

    Tensors wider = whole;
    wider[each.tensor].shape.back() += 8;
    const WeightMap other = Map(wider);
    EXPECT_EQ(other.missing.size() + other.fresh.size(), fresh + 1);
    EXPECT_TRUE(other.unfit.size() == 1 || other.fresh.size() == fresh + 1);
  }
  Tensors more = whole;
  more.push_back({.name = "adapter.weight", .type = "F32", .shape = {8, 8}, .bytes = {}});
  EXPECT_EQ(Map(more).unknown, std::vector<std::string>{"adapter.weight"});
}

INSTANTIATE_TEST_SUITE_P(Published, Structures, ::testing::ValuesIn(Published()),
                         testing::TestName);

}  // namespace
}  // namespace sparfuse::workloads
