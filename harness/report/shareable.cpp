#include "harness/report/shareable.hpp"

#include <fmt/format.h>

#include <cctype>
#include <set>
#include <string_view>

#include "harness/store/users/private_names.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

bool EndsPath(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("\"'`,;:()[]{}<>").find(c) != std::string_view::npos;
}

// "/a/b/c.so: no such file" gives "c.so: no such file".
std::string WithoutFolders(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool begins = text[i] == '/' && i + 1 < text.size() && IsOfName(text[i + 1]) &&
                        (i == 0 || EndsPath(text[i - 1]) || text[i - 1] == '=');
    if (!begins) {
      out += text[i++];
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && !EndsPath(text[end])) ++end;
    std::string_view path(text.data() + i, end - i);
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    out += path.substr(path.rfind('/') + 1);
    i = end;
  }
  return out;
}

PrivateNames NamesOf(const TrialRow& trial) {
  PrivateNames names;
  names.AddThisHost();
  names.AddHostsOf(trial.provenance.Value());
  return names;
}

}  // namespace

std::string Shareable(const TrialRow& trial, const std::string& text) {
  return WithoutNames(WithoutFolders(text), NamesOf(trial));
}

std::string PlacementLine(const json& hosts) {
  std::set<std::string> different;
  for (const json& host : hosts) different.insert(host.dump());
  return fmt::format("{} rank(s) on {} host(s)", hosts.size(), different.size());
}

}  // namespace sparfuse::harness
