// Tests that a site replaces an earlier one, and no other files.
#include "harness/site/site_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

class Folder : public ::testing::Test {
 protected:
  Folder() : root_(fs::path(::testing::TempDir()) / "site_folder_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Folder() override { fs::remove_all(root_); }

  static void Write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  // Writes a site with an index and a page of that name.
  void WriteSite(const std::string& page) {
    SiteFolder folder(out_);
    Write(folder.unfinished() / "index.html", page);
    Write(folder.unfinished() / "methods" / page, page);
    EXPECT_EQ(folder.Replace(), 2u);
  }

  std::string WhyNot() const {
    try {
      const SiteFolder folder(out_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kConfig);
      return error.what();
    }
    return "";
  }

  // The number of entries beside the site.
  std::size_t Entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }

  fs::path root_;
  fs::path out_ = root_ / "site";
};

TEST_F(Folder, ANewerSiteTakesThePlaceOfTheEarlierOne) {
  WriteSite("a.html");
  EXPECT_EQ(ReadFile(out_ / "index.html"), "a.html");
  WriteSite("b.html");
  EXPECT_EQ(ReadFile(out_ / "index.html"), "b.html");
  EXPECT_FALSE(fs::exists(out_ / "methods" / "a.html"));
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(Folder, AnEmptyFolderAndALinkToOneWillDo) {
  fs::create_directories(root_ / "there");
  fs::create_directory_symlink("there", out_);
  WriteSite("a.html");
  EXPECT_TRUE(fs::is_symlink(out_));
  EXPECT_EQ(ReadFile(root_ / "there" / "index.html"), "a.html");
}

TEST_F(Folder, FilesOfOthersStay) {
  Write(out_ / "thesis.tex", "years");
  EXPECT_NE(WhyNot().find("thesis.tex, which no `sparfuse site` wrote"), std::string::npos);
  fs::remove(out_ / "thesis.tex");
  WriteSite("a.html");
  Write(out_ / ".git" / "HEAD", "ref");
  EXPECT_NE(WhyNot().find(".git/HEAD"), std::string::npos);
  EXPECT_EQ(ReadFile(out_ / "index.html"), "a.html");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(Folder, AListThatIsNoneOfOursListsNothing) {
  Write(out_ / ".sparfuse-site", "index.html\n");
  Write(out_ / "index.html", "mine");
  EXPECT_NE(WhyNot(), "");
}

TEST_F(Folder, AFileIsNoFolder) {
  Write(out_, "text");
  EXPECT_NE(WhyNot().find("is not a folder"), std::string::npos);
}

TEST_F(Folder, WhatIsWrittenMeanwhileIsNotReplaced) {
  WriteSite("a.html");
  {
    SiteFolder folder(out_);
    Write(folder.unfinished() / "index.html", "b");
    Write(out_ / "notes.txt", "new");
    EXPECT_THROW(folder.Replace(), Error);
  }
  EXPECT_EQ(ReadFile(out_ / "index.html"), "a.html");
  EXPECT_EQ(ReadFile(out_ / "notes.txt"), "new");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(Folder, WhatIsNeverFinishedLeavesTheEarlierSite) {
  WriteSite("a.html");
  {
    const SiteFolder folder(out_);
    Write(folder.unfinished() / "index.html", "half");
  }
  EXPECT_EQ(ReadFile(out_ / "index.html"), "a.html");
  EXPECT_EQ(Entries(), 1u);
}

}  // namespace
}  // namespace sparfuse::harness
