#include "harness/run/live/launch/hostfile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/log_text.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostHosts = 100'000;

// A name begins with a letter or digit. A launcher would take a leading hyphen for an option, and a
// shell takes "$(x)" for a command. A user may precede the host; IPv6 addresses have colons.
bool IsHostName(std::string_view name) {
  static const Expression kForm("^[[:alnum:]:_][[:alnum:]._:@%-]{0,299}$", "the name of a host");
  return kForm.FoundIn(name);
}

// The end of the expression at the begin of `text`: a comma outside of brackets.
std::size_t EndOfExpression(std::string_view text) {
  bool within = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') within = true;
    if (text[i] == ']') within = false;
    if (text[i] == ',' && !within) return i;
  }
  return text.size();
}

// Adds a name, or returns an error.
std::string AddName(std::string name, std::vector<std::string>& names) {
  if (!IsHostName(name)) {
    return fmt::format(
        "\"{}\" is not the name of a host: expected letters, digits, - . _ : @, and a letter or "
        "digit first",
        name);
  }
  names.push_back(std::move(name));
  return "";
}

// Adds the names of one expression "node[01-04]", or returns an error.
std::string AddRanges(std::string_view expression, std::vector<std::string>& names) {
  const std::size_t open = expression.find('[');
  if (open == std::string_view::npos) return AddName(std::string(expression), names);
  const std::string wrong =
      fmt::format("{}: expected hosts as node[01-04,07], or a name a line", expression);
  const std::size_t close = expression.find(']', open);
  if (close == std::string_view::npos) return wrong;
  std::string_view ranges = expression.substr(open + 1, close - open - 1);
  const std::string_view rest = expression.substr(close + 1);
  if (rest.find('[') != std::string_view::npos) return wrong;  // a second pair of brackets
  while (true) {
    const std::size_t end = std::min(ranges.find(','), ranges.size());
    const std::string_view range = ranges.substr(0, end);
    const std::size_t hyphen = std::min(range.find('-'), range.size());
    const std::string_view first = range.substr(0, hyphen);
    const std::string_view last = hyphen < range.size() ? range.substr(hyphen + 1) : first;
    std::size_t low = 0, high = 0;
    const auto read = [](std::string_view text, std::size_t& value) {
      const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error == std::errc() && stopped == text.data() + text.size() && text.size() <= 9;
    };
    if (!read(first, low) || !read(last, high) || high < low || high - low >= kMostHosts)
      return wrong;
    for (std::size_t number = low; number <= high; ++number) {
      if (names.size() >= kMostHosts)
        return fmt::format("{}: expected at most {} hosts", expression, kMostHosts);
      std::string said = AddName(
          fmt::format("{}{:0{}}{}", expression.substr(0, open), number, first.size(), rest), names);
      if (!said.empty()) return said;
    }
    if (end == ranges.size()) return "";
    ranges.remove_prefix(end + 1);
  }
}

// Expands "node[01-04,07]" to node01 to node04 and node07, as Slurm writes hosts. Commas outside of
// brackets separate expressions. Adds the names, or returns an error.
std::string AddExpanded(std::string_view expressions, std::vector<std::string>& names) {
  while (true) {
    const std::size_t end = EndOfExpression(expressions);
    const std::string wrong = AddRanges(expressions.substr(0, end), names);
    if (!wrong.empty() || end == expressions.size()) return wrong;
    expressions.remove_prefix(end + 1);
  }
}

// The canonical form of a host's name: small letters, and one name for this machine.
std::string SameHost(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name == "127.0.0.1" || name == "::1" ? "localhost" : name;
}

// A line of a hostfile with expanded names.
struct HostLine {
  int number = 0;
  std::vector<std::string> names;
  std::string options;  // "slots=8 max_slots=9"
  int slots = 0;        // 0: not stated
};

// The line without a comment, which Open MPI also lets begin by two slashes.
std::string_view WithoutComment(std::string_view line) {
  return line.substr(0, std::min(line.find('#'), line.find("//")));
}

