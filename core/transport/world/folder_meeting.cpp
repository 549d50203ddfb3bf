#include "core/transport/world/folder_meeting.hpp"

#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/tcp/tcp.hpp"

namespace sparfuse {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{5};

std::string OwnHost() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The notes of the ranks of one launch in a folder.
class Notes {
 public:
  Notes(const fs::path& folder, const ExpectedWorld& world, int rank)
      : folder_(folder), world_(world), rank_(rank) {}
  ~Notes() {
    std::error_code gone;
    for (const fs::path& file : left_) fs::remove(file, gone);
  }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  // Leaves `text` about `what`, and waits for all ranks' texts about it: [ranks].
  std::vector<std::string> Exchange(const std::string& what, const std::string& text,
                                    Clock::time_point until) {
    const fs::path own = FileOf(what, rank_);
    const fs::path part = own.string() + ".part";
    std::ofstream(part) << text;
    std::error_code failed;
    fs::rename(part, own, failed);  // a rename, so that no rank reads half of it
    if (failed) {
      SPARFUSE_THROW(kConfig, "cannot write ", own.string(), ": ", failed.message());
    }
    left_.push_back(own);
    std::vector<std::string> all(static_cast<std::size_t>(world_.ranks));
    for (;;) {
      std::string missing;
      for (int rank = 0; rank < world_.ranks; ++rank) {
        std::string& each = all[static_cast<std::size_t>(rank)];
        if (each.empty()) each = Read(FileOf(what, rank));
        if (each.empty()) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      }
      if (missing.empty()) return all;
      if (Clock::now() > until) {
        SPARFUSE_THROW(kTimeout, "rank ", rank_, " of ", world_.ranks, " found no ", what,
                       " of rank ", missing, " in ", folder_.string(),
                       ": that rank did not start, or does not see this folder");
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

 private:
  fs::path FileOf(const std::string& what, int rank) const {
    return folder_ / ("tcp-" + what + "-" + world_.nonce + "-rank" + std::to_string(rank));
  }
  static std::string Read(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return std::move(text).str();
  }

  fs::path folder_;
  ExpectedWorld world_;
  int rank_;
  std::vector<fs::path> left_;
};

}  // namespace

std::unique_ptr<Communicator> MeetInFolder(const fs::path& folder, const ExpectedWorld& world,
                                           int rank, int ranks_per_node,
                                           const std::string& interface,
                                           std::chrono::milliseconds deadline) {
  if (rank < 0 || rank >= world.ranks) {
    SPARFUSE_THROW(kConfig, "this is rank ", rank, ", and ", world.ranks,
                   " ranks were launched: expected ranks counted from 0");
  }
  const auto until = Clock::now() + deadline;
  Notes notes(folder, world, rank);
  const std::string own = OwnHost();
  std::string toward;  // another host
  for (const std::string& host : notes.Exchange("host", own, until)) {
    if (toward.empty() && host != own) toward = host;
  }
  TcpListener listener(interface, toward);
  const auto addresses = notes.Exchange("address", listener.address(), until);
  return MakeTcpWorld(std::move(listener), addresses, rank, ranks_per_node, deadline);
}

}  // namespace sparfuse
