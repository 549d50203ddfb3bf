#include "harness/files/durable_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace sparfuse::harness {

namespace fs = std::filesystem;

DurableWriter::DurableWriter(const fs::path& path, const std::string& suffix)
    : path_(path),
      temporary_(path.string() + suffix),
      file_(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC) {}

DurableWriter::~DurableWriter() {
  if (!renamed_) ::unlink(temporary_.c_str());
}

void DurableWriter::Commit() {
  file_.Sync();
  file_.Close();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) FailAt("rename to", path_, errno);
  renamed_ = true;
  const fs::path directory = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  Descriptor(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC).Sync();
}

}  // namespace sparfuse::harness
