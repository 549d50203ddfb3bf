// Tests which plugins are refused before any of their code is loaded; the plugins of tests are in
// tests/integration/parts.
#include "baselines/plugin_library.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/outside_parts.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

namespace fs = std::filesystem;

// The content of a plugin's section of this name; this program has other headers than a plugin.
[[gnu::section(".sparfuse_abi"), gnu::used]] constexpr char kAbi[] = "headers of another time";

class PluginLibrary : public ::testing::Test {
 protected:
  PluginLibrary() {
    std::string name = (fs::temp_directory_path() / "sparfuse-plugin-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~PluginLibrary() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  static std::string WhatIsSaidOf(const fs::path& file) {
    return testing::ErrorOf([&] { OpenPlugin(file); });
  }

  fs::path folder_;
};

TEST_F(PluginLibrary, AnotherHashIsRefusedByName) {
  const fs::path own = fs::read_symlink("/proc/self/exe");
  const std::string said = WhatIsSaidOf(own);
  EXPECT_SAYS(said, own.string() + " was built against ");
  EXPECT_SAYS(said, "(headers of another time), and this program is ");
}

TEST_F(PluginLibrary, WhatIsNoLibraryIsRefused) {
  std::ifstream stream("/proc/self/exe", std::ios::binary);
  const std::string own{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_SAYS(WhatIsSaidOf(folder_ / "absent.so"), "is not there");
  for (const std::string& content :
       {std::string(), std::string("text"), own.substr(0, 40), own.substr(0, own.size() / 2)}) {
    SCOPED_TRACE(content.size());
    EXPECT_SAYS(WhatIsSaidOf(Write("no.so", content)), "no.so is not a plugin");
  }
}

TEST(OutsideNames, OfPluginsMayHaveHyphens) {
  const OutsideName name = ParseOutsideName("planner", "library:/a:b/mine.so:my-part");
  EXPECT_EQ(name.prefix, kLibraryPrefix);
  EXPECT_EQ(name.file, "/a:b/mine.so");
  EXPECT_EQ(name.part, "my-part");
  EXPECT_EQ(ParseOutsideName("planner", "library:my-part@0123456789ab").hash, "0123456789ab");
  EXPECT_THROW(ParseOutsideName("planner", "python:mine.py:My-Part"), Error);
  EXPECT_THROW(ParseOutsideName("planner", "library:mine.so"), Error);
}

}  // namespace
}  // namespace sparfuse