std::vector<HostLine> LinesOf(const fs::path& file) {
  const std::string text = DecodedText(ReadFile(file), file.string(), "utf-8");
  std::istringstream lines(text);
  std::vector<HostLine> hosts;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto fail = [&](const std::string& message) {
      SPARFUSE_THROW(kConfig, fmt::format("{}:{}: {}", file.string(), number, message));
    };
    // Treats "slots = 8" as "slots=8".
    std::string joined;
    for (const char c : WithoutComment(line)) {
      const bool space = c == ' ' || c == '\t';
      if (c == '=') joined.erase(joined.find_last_not_of(' ') + 1);
      if (space && (joined.empty() || joined.back() == '=')) continue;
      joined += space ? ' ' : c;
    }
    std::istringstream words(joined);
    HostLine host;
    host.number = number;
    std::string name;
    if (!(words >> name)) continue;
    if (const std::string wrong = AddExpanded(name, host.names); !wrong.empty()) fail(wrong);
    int most = 0;
    for (std::string word; words >> word;) {
      host.options += " " + word;
      // Open MPI has other words for slots, too; sockets= and the like are for mpirun.
      const std::size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      const bool is_most = key == "max_slots" || key == "max-slots";
      if (!is_most && key != "slots" && key != "slot" && key != "cpu" && key != "cpus" &&
          key != "count")
        continue;
      int& count = is_most ? most : host.slots;
      if (count > 0) fail(fmt::format("{} is the second of its line: expected one", word));
      const char* const end = word.data() + word.size();
      const char* const begin = equals == std::string::npos ? end : word.data() + equals + 1;
      const auto [stopped, error] = std::from_chars(begin, end, count);
      if (error != std::errc() || stopped != end || count < 1)
        fail(fmt::format("{}: expected {}=N, ranks that {} has room for", word,
                         is_most ? key : "slots", name));
    }
    if (most > 0 && most < host.slots) {
      fail(fmt::format("max_slots={} and slots={}: expected at most max_slots slots", most,
                       host.slots));
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace

std::vector<Host> ReadHostfile(const fs::path& file, HostfileForm form) {
  std::vector<Host> hosts;
  struct Seen {
    std::size_t host;
    const HostLine* line;
    int lines;
  };
  std::map<std::string, Seen> known;
  const std::vector<HostLine> lines = LinesOf(file);
  const auto fail = [&](const HostLine& line, const std::string& message) {
    SPARFUSE_THROW(kConfig, fmt::format("{}:{}: {}", file.string(), line.number, message));
  };
  for (const HostLine& line : lines) {
    for (const std::string& name : line.names) {
      const auto [found, is_new] = known.try_emplace(SameHost(name), Seen{hosts.size(), &line, 0});
      ++found->second.lines;
      if (is_new) {
        hosts.push_back({name, std::max(line.slots, 1)});
        continue;
      }
      Host& before = hosts[found->second.host];
      if (form == HostfileForm::kOpenMpi && before.name != name)
        fail(line,
             fmt::format("{} is the host {} of a line before: expected one line for each host",
                         name, before.name));
      // Open MPI counts a host's lines, unless one of them states its slots.
      if (form == HostfileForm::kOpenMpi && line.slots + found->second.line->slots > 0)
        fail(line, fmt::format("{} is there twice: expected one line for each host", name));
      before.slots += std::max(line.slots, 1);
    }
  }
  const Seen* unknown = nullptr;  // the first host of one line that states no slots
  for (const auto& [name, seen] : known) {
    if (seen.line->slots > 0 || seen.lines > 1) continue;
    if (unknown == nullptr || seen.host < unknown->host) unknown = &seen;
  }
  if (form == HostfileForm::kOpenMpi && unknown != nullptr) {
    fail(*unknown->line, fmt::format("{} has no slots=N: expected its number of slots for ranks",
                                     hosts[unknown->host].name));
  }
  if (hosts.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} names no host: expected lines \"NAME slots=N\"", file.string()));
  }
  return hosts;
}

std::string LinesOfHosts(const fs::path& file,
                         const std::function<bool(const std::string& name)>& keep) {
  std::string kept;
  for (const HostLine& line : LinesOf(file)) {
    for (const std::string& name : line.names) {
      if (keep(name)) kept += name + line.options + "\n";
    }
  }
  return kept;
}

fs::path FileForMpirun(const fs::path& file, const fs::path& folder) {
  ReadHostfile(file);  // errors name the given file
  const std::string hosts = LinesOfHosts(file, [](const std::string&) { return true; });
  std::string own;  // the file's lines without comments and repeated spaces
  std::istringstream lines(ReadFile(file));
  for (std::string line; std::getline(lines, line);) {
    std::string words;
    bool pending = false;
    for (const char c : WithoutComment(line)) {
      const bool space = c == ' ' || c == '\t';
      if (!space && pending && !words.empty()) words += ' ';
      pending = space;
      if (!space) words += c;
    }
    if (!words.empty()) own += words + "\n";
  }
  if (own == hosts) return {};
  const fs::path written = folder / (ShortHash(hosts) + ".txt");
  MakeDirectories(folder);
  WriteFileDurably(written, hosts);
  return written;
}

int RanksPerHost(const std::vector<Host>& hosts, int ranks, const fs::path& file) {
  const int count = static_cast<int>(hosts.size());
  const int each = (ranks + count - 1) / count;
  // The last hosts get the remaining ranks.
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
