#include "harness/machine/binding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

std::vector<int> NumaNodesOf(const std::vector<int>& cores) {
  constexpr std::string_view kNode = "node";
  std::vector<int> nodes;
  for (const fs::path& entry : EntriesOf("/sys/devices/system/node")) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(kNode)) continue;
    const std::vector<int> number = ReadRanges(name.substr(kNode.size()));
    const std::string list = FirstLine(entry / "cpulist");
    if (number.size() != 1 || list.empty()) continue;
    const std::vector<int> of_node = ReadRanges(list);
    if (std::ranges::any_of(cores,
                            [&](int core) { return std::ranges::binary_search(of_node, core); })) {
      nodes.push_back(number.front());
    }
  }
  std::ranges::sort(nodes);
  return nodes;
}

// The number of visible cards: "0,1" has two, "" has none.
std::optional<int> VisibleCards() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return std::nullopt;
  const std::string_view text = value;
  return text.empty() ? 0 : 1 + static_cast<int>(std::ranges::count(text, ','));
}

}  // namespace

std::string WriteRanges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> ReadRanges(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const char* end = part.data() + part.size();
    int first = 0;
    const auto [stopped, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc()) continue;
    int last = first;
    if (stopped != end && *stopped == '-') std::from_chars(stopped + 1, end, last);
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

RankBinding BindingOfThisProcess() {
  const std::vector<int> cores = UsableCores();
  RankBinding own;
  own.host = HostName();
  own.cores = WriteRanges(cores);
  own.numa = WriteRanges(NumaNodesOf(cores));
  own.visible_cards = VisibleCards();
  return own;
}

std::string WhatIsOversubscribed(const std::vector<RankBinding>& ranks, int threads_per_rank) {
  struct Use {
    int ranks = 0;
    std::set<int> cores;
  };
  std::map<std::string, Use> hosts;
  for (const RankBinding& rank : ranks) {
    Use& use = hosts[rank.host];
    ++use.ranks;
    for (const int core : ReadRanges(rank.cores)) use.cores.insert(core);
  }
  for (const auto& [host, use] : hosts) {
    if (use.cores.empty() ||
        static_cast<std::size_t>(use.ranks * threads_per_rank) <= use.cores.size()) {
      continue;
    }
    return fmt::format("{}: {} rank(s) of {} thread(s) each on {} core(s)", host, use.ranks,
                       threads_per_rank, use.cores.size());
  }
  return "";
}

std::string WhoIsHidden(const std::vector<RankBinding>& ranks) {
  std::map<std::string, int> lonely;  // ranks that see only one card, by host
  for (const RankBinding& rank : ranks) {
    if (rank.visible_cards == 1) ++lonely[rank.host];
  }
  for (const auto& [host, count] : lonely) {
    if (count < 2) continue;
    return fmt::format(
        "{}: CUDA_VISIBLE_DEVICES names one card for each of {} ranks, which cannot reach one "
        "another's directly: expected all cards of the host for every rank (of Slurm, "
        "--gpus-per-node instead of --gpus-per-task)",
        host, count);
  }
  return "";
}

}  // namespace sparfuse::harness
