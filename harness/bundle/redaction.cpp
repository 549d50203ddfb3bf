#include "harness/bundle/redaction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Data are also plans, of which a size a tensor stands in one string.
constexpr std::size_t kLongestText = 300, kLongestName = 200, kLongestData = 65536;

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

bool IsOfName(char c) { return IsAlnum(c) || c == '-' || c == '_' || c == '.'; }

// Ends what may be a path or a token within a sentence.
bool Separates(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("\"'`,;:=()[]{}<>|&").find(c) != std::string_view::npos;
}

// How access tokens of well-known services begin; the rest of a token is one word.
// Source: secret scanning patterns of GitHub's documentation, "Supported secret scanning patterns".
constexpr std::string_view kTokenBegins[] = {"ghp_",        "gho_",   "ghs_",  "ghu_",
                                             "github_pat_", "glpat-", "xoxb-", "xoxp-",
                                             "sk-",         "hf_",    "AKIA",  "eyJ"};

// Known by its beginning, or by its mixture: identifiers are no 24 characters of both cases with
// four digits in between, unless dots divide them, as they do names of tensors.
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

enum class Relative { kPath, kName };  // what "a/b/c" is; "images/s" never is a path

std::string_view WithoutFolders(std::string_view word, Relative relative) {
  const bool path = word.starts_with('/') || word.starts_with('~') || word.starts_with("..") ||
                    (relative == Relative::kPath && std::count(word.begin(), word.end(), '/') > 1);
  if (!path) return word;
  while (word.ends_with('/')) word.remove_suffix(1);
  word.remove_prefix(word.rfind('/') + 1);  // npos + 1: none is left
  while (word.starts_with('~') || word.starts_with("..")) word.remove_prefix(1);
  return word;
}

std::string Scrubbed(std::string_view text, Relative relative) {
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

// "https://name:word@host/path?query#part" is left as "https://host/path".
std::string ScrubbedAddress(std::string_view address) {
  const std::size_t host = address.find("://") + 3;
  if (address.substr(host).starts_with('/')) return Scrubbed(address, Relative::kPath);
  address = address.substr(0, address.find_first_of("?#"));
  const std::size_t path = std::min(address.find('/', host), address.size());
  const std::size_t at = address.substr(0, path).rfind('@');
  if (HasToken(address)) return "SECRET";
  return std::string(address.substr(0, host)) +
         std::string(address.substr(at == std::string_view::npos ? host : at + 1));
}

// Where the next address of the web, of whatever scheme, begins; `from`: or later.
std::size_t BeginOfAddress(std::string_view text, std::size_t from = 0) {
  std::size_t begin = text.find("://", from);
  if (begin == std::string_view::npos) return begin;
  while (begin > 0 && IsAlnum(text[begin - 1])) --begin;
  return begin;
}

// Where the address ends that `text` begins with: its query is all that follows.
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
    out += Scrubbed(text.substr(0, begin), Relative::kPath);
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

bool IsKey(std::string_view key) {
  return !key.empty() && key.size() <= kLongestName && std::ranges::none_of(key, IsControl) &&
         Scrubbed(key, Relative::kName) == key;
}

bool IsHash(std::string_view text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0 && std::isupper(c) == 0;
         });
}

bool IsPlace(std::string_view text) {
  return text.size() <= 4096 && !text.starts_with('/') &&
         text.find("..") == std::string_view::npos && text.find("//") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return IsOfName(c) || c == '/' || c == '@' || c == '+' || c == ':';
         });
}

LeavesAs LeavesAsOf(const std::string& name) {
  static const std::map<std::string, LeavesAs> kNames = {
      {"number", LeavesAs::kNumber},     {"data", LeavesAs::kData},    {"words", LeavesAs::kWords},
      {"hash", LeavesAs::kHash},         {"place", LeavesAs::kPlace},  {"hosts", LeavesAs::kHosts},
      {"citation", LeavesAs::kCitation}, {"option", LeavesAs::kOption}};
  return kNames.at(name);
}

class Redactor {
 public:
  Redactor(const PrivateNames& names, Redactions& met) : names_(names), met_(met) {}

