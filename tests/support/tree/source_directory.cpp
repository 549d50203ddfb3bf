// Holds the tree's path, compiled once for all tests. Only this object contains the path, so that a
// copied or moved tree finds all other objects in the compiler's cache.
#include "tests/support/tree/source_directory.hpp"

#include "core/base/program_folder.hpp"

namespace sparfuse::testing {

std::filesystem::path SourceDirectory() {
  const std::filesystem::path own = OwnFolder("tests/harness");
  return own.empty() ? std::filesystem::path(SPARFUSE_SOURCE_DIRECTORY) : own;
}

}  // namespace sparfuse::testing
