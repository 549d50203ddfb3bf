// Finds folders of the running program, wherever its tree was copied or moved to.
#pragma once

#include <filesystem>

namespace sparfuse {

// The folder of the program's executable, links resolved.
std::filesystem::path ProgramFolder();

// The nearest folder at or above `folder` that has a folder `what`; "" if none has.
std::filesystem::path FolderAbove(const std::filesystem::path& folder,
                                  const std::filesystem::path& what);

// The same for the program's folder, else for the current folder. So a copy of a tree works on
// itself, and not on the tree in which it was compiled.
std::filesystem::path OwnFolder(const std::filesystem::path& what);

}  // namespace sparfuse
