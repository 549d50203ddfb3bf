// Finds the tree that a test belongs to, for what it reads there.
#pragma once

#include <filesystem>

namespace sparfuse::testing {

// The tree that the test lies in, be it this or an archive of it; for a test that was built
// elsewhere the one that it was compiled in.
std::filesystem::path SourceDirectory();

}  // namespace sparfuse::testing
