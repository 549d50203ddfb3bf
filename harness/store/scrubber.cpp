#include "harness/store/scrubber.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "harness/files/plain_text.hpp"

namespace sparfuse::harness {

namespace {

// Plans are data, too: one string holds a size for each tensor.
constexpr std::size_t kLongestText = 300, kLongestData = 65536, kLongestPlace = 4096;

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// Whether a character ends a possible path or token within a sentence.
bool Separates(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("\"'`,;:=()[]{}<>|&").find(c) != std::string_view::npos;
}

// The beginnings of access tokens of well-known services. The rest of a token is one word.
// Source: secret scanning patterns of GitHub's documentation, "Supported secret scanning patterns".
constexpr std::string_view kTokenBegins[] = {"ghp_",        "gho_",   "ghs_",  "ghu_",
                                             "github_pat_", "glpat-", "xoxb-", "xoxp-",
                                             "sk-",         "hf_",    "AKIA",  "eyJ"};

// Recognises a token by its beginning or by its mixture of characters. No identifier has 24
// characters of both cases with four digits in between, unless dots divide it, as in names of
// tensors.
bool IsToken(std::string_view word) {
  for (const std::string_view begin : kTokenBegins) {
    if (word.starts_with(begin) && word.size() >= begin.size() + 12) return true;
  }
  const auto count = [&](int (*is)(int)) {
    return std::ranges::count_if(word,
                                 [&](char c) { return is(static_cast<unsigned char>(c)) != 0; });
  };
  return word.size() >= 24 && count(std::isdigit) >= 4 && count(std::isupper) > 0 &&
         count(std::islower) > 0 && std::ranges::all_of(word, [](char c) {
           return IsAlnum(c) || c == '-' || c == '_' || c == '+';
         });
}

bool HasToken(std::string_view word) {
  while (true) {
    const std::size_t slash = word.find('/');
    if (IsToken(word.substr(0, slash))) return true;
    if (slash == std::string_view::npos) return false;
    word.remove_prefix(slash + 1);
  }
}

enum class Relative { kPath, kName };  // meaning of "a/b/c"; "images/s" never is a path

std::string_view WithoutFolders(std::string_view word, Relative relative) {
  const bool path = word.starts_with('/') || word.starts_with('~') || word.starts_with("..") ||
                    (relative == Relative::kPath && std::ranges::count(word, '/') > 1);
  if (!path) return word;
  while (word.ends_with('/')) word.remove_suffix(1);
  word.remove_prefix(word.rfind('/') + 1);  // npos + 1 removes nothing
  while (word.starts_with('~') || word.starts_with("..")) word.remove_prefix(1);
  return word;
}

std::string WithoutSecrets(std::string_view text, Relative relative) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (Separates(text[i])) {
      out += text[i++];
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && !Separates(text[end])) ++end;
    const std::string_view word = WithoutFolders(text.substr(i, end - i), relative);
    out += HasToken(word) ? "SECRET" : word;
    i = end;
  }
  return out;
}

// Reduces "https://name:word@host/path?query#part" to "https://host/path".
std::string ScrubbedAddress(std::string_view address) {
  const std::size_t host = address.find("://") + 3;
  if (address.substr(host).starts_with('/')) return WithoutSecrets(address, Relative::kPath);
  address = address.substr(0, address.find_first_of("?#"));
  const std::size_t path = std::min(address.find('/', host), address.size());
  const std::size_t at = address.substr(0, path).rfind('@');
  if (HasToken(address)) return "SECRET";
  return std::string(address.substr(0, host)) +
         std::string(address.substr(at == std::string_view::npos ? host : at + 1));
}

// The begin of the next web address of any scheme, at or after `from`.
std::size_t BeginOfAddress(std::string_view text, std::size_t from = 0) {
  std::size_t begin = text.find("://", from);
  if (begin == std::string_view::npos) return begin;
  while (begin > 0 && IsAlnum(text[begin - 1])) --begin;
  return begin;
}

// The end of the address at the begin of `text`. Its query extends to the end of the text.
std::size_t EndOfAddress(std::string_view text) {
  text = text.substr(0, text.find_first_of(" \t\"'<>"));
  const std::size_t host = text.find("://") + 3;
  const std::size_t other = BeginOfAddress(text, host);
  const std::size_t path = text.find('/', host);
  const std::size_t mark = path == std::string_view::npos ? path : text.find_first_of(";,|)", path);
  const std::size_t query = text.find_first_of("?#");
  return std::min({text.size(), other, mark < query ? mark : text.size()});
}

std::string ScrubbedCitation(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t begin = BeginOfAddress(text);
    out += WithoutSecrets(text.substr(0, begin), Relative::kPath);
    if (begin == std::string_view::npos) return out;
    text.remove_prefix(begin);
    const std::size_t end = EndOfAddress(text);
    out += ScrubbedAddress(text.substr(0, end));
    text.remove_prefix(end);
  }
}

bool IsWordOfLetters(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return IsLetter(c) || c == '-' || c == '_'; });
}

bool IsControl(char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }

bool IsHash(std::string_view text) {
  return text.size() <= 64 && std::ranges::all_of(text, [](unsigned char c) {
           return std::isxdigit(c) != 0 && std::isupper(c) == 0;
         });
}

bool IsPlace(std::string_view text) {
  return text.size() <= kLongestPlace && !text.starts_with('/') &&
         text.find("..") == std::string_view::npos && text.find("//") == std::string_view::npos &&
         std::ranges::all_of(text, [](char c) {
           return IsOfName(c) || c == '/' || c == '@' || c == '+' || c == ':';
         });
}

