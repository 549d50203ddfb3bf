// Tests the files in a results folder that are not the harness's: links, users' folders, and
// special files. None of them is removed, and none makes a verb hang.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "harness/store/store.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class ForeignFiles : public ::testing::Test {
 protected:
  // Writes a user's file, with its parent folders.
  fs::path Write(const fs::path& file, const std::string& text = "important") {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file;
  }
  std::string Begin(const std::string& stem) {
    const std::string id = store_.CreateTrial(lock_, "e", "p", stem);
    Write(store_.Directory(id) / "config.json", json{{"trial_id", id}}.dump());
    return id;
  }
  std::size_t Count() {
    problems_.clear();
    return store_.Rows(problems_).size();
  }

  TemporaryFolder folder_, home_;
  Store store_{folder_.path()};
  StoreLock lock_{folder_.path()};
  std::vector<std::string> problems_;
};

TEST_F(ForeignFiles, AreLeftWhereTheyAreAndNamed) {
  AddTrial(store_, lock_, 0);
  const fs::path thesis = Write(home_.path() / "thesis" / "chapter1" / "text.tex");
  fs::create_directory_symlink(home_.path(), store_.trials() / "mylink");
  const fs::path notes = Write(store_.trials() / "notes" / "2026" / "notes.txt");
  const fs::path own = Write(store_.trials() / "e" / "p" / "thoughts" / "a.txt");
  const fs::path other = Write(store_.trials() / "e" / "p" / "x-b0-1" / "config.json", "{}");
  const fs::path moved = Write(store_.trials() / "e" / "p" / "x-b0-2" / "config.json",
                               json{{"trial_id", "e/p/another-b0-1"}}.dump());
  const SweptTrials swept = store_.RemoveUnfinished(lock_);
  EXPECT_TRUE(swept.unfinished.empty());
  EXPECT_EQ(std::set(swept.unknown.begin(), swept.unknown.end()),
            (std::set<fs::path>{store_.trials() / "mylink", store_.trials() / "notes",
                                own.parent_path(), other.parent_path(), moved.parent_path()}));
  for (const fs::path& file : {thesis, notes, own, other, moved}) EXPECT_TRUE(fs::exists(file));
  EXPECT_EQ(Count(), 1u);
}

TEST_F(ForeignFiles, UnfinishedTrialsGoToTheTrashWithAllThatIsInThem) {
  const std::string id = Begin("wfbp-b0");
  Write(store_.Directory(id) / "log.txt", "half a log");
  fs::create_directory_symlink(home_.path(), store_.Directory(id) / "link");
  const fs::path file = Write(home_.path() / "file");
  const SweptTrials swept = store_.RemoveUnfinished(lock_);
  ASSERT_EQ(swept.unfinished, std::vector<std::string>{id});
  ASSERT_EQ(swept.in_trash.size(), 1u);
  EXPECT_FALSE(fs::exists(store_.Directory(id)));
  EXPECT_EQ(ReadFile(swept.in_trash[0] / "log.txt"), "half a log");
  EXPECT_TRUE(store_.trash().Empty(std::chrono::hours(1)).empty());
  EXPECT_TRUE(fs::exists(swept.in_trash[0]));
  const fs::path mine = Write(store_.trash().folder() / "mine" / "file");
  EXPECT_EQ(store_.trash().Empty(std::chrono::hours(0)).size(), 1u);
  EXPECT_FALSE(fs::exists(swept.in_trash[0]));
  EXPECT_TRUE(fs::exists(file));  // no link was followed
  EXPECT_TRUE(fs::exists(mine));
}

TEST_F(ForeignFiles, ALinkToAnUnfinishedTrialIsLeft) {
  const std::string id = Begin("wfbp-b0");
  fs::rename(store_.Directory(id), home_.path() / "trial");
  fs::create_directory_symlink(home_.path() / "trial", store_.Directory(id));
  EXPECT_TRUE(store_.RemoveUnfinished(lock_).unfinished.empty());
  EXPECT_TRUE(fs::exists(home_.path() / "trial" / "config.json"));
}

TEST_F(ForeignFiles, LinkedExperimentsCountInEveryVerb) {
  AddTrial(store_, lock_, 0);
  fs::rename(store_.trials() / "e", home_.path() / "e");
  fs::create_directory_symlink(home_.path() / "e", store_.trials() / "e");
  const std::string id = Begin("wfbp-b1");
  EXPECT_EQ(Count(), 1u);
  store_.RebuildIndex(lock_, problems_);
  EXPECT_EQ(store_.ReadRows().size(), 1u);
  EXPECT_EQ(store_.RemoveUnfinished(lock_).unfinished, std::vector<std::string>{id});
  EXPECT_EQ(Count(), 1u);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(ForeignFiles, LoopsOfLinksEnd) {
  AddTrial(store_, lock_, 0);
  fs::create_directory_symlink("..", store_.trials() / "e" / "up");
  fs::create_directory_symlink(store_.trials(), store_.trials() / "e" / "p" / "top");
  fs::create_symlink("self", store_.trials() / "self");
  EXPECT_EQ(Count(), 1u);
  EXPECT_EQ(problems_.size(), 2u);
  EXPECT_TRUE(store_.RemoveUnfinished(lock_).unfinished.empty());
  EXPECT_TRUE(fs::is_symlink(store_.trials() / "e" / "up"));
}

TEST_F(ForeignFiles, OnlyRegularFilesAreRead) {
  AddTrial(store_, lock_, 0);
  const fs::path pipe = store_.trials() / "e" / "p" / "wfbp-b1-1" / "trial.json";
  fs::create_directories(pipe.parent_path());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directories(store_.trials() / "e" / "p" / "wfbp-b2-1" / "trial.json");
  EXPECT_EQ(Count(), 1u);
  ASSERT_EQ(problems_.size(), 2u);
  EXPECT_SAYS(problems_[0], "a pipe or a device, expected a regular file");
  EXPECT_TRUE(store_.RemoveUnfinished(lock_).unfinished.empty());
  EXPECT_TRUE(fs::exists(pipe));
}

class IndexsPlace : public ForeignFiles {
 protected:
  void ExpectNamed(const std::string& what) {
    for (const auto& use : {std::function([&] { store_.RebuildIndex(lock_, problems_); }),
                            std::function([&] { store_.OpenIndex(lock_, problems_); }),
                            std::function([&] { store_.Rows(problems_); })}) {
      const std::string said = testing::ErrorOf(use, FailureKind::kData);
      EXPECT_SAYS(said, store_.index_path().string() + " is " + what);
      EXPECT_SAYS(said, "move it away");
    }
  }
};

TEST_F(IndexsPlace, AFolderThereIsNamedAndLeft) {
  const fs::path file = Write(store_.index_path() / "file");
  ExpectNamed("a folder");
  EXPECT_TRUE(fs::exists(file));
}

TEST_F(IndexsPlace, ALinkToItselfThereIsNamedAndLeft) {
  fs::create_symlink("index.sqlite", store_.index_path());
  ExpectNamed("no regular file");
  EXPECT_TRUE(fs::is_symlink(store_.index_path()));
}

}  // namespace
}  // namespace sparfuse::harness
