// Locks a results folder: who writes to it holds the lock.
#pragma once

#include <filesystem>
#include <memory>

namespace sparfuse::harness {

class StoreLock {
 public:
  // Waits a few seconds if a reader updates the index, or if the processes of a killed run are
  // still ending. Throws Error{kConfig} naming the process that holds it.
  explicit StoreLock(const std::filesystem::path& results);
  // For a reader that will hold it for moments: null if another process holds it.
  static std::unique_ptr<StoreLock> TryLock(const std::filesystem::path& results);
  ~StoreLock();
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;

 private:
  explicit StoreLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace sparfuse::harness
