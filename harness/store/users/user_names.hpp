// Keeps the names of those who used a store: none of them leaves it, whoever exports.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

// Of whoever runs this: what the environment and the system call it.
std::set<std::string> CurrentUsers();

// Adds the current users to those of the store, in results/users.json, which stays on this machine.
// Throws Error{kData} where the file is none of this kind or cannot be written.
void RememberUsers(const StoreLock& lock, const std::filesystem::path& results);

// The users of the store so far. Throws as RememberUsers.
std::set<std::string> UsersOf(const std::filesystem::path& results);

}  // namespace sparfuse::harness
