// Finds what belongs to the running program, wherever its tree was copied or moved to.
#pragma once

#include <filesystem>

namespace sparfuse {

// The folder that the program's executable lies in, links resolved.
std::filesystem::path ProgramFolder();

// The nearest folder at or above `folder` that has a folder `what`; "" where none has.
std::filesystem::path FolderAbove(const std::filesystem::path& folder,
                                  const std::filesystem::path& what);

// The same above the program, else above the current folder: a copy of a tree then works on itself,
// and not on the tree in which it was compiled.
std::filesystem::path OwnFolder(const std::filesystem::path& what);

}  // namespace sparfuse
