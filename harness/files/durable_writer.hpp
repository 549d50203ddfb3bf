// Writes a file in pieces that is complete or absent, whatever happens to the process or the disk.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "harness/files/descriptor.hpp"

namespace sparfuse::harness {

// Writes beside `path`, in PATH and `suffix`, until Commit. What fails throws Error{kData}, which
// names the file and the reason from the system.
class DurableWriter {
 public:
  explicit DurableWriter(const std::filesystem::path& path, const std::string& suffix = ".tmp");
  // Without Commit nothing is left, and what was at `path` before is still there.
  ~DurableWriter();
  DurableWriter(const DurableWriter&) = delete;
  DurableWriter& operator=(const DurableWriter&) = delete;

  void Write(std::string_view bytes) { file_.Write(bytes); }
  // fsyncs, renames, fsyncs the directory.
  void Commit();

 private:
  std::filesystem::path path_, temporary_;
  Descriptor file_;
  bool renamed_ = false;
};

}  // namespace sparfuse::harness