std::string Cut(std::string text, std::size_t most = kLongestText) {
  std::ranges::replace_if(text, IsControl, ' ');
  if (text.size() > most) {
    text.resize(most);
    while (!text.empty() && static_cast<unsigned char>(text.back()) >= 0x80) text.pop_back();
  }
  return text;
}

// The end of the word that begins at `at`, without the dot of a sentence.
std::size_t EndOfWord(const std::string& text, std::size_t at) {
  while (at < text.size() && IsOfName(text[at])) ++at;
  while (at > 0 && text[at - 1] == '.') --at;
  return at;
}

// `domains`: whether the text that follows a name after a dot is removed with it.
std::string WithoutNames(const std::string& text, const std::set<std::string>& names,
                         std::string_view instead, bool domains) {
  std::string out = text;
  for (const std::string& name : names) {
    std::size_t from = 0;
    for (std::size_t at; (at = out.find(name, from)) != std::string::npos;) {
      std::size_t end = at + name.size();
      const bool whole = (at == 0 || !IsOfName(out[at - 1])) &&
                         (end == out.size() || out[end] == '.' || !IsOfName(out[end]));
      if (whole && domains) end = std::max(end, EndOfWord(out, end));
      if (whole) out.replace(at, end - at, instead);
      from = at + (whole ? instead.size() : name.size());
    }
  }
  return out;
}

std::string WithoutNames(const std::string& text, const PrivateNames& names) {
  return WithoutNames(WithoutNames(text, names.hosts, "HOST", true), names.users, "USER", false);
}

}  // namespace

void PrivateNames::AddHost(const std::string& name) {
  const std::string first = name.substr(0, name.find('.'));
  if (first.empty() || first == "localhost") return;
  hosts.insert(name);
  if (std::ranges::any_of(first, IsLetter)) hosts.insert(first);  // in an address it is a number
}

void PrivateNames::Add(const PrivateFacts& facts) {
  for (const std::string& host : facts.hosts) AddHost(host);
  users.insert(facts.users.begin(), facts.users.end());
}

PrivateNames PrivateNames::OfTrials(const std::vector<TrialRow>& rows,
                                    const std::filesystem::path& results) {
  PrivateNames names;
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) names.AddHost(host);
  names.users = CurrentUsers();
  for (const TrialRow& row : rows) names.Add(ReadPrivateFacts(results / row.directory));
  return names;
}

std::set<std::string> CurrentUsers() {
  std::set<std::string> users;
  for (const char* variable : {"USER", "LOGNAME", "SUDO_USER"}) {
    if (const char* user = std::getenv(variable)) users.insert(user);
  }
  if (const passwd* entry = ::getpwuid(::getuid())) users.insert(entry->pw_name);
  users.erase("");
  return users;
}

std::string TextScrubber::Scrubbed(const std::string& text, Leaves as) const {
  switch (as) {
    case Leaves::kHash:
      return IsHash(text) ? text : "";
    case Leaves::kPlace:
      return IsPlace(text) ? text : "";
    case Leaves::kCitation:
      return ScrubbedCitation(Cut(WithoutNames(text, names_)));
    case Leaves::kWords:
      return WithoutSecrets(Cut(WithoutNames(text, names_)), Relative::kPath);
    case Leaves::kOption:
    case Leaves::kData:
      break;
  }
  const bool stays = as == Leaves::kOption && IsWordOfLetters(text);
  return WithoutSecrets(Cut(stays ? text : WithoutNames(text, names_), kLongestData),
                        Relative::kName);
}

namespace {

using nlohmann::json;

// Scrubs a value that many trials share only once.
class SharedScrubber {
 public:
  explicit SharedScrubber(PrivateNames names) : scrubber_(std::move(names)) {}

  const TextScrubber& texts() const { return scrubber_; }

  template <class Scrub>
  void Replace(StoredJson& value, const Scrub& scrub) {
    const auto [entry, is_new] = scrubbed_.try_emplace(value.Text().data(), value);
    if (is_new) {
      json leaves = scrub(value.Value(), scrubber_);
      if (leaves != value.Value()) entry->second.shown = StoredJson(std::move(leaves));
    }
    value = entry->second.shown;
  }

 private:
  struct Scrubbed {
    explicit Scrubbed(const StoredJson& value) : original(value), shown(value) {}
    StoredJson original;  // keeps its text in place: the map finds it by its address
    StoredJson shown;
  };

  const TextScrubber scrubber_;
  std::map<const char*, Scrubbed> scrubbed_;
};

json ScrubbedTexts(json value, const TextScrubber& scrubber) {
  Form<json>::Scrub(value, Leaves::kCitation, scrubber);
  return value;
}

}  // namespace

void MakeShareable(std::vector<TrialRow>& rows, const std::filesystem::path& results) {
  SharedScrubber scrubber(PrivateNames::OfTrials(rows, results));
  for (TrialRow& row : rows) {
    scrubber.Replace(row.config, ScrubbedConfig);
    for (StoredJson* value : {&row.system, &row.provenance, &row.quiet})
      scrubber.Replace(*value, ScrubbedTexts);
    for (std::string& reason : row.annotations)
      reason = scrubber.texts().Scrubbed(reason, Leaves::kWords);
    row.contradiction = scrubber.texts().Scrubbed(row.contradiction, Leaves::kWords);
  }
}

}  // namespace sparfuse::harness