  // Nothing of `value` where the result is discarded.
  json Run(const json& value, const json& form, const std::string& key) {
    if (value.is_null()) return nullptr;
    if (form.is_string()) return Leaf(value, form.get<std::string>(), key);
    if (form.is_array()) {
      if (!value.is_array()) return Stays(key);
      json list = json::array();
      for (const json& each : value) {
        json redacted = Run(each, form[0], key);
        list.push_back(redacted.is_discarded() ? json() : std::move(redacted));
      }
      return list;
    }
    if (!value.is_object()) return Stays(key);
    json table = json::object();
    const auto any = form.find("*");
    for (const auto& [name, inner] : value.items()) {
      const auto known = form.find(name);
      const bool wild = known == form.end() && any != form.end() && IsKey(name);
      if (known == form.end() && !wild) {
        // The name of a key that nobody knows may be a secret as well.
        Stays(key + (IsKey(name) ? name : "a key that is no word"));
        continue;
      }
      json redacted = Run(inner, wild ? *any : *known, key + name + ".");
      if (!redacted.is_discarded()) table[name] = std::move(redacted);
    }
    return table;
  }

 private:
  json Leaf(const json& value, const std::string& how, const std::string& key) {
    json redacted = As(value, LeavesAsOf(how), key);
    if (redacted.is_discarded()) return Stays(key);
    met_.leaves.emplace(Shown(key), how);
    return redacted;
  }

  json As(const json& value, LeavesAs how, const std::string& key) {
    const json nothing(json::value_t::discarded);
    if (how == LeavesAs::kData || how == LeavesAs::kOption) return Data(value, how, key);
    if (how == LeavesAs::kHosts) return Hosts(value);
    if (how == LeavesAs::kNumber)
      return value.is_number() || value.is_boolean() || IsNumber(value) ? value : nothing;
    if (!value.is_string()) return nothing;
    const auto& text = value.get_ref<const std::string&>();
    if (how == LeavesAs::kHash) return IsHash(text) ? value : nothing;
    if (how == LeavesAs::kPlace) return IsPlace(text) ? value : nothing;
    std::string without = WithoutNames(text, names_);
    if (how == LeavesAs::kCitation) return ScrubbedCitation(Cut(std::move(without)));
    return Scrubbed(Cut(std::move(without)), Relative::kPath);
  }

  // Variables of the environment are strings.
  static bool IsNumber(const json& value) {
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    return !text.empty() && text.size() <= 8 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  static std::string Cut(std::string text, std::size_t most = kLongestText) {
    std::ranges::replace_if(text, IsControl, ' ');
    if (text.size() > most) {
      text.resize(most);
      while (!text.empty() && static_cast<unsigned char>(text.back()) >= 0x80) text.pop_back();
    }
    return text;
  }

  json Data(const json& value, LeavesAs how, const std::string& key) {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      const bool stays = how == LeavesAs::kOption && IsWordOfLetters(text);
      return Scrubbed(Cut(stays ? text : WithoutNames(text, names_), kLongestData),
                      Relative::kName);
    }
    if (value.is_array()) {
      json list = json::array();
      for (const json& each : value) {
        json redacted = Data(each, how, key);
        list.push_back(redacted.is_discarded() ? json() : std::move(redacted));
      }
      return list;
    }
    if (!value.is_object()) return value;
    json table = json::object();
    for (const auto& [name, inner] : value.items()) {
      if (!IsKey(name) || (!IsWordOfLetters(name) && WithoutNames(name, names_) != name)) {
        Stays(key + "a key that is no word");
        continue;
      }
      json redacted = Data(inner, how, key + name + ".");
      if (!redacted.is_discarded()) table[name] = std::move(redacted);
    }
    return table;
  }

  static json Hosts(const json& value) {
    if (!value.is_array()) return json(json::value_t::discarded);
    json hosts = json::array();
    std::vector<json> known;
    for (const json& host : value) {
      const auto found = std::find(known.begin(), known.end(), host);
      const auto number = found - known.begin();
      if (found == known.end()) known.push_back(host);
      hosts.push_back(fmt::format("host{}", number));
    }
    return hosts;
  }

  static std::string Shown(std::string key) {
    if (key.ends_with('.')) key.pop_back();
    return key;
  }

  json Stays(const std::string& key) {
    met_.stays.insert(Shown(key));
    return json(json::value_t::discarded);
  }

  const PrivateNames& names_;
  Redactions& met_;
};

}  // namespace

json Redact(const json& value, const json& form, const PrivateNames& names,
            const std::string& where, Redactions& met) {
  json redacted = Redactor(names, met).Run(value, form, where + ": ");
  return redacted.is_discarded() ? json() : redacted;
}

}  // namespace sparfuse::harness
