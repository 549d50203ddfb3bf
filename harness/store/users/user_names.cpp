#include "harness/store/users/user_names.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

using nlohmann::json;

std::set<std::string> CurrentUsers() {
  std::set<std::string> users;
  for (const char* variable : {"USER", "LOGNAME", "SUDO_USER"}) {
    if (const char* user = std::getenv(variable)) users.insert(user);
  }
  if (const passwd* entry = ::getpwuid(::getuid())) users.insert(entry->pw_name);
  users.erase("");
  return users;
}

std::set<std::string> UsersOf(const std::filesystem::path& results) {
  const std::filesystem::path file = results / "users.json";
  if (!SomethingIsAt(file)) return {};
  const json stored = ReadJsonFile(file);
  const json users = stored.is_object() ? stored.value("users", json()) : json();
  const bool good = users.is_array() && std::ranges::all_of(users, [](const json& user) {
                      return user.is_string() && !user.get_ref<const std::string&>().empty();
                    });
  if (!good)
    SPARFUSE_THROW(kData, fmt::format("{}: users: expected a list of names", file.string()));
  return users.get<std::set<std::string>>();
}

void RememberUsers(const StoreLock&, const std::filesystem::path& results) {
  std::set<std::string> users = UsersOf(results);
  const std::size_t known = users.size();
  users.merge(CurrentUsers());
  if (users.size() == known) return;
  WriteFileDurably(results / "users.json", json{{"users", users}}.dump(1) + "\n");
}

}  // namespace sparfuse::harness
