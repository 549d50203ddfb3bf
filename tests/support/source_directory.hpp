// Finds the tree that a test belongs to, for what it reads there.
#pragma once

#include <filesystem>

#include "core/base/program_folder.hpp"

namespace sparfuse::testing {

// The tree that the test lies in, be it this or an archive of it; for a test that was built
// elsewhere the one that it was compiled in.
inline std::filesystem::path SourceDirectory() {
  const std::filesystem::path own = OwnFolder("tests/harness");
  return own.empty() ? std::filesystem::path(SPARFUSE_SOURCE_DIRECTORY) : own;
}

}  // namespace sparfuse::testing
