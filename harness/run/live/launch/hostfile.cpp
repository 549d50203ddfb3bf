#include "harness/run/live/launch/hostfile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

std::vector<Host> ReadHostfile(const fs::path& file, HostfileForm form) {
  std::vector<Host> hosts;
  std::istringstream text(ReadFile(file));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const auto fail = [&](const std::string& message) {
      SPARFUSE_THROW(kConfig, fmt::format("{}:{}: {}", file.string(), number, message));
    };
    std::istringstream words(line.substr(0, line.find('#')));
    Host host;
    if (!(words >> host.name)) continue;
    for (std::string word; words >> word;) {
      constexpr std::string_view kSlots = "slots=";
      if (!word.starts_with(kSlots)) continue;  // max_slots=, say: mpirun's
      const char* end = word.data() + word.size();
      const auto [stopped, error] = std::from_chars(word.data() + kSlots.size(), end, host.slots);
      if (error != std::errc() || stopped != end || host.slots < 1)
        fail(fmt::format("{}: expected slots=N, ranks that {} has room for", word, host.name));
    }
    const auto known = std::ranges::find(hosts, host.name, &Host::name);
    if (form == HostfileForm::kAny) {
      if (host.slots == 0) host.slots = 1;
      if (known == hosts.end()) {
        hosts.push_back(std::move(host));
      } else {
        known->slots += host.slots;
      }
      continue;
    }
    if (host.slots == 0)
      fail(fmt::format("{} has no slots=N: expected how many ranks it has room for", host.name));
    if (known != hosts.end())
      fail(fmt::format("{} is there twice: expected a line a host", host.name));
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} names no host: expected lines \"NAME slots=N\"", file.string()));
  }
  return hosts;
}

std::string LinesOfHosts(const fs::path& file,
                         const std::function<bool(const std::string& name)>& keep) {
  std::istringstream text(ReadFile(file));
  std::string kept;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (keep(name)) kept += line + "\n";
  }
  return kept;
}

int RanksPerHost(const std::vector<Host>& hosts, int ranks, const fs::path& file) {
  const int count = static_cast<int>(hosts.size());
  const int each = (ranks + count - 1) / count;
  // The last hosts get what is left.
  for (int h = 0; h * each < ranks; ++h) {
    const Host& host = hosts[static_cast<std::size_t>(h)];
    const int needed = std::min(each, ranks - h * each);
    if (host.slots >= needed) continue;
    SPARFUSE_THROW(
        kConfig, fmt::format("{}: {} has slots={}, and {} ranks on {} hosts are {} each: expected "
                             "more slots, or fewer --ranks",
                             file.string(), host.name, host.slots, ranks, count, each));
  }
  return each;
}

}  // namespace sparfuse::harness
