// Makes and removes the folder of a launch's shared files of Open MPI, segments of memory and
// sockets, and so distinguishes launches. By default these files are in /dev/shm and /tmp with the
// files of all users, where nobody removes the files of a killed program. In a folder of the
// launch's own they are recognised.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace sparfuse::harness {

// Returns a text that no other launch has, not even one that was killed and left ranks behind.
std::string Nonce();

// The folder is made for one launch. The last holder removes it with its content; after a kill of
// the controller this is the supervisor. Its path is first written to `record`, a file in the
// folder of the trial's log. From there a later run finds it if nobody was left to remove it.
class SessionFolder {
 public:
  // Throws Error{kData} if it or `record` cannot be written.
  explicit SessionFolder(const std::filesystem::path& record);

  // The variables that the launcher needs to use it.
  std::vector<std::pair<std::string, std::string>> Environment() const;
  void Remove() const;

 private:
  std::filesystem::path record_, folder_;
};

// The name of the record in a trial's directory.
inline constexpr const char* kSessionRecord = "session.txt";

// Removes the folder in `record`, if it is a session's folder of this user; then `record`.
void RemoveSession(const std::filesystem::path& record);

}  // namespace sparfuse::harness
