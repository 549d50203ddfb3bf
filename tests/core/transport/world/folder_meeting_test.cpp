// Tests that ranks meet over TCP through files that they leave in a folder.
#include "core/transport/world/folder_meeting.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse {
namespace {

namespace fs = std::filesystem;

class FolderMeeting : public ::testing::Test {
 protected:
  FolderMeeting() {
    std::string name = (fs::temp_directory_path() / "sparfuse-meeting-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~FolderMeeting() override { fs::remove_all(folder_); }

  // The error of each of these ranks; "" if it met the others.
  std::vector<std::string> Meet(const ExpectedWorld& world, std::vector<int> ranks,
                                std::chrono::milliseconds deadline) {
    std::vector<std::string> said(ranks.size());
    testing::OnThreads(ranks.size(), [&](std::size_t i) {
      try {
        const auto met = MeetInFolder(folder_, world, ranks[i], 2, "", deadline);
        EXPECT_EQ(met->rank(), ranks[i]);
        EXPECT_EQ(met->size(), world.ranks);
        CheckWorld(*met, world, deadline);
      } catch (const Error& error) {
        said[i] = error.what();
      }
    });
    return said;
  }

  fs::path folder_;
};

TEST_F(FolderMeeting, RanksMeetAndLeaveNothing) {
  const std::vector<std::string> said = Meet({3, "a1"}, {2, 0, 1}, std::chrono::seconds(60));
  EXPECT_EQ(said, std::vector<std::string>(3));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FolderMeeting, LaunchesInOneFolderDoNotMeet) {
  std::thread other([&] { EXPECT_EQ(Meet({2, "b2"}, {0, 1}, std::chrono::seconds(60))[0], ""); });
  EXPECT_EQ(Meet({2, "a1"}, {0, 1}, std::chrono::seconds(60))[1], "");
  other.join();
}

TEST_F(FolderMeeting, TheRankThatDoesNotComeIsNamed) {
  for (const std::string& said : Meet({3, "a1"}, {0, 2}, std::chrono::milliseconds(200)))
    EXPECT_NE(said.find("found no host of rank 1 in " + folder_.string()), std::string::npos)
        << said;
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FolderMeeting, ARankBeyondTheWorldIsRefused) {
  const std::string said = Meet({2, "a1"}, {2}, std::chrono::milliseconds(200))[0];
  EXPECT_NE(said.find("this is rank 2, and 2 ranks were launched"), std::string::npos) << said;
}

}  // namespace
}  // namespace sparfuse
