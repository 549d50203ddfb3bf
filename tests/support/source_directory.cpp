// Compiled once for all tests: the tree's place is in this file's object and in no other, so that
// the others of a copied or moved tree are those of the compiler's cache.
#include "tests/support/source_directory.hpp"

#include "core/base/program_folder.hpp"

namespace sparfuse::testing {

std::filesystem::path SourceDirectory() {
  const std::filesystem::path own = OwnFolder("tests/harness");
  return own.empty() ? std::filesystem::path(SPARFUSE_SOURCE_DIRECTORY) : own;
}

}  // namespace sparfuse::testing
