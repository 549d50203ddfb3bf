// Feeds arbitrary bytes to the readers of a failed trial's log.
#include <algorithm>

#include "harness/run/live/launch/launch_watch.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  const std::string_view log = fuzz::Text(data, size);
  const harness::LauncherReport report = harness::ParseLauncherReport(log);
  fuzz::Require(report.rank.value_or(0) >= 0, "a rank");
  fuzz::Require(report.rank || (!report.signal && !report.exit_code), "an end has its rank");
  const std::string tail = harness::Tail(log, 3);
  fuzz::Require(log.ends_with(tail) && std::ranges::count(tail, '\n') <= 4, "the last lines");
  const std::string words = harness::LastWords(log);
  fuzz::Require(
      words.size() <= 1200 &&
          std::ranges::none_of(words, [](unsigned char c) { return std::iscntrl(c) != 0; }),
      "words that a terminal can show");
  return 0;
}
