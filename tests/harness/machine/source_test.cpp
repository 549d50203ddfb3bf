// Tests the description of a checkout: its commit, and whether sources of its programs were edited.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/machine/system.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

TEST(Source, IsDirtyByWhatProgramsAreMadeOfAlone) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  const auto git = [&](const std::string& arguments) {
    const std::string line = "git -C " + root.string() +
                             " -c user.name=a -c user.email=a@example.org " + arguments +
                             " >/dev/null 2>&1";
    return std::system(line.c_str()) == 0;
  };
  EXPECT_FALSE(DescribeSource(root.string()).dirty) << "no checkout";
  write("core/a.cpp", "int a;\n");
  write("experiments/quick.toml", "id = \"quick\"\n");
  write("results/profiles/preset.toml", "\n");
  ASSERT_TRUE(git("init -q") && git("add .") && git("commit -q -m all"));
  EXPECT_EQ(DescribeSource(root.string()).dirty, false);
  for (const char* own : {"experiments/mine.toml", "results/profiles/mine.toml", "notes.txt",
                          "results/systems/mine.toml", "experiments/quick.toml"})
    write(own, "# mine\n");
  EXPECT_EQ(DescribeSource(root.string()).dirty, false);
  write("core/a.cpp", "int b;\n");
  EXPECT_EQ(DescribeSource(root.string()).dirty, true);
  ASSERT_TRUE(git("checkout -q core"));
  write("baselines/mine/mine.toml", "\n");
  EXPECT_EQ(DescribeSource(root.string()).dirty, true) << "a new method is one of the program's";
}

}  // namespace
}  // namespace sparfuse::harness
