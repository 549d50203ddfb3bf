#include "core/base/program_folder.hpp"

#include <system_error>

namespace sparfuse {

namespace fs = std::filesystem;

fs::path ProgramFolder() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path();
}

fs::path FolderAbove(const fs::path& folder, const fs::path& what) {
  std::error_code none;
  for (fs::path at = folder; !at.empty(); at = at.parent_path()) {
    if (fs::is_directory(at / what, none)) return at;
    if (at == at.root_path()) break;
  }
  return {};
}

fs::path OwnFolder(const fs::path& what) {
  std::error_code none;
  const fs::path own = FolderAbove(ProgramFolder(), what);
  return own.empty() ? FolderAbove(fs::current_path(none), what) : own;
}

}  // namespace sparfuse
