// Holds a small catalog, and a folder that is deleted after a test, for the harness's tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

// The parts of the program, and three methods.
inline Catalog SmallCatalog() {
  Catalog catalog{
      {}, Strategies(), Planners(), Sparsifiers(), Collectives(), workloads::Workloads()};
  const auto method = [&](const char* name, const char* strategy, const char* planner,
                          const char* sparsifier, const char* collective) {
    Method made;
    made.name = made.title = name;
    made.revision = 1;
    made.strategy = strategy;
    made.planner = planner;
    made.sparsifier = sparsifier;
    made.feedback = made.dense() ? "none" : "residual";
    made.collective = collective;
    catalog.methods.push_back(made);
  };
  method("dense", "dense-units", "by-bytes", "none", "ring-allreduce");
  method("wfbp", "ahead", "layer-wise", "topk", "sparse-allgather");
  method("syncea", "behind", "by-bytes", "topk", "sparse-allgather");
  return catalog;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "sparfuse-test-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sparfuse::harness
