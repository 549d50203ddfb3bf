// Tells the trials of a store from those of all others.
#pragma once

#include <filesystem>
#include <string>

#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

// Eight hexadecimal digits that stand in the ids of new trials: of the store, by a number that it
// draws once and keeps in results/store.json, and of the system that runs them. Says nothing about
// either. Throws Error{kData} where store.json is no file of this kind or cannot be written.
std::string OriginOf(const StoreLock& lock, const std::filesystem::path& results,
                     const std::string& system_hash);

}  // namespace sparfuse::harness
