#include "harness/store/users/private_names.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "harness/store/users/user_names.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

// Where the word that begins at `at` ends; the dot of a sentence is none of its.
std::size_t EndOfWord(const std::string& text, std::size_t at) {
  while (at < text.size() && IsOfName(text[at])) ++at;
  while (at > 0 && text[at - 1] == '.') --at;
  return at;
}

// `domains`: whether what follows a name after a dot goes with it.
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

}  // namespace

void PrivateNames::AddHost(const std::string& name) {
  const std::string first = name.substr(0, name.find('.'));
  if (first.empty() || first == "localhost") return;
  hosts.insert(name);
  if (std::ranges::any_of(first, IsLetter)) hosts.insert(first);  // of an address it is a number
}

void PrivateNames::AddHosts(const json& list) {
  if (!list.is_array()) return;
  for (const json& host : list) {
    if (host.is_string()) AddHost(host);
  }
}

void PrivateNames::AddHostsOf(const json& provenance) {
  if (!provenance.is_object()) return;
  AddHosts(provenance.value("hosts", json()));
  if (const json machine = provenance.value("machine", json()); machine.is_object())
    AddHosts(machine.value("placement", json()));
}

void PrivateNames::AddThisHost() {
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) AddHost(host);
}

PrivateNames PrivateNames::OfThisMachine() {
  PrivateNames names;
  names.AddThisHost();
  names.users = CurrentUsers();
  return names;
}

json HostsOfLaunch(const json& launch) {
  std::set<std::string> hosts;
  const auto add = [&hosts](const json& list) {
    if (!list.is_array()) return;
    for (const json& host : list) {
      if (host.is_string()) hosts.insert(host.get<std::string>());
    }
  };
  if (!launch.is_object()) return json::array();
  for (const auto& [key, value] : launch.items()) {
    add(value);  // failed_on, left_out
    if (value.is_string() && key == "failed_on") hosts.insert(value.get<std::string>());
    if (value.is_object()) add(value.value("hosts", json()));
  }
  return hosts;
}

std::string WithoutNames(const std::string& text, const PrivateNames& names) {
  return WithoutNames(WithoutNames(text, names.hosts, "HOST", true), names.users, "USER", false);
}

}  // namespace sparfuse::harness
