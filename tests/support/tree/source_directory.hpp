// Finds the tree that a test belongs to, for the files that the test reads.
#pragma once

#include <filesystem>

namespace sparfuse::testing {

// The tree that contains the test: this one or an archive of it. If the test was built elsewhere,
// the tree that it was compiled in.
std::filesystem::path SourceDirectory();

}  // namespace sparfuse::testing
