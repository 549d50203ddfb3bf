// Follows what the ranks of a launch print while it runs. Their folders may be on other hosts, and
// a log keeps only a part.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// How the line begins that rank 0 prints once all ranks have met (core/transport/world).
inline constexpr const char* kMetLine = "ranks have met: ";
// How the line of a trial's log begins that says what the trial does; the rest of it is shown.
inline constexpr const char* kMeasuringLine = "measuring ";
// How the line begins that rank 0 prints when a trial's outcome is written.
inline constexpr const char* kResultLine = "result written: ";

// What a rank that fails prints, without an end of line.
std::string FailureLine(int rank, std::string_view kind, std::string_view message);
bool IsFailureLine(std::string_view line);

// What follows `head` in a line that begins with it, or does so behind what a launcher puts before
// a rank's lines ("[1,0]<stdout>:", "3: ").
std::optional<std::string_view> After(std::string_view head, std::string_view line);

// What was said so far. Two processes share it: who reads the output and who watches the launch.
struct LaunchSaid {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<bool> met{false}, measures{false};
  std::atomic<int> failures{0};           // lines of ranks that failed
  std::atomic<std::uint64_t> results{0};  // trials whose outcome is written
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared by processes");

// Takes output as it comes, and counts.
class LaunchLines {
 public:
  explicit LaunchLines(LaunchSaid& said) : said_(said) {}
  void Take(std::string_view bytes);

 private:
  void TakeLine();

  LaunchSaid& said_;
  std::string line_;  // its begin
};

}  // namespace sparfuse::harness
