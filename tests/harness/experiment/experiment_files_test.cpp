// Tests which experiment files are found, and in which order.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "harness/experiment/experiment.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

TEST(ExperimentFiles, StandInTheOrderOfTheirNumbers) {
  const TemporaryFolder folder;
  for (const char* name : {"fig14.toml", "fig3.toml", "claims.toml", "fig3b.toml", "notes.md"}) {
    std::ofstream(folder.path() / name) << "\n";
  }
  std::vector<std::string> names;
  for (const auto& file : ExperimentFiles(folder.path())) names.push_back(file.stem());
  EXPECT_EQ(names, (std::vector<std::string>{"claims", "fig3", "fig3b", "fig14"}));
  EXPECT_TRUE(ExperimentFiles(folder.path() / "none").empty());
}

TEST(ExperimentFiles, AreNotThoseOfMethods) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "mine.toml") << "strategy = \"ahead\"\ncollective = 1\n";
  std::ofstream(folder.path() / "broken.toml") << "strategy = \n";
  std::ofstream(folder.path() / "it.toml") << "id = \"it\"\n";
  std::vector<std::string> names;
  for (const auto& file : ExperimentFiles(folder.path())) names.push_back(file.stem());
  EXPECT_EQ(names, (std::vector<std::string>{"broken", "it"}));
}

}  // namespace
}  // namespace sparfuse::harness
