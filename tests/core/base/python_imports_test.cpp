// Tests which modules of its folder a Python file is found to import.
#include "core/base/python_imports.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sparfuse {
namespace {

namespace fs = std::filesystem;

class PythonImportsTest : public ::testing::Test {
 protected:
  PythonImportsTest()
      : folder_(fs::temp_directory_path() / ("imports-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "package" / "inner");
    fs::create_directories(folder_ / "plain");
    Write("plain/leaf.py", "");
    Write("helper.py", "import other\n");
    Write("other.py", "import mine\n");
    Write("unused.py", "");
    Write("package/__init__.py", "");
    Write("package/inner/leaf.py", "x = 1\n");
  }
  ~PythonImportsTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string FilesOf(const std::string& text) const {
    std::string all;
    for (const auto& [file, content] : ImportsOf(folder_ / "mine.py", text).files)
      all += file.lexically_relative(folder_).generic_string() + " ";
    return all;
  }

  const fs::path folder_;
};

TEST_F(PythonImportsTest, FindsModulesAndPackagesOfTheFolderAndWhatTheyImport) {
  EXPECT_EQ(FilesOf("import numpy, json\n"), "");
  EXPECT_EQ(FilesOf("import numpy, helper as h\n"), "helper.py other.py ");
  EXPECT_EQ(FilesOf("from other import (\n    a,\n)\n"), "other.py ");
  EXPECT_EQ(FilesOf("from package.inner import leaf\n"),
            "package/__init__.py package/inner/leaf.py ");
  EXPECT_EQ(ImportsOf(folder_ / "mine.py", "import plain, other, package\n").names,
            (std::vector<std::string>{"other", "package"}));
  EXPECT_EQ(FilesOf("import plain\n"), "plain/leaf.py ");
  fs::create_directory(folder_ / "dist-packages");
  Write("dist-packages/helper.py", "");
  EXPECT_TRUE(ImportsOf(folder_ / "dist-packages" / "mine.py", "import helper\n").files.empty());
  EXPECT_EQ(FilesOf("important = 1\nfrom_other = 2\n"), "");
  EXPECT_EQ(ImportsOf(folder_ / "mine.py", "import other\n").late, std::vector<std::string>());
  EXPECT_EQ(ImportsOf(folder_ / "mine.py", "def f():\n    import other\n").late,
            std::vector<std::string>{"other"});
}

TEST_F(PythonImportsTest, TextCoversWhatIsImported) {
  const fs::path file = folder_ / "mine.py";
  EXPECT_EQ(TextWithImports(file, "import numpy\n"), "import numpy\n");
  const std::string before = TextWithImports(file, "import helper\n");
  Write("other.py", "x = 2\n");
  EXPECT_NE(TextWithImports(file, "import helper\n"), before);
  Write("unused.py", "x = 2\n");
  Write("other.py", "import mine\n");
  EXPECT_EQ(TextWithImports(file, "import helper\n"), before);
}

}  // namespace
}  // namespace sparfuse
