// Tests how a method that a file does not name joins its axes of methods and its figures.
#include <gtest/gtest.h>

#include "harness/experiment/cells.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

constexpr const char* kFile = R"(
id = "e"
[defaults]
mode = "modelled"
cluster = "this-machine"
workload = "digits-resnet"
[[axis]]
method = ["dense", "wfbp", "wfbp"]
method_options = [{ threshold_bytes = 1024 }, {}, {}]
workers = [2, 2, 4]
[[figure]]
kind = "grouped_bars"
x = "workers"
y = "throughput"
methods = ["wfbp"]
)";

Part Joined(const std::vector<std::string>& methods) {
  return ParseExperiment(TomlFile::Parse(kFile, "f.toml"), SmallCatalog(), "/nonexistent", {},
                         methods)
      .parts.at(0);
}

TEST(JoinedMethods, TakeEachSettingOfTheAxisOnceAndTheirOwnOptions) {
  const Part part = Joined({"syncea"});
  ASSERT_EQ(part.cells.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(part.cells[i].joined, i >= 3) << i;
  EXPECT_EQ(part.joined, std::vector<std::string>{"syncea"});
  EXPECT_EQ(part.axes[0]["method"].size(), 5u);
  EXPECT_EQ(part.axes[0]["method_options"].size(), 5u);
  EXPECT_EQ(part.axes[0]["workers"].back(), 4);
}

TEST(JoinedMethods, ThatTheAxisHasChangeNothing) {
  const Part part = Joined({"wfbp"});
  EXPECT_EQ(part.cells.size(), 3u);
  EXPECT_TRUE(part.joined.empty());
}

TEST(JoinedMethods, AreAmongThoseThatAFigureChooses) {
  EXPECT_EQ(Joined({"syncea"}).figures[0]["methods"], nlohmann::json({"wfbp", "syncea"}));
}

TEST(JoinedMethods, WithoutMeaningAreExcludedWithTheReason) {
  const Part part = Joined({"no-such-method"});
  EXPECT_EQ(part.cells.size(), 3u);
  ASSERT_EQ(part.excluded.size(), 2u);
  EXPECT_NE(part.excluded[0].reason.find("unknown method"), std::string::npos);
}

}  // namespace
}  // namespace sparfuse::harness
