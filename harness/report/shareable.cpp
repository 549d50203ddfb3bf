#include "harness/report/shareable.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <set>
#include <string_view>

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

std::string WithoutName(const std::string& text, const std::string& name) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(name, from)) != std::string::npos;) {
    const std::size_t end = at + name.size();
    const bool whole =
        (at == 0 || !IsOfName(text[at - 1])) && (end == text.size() || !IsOfName(text[end]));
    out += text.substr(from, at - from) + (whole ? "HOST" : name);
    from = end;
  }
  return out + text.substr(from);
}

std::set<std::string> HostsOf(const TrialRow& trial) {
  std::set<std::string> hosts;
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0) hosts.insert(name);
  const json machine = trial.provenance.value("machine", json::object());
  if (machine.is_object() && machine.contains("placement")) {
    for (const json& host : machine["placement"]) {
      if (host.is_string()) hosts.insert(host.get<std::string>());
    }
  }
  hosts.erase("");
  hosts.erase("localhost");  // says nothing, and is a word of many messages
  return hosts;
}

}  // namespace

std::string Shareable(const TrialRow& trial, const std::string& text) {
  std::string shareable = WithoutFolders(text);
  for (const std::string& host : HostsOf(trial)) shareable = WithoutName(shareable, host);
  return shareable;
}

std::string PlacementLine(const json& hosts) {
  std::set<std::string> different;
  for (const json& host : hosts) different.insert(host.dump());
  return fmt::format("{} rank(s) on {} host(s)", hosts.size(), different.size());
}

}  // namespace sparfuse::harness
