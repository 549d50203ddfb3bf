// Holds a small catalog and a folder that is deleted, for the harness's tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

inline Catalog SmallCatalog() {
  Catalog catalog;
  const auto part = [](auto entry, const char* name, std::vector<OptionSpec> options = {}) {
    entry.name = name;
    entry.options = std::move(options);
    return entry;
  };
  CatalogStrategy sparse;
  sparse.sparse = true;
  catalog.strategies = {part(CatalogStrategy{}, "dense-units"), part(sparse, "ahead")};
  sparse.from_fused = true;
  catalog.strategies.push_back(part(sparse, "behind"));
  catalog.planners = {
      part(CatalogPlanner{}, "layer-wise"),
      part(CatalogPlanner{}, "by-bytes", {{"threshold_bytes", 1000.0, 1, 1e9, {}, ""}})};
  catalog.sparsifiers = {part(CatalogSparsifier{}, "topk"),
                         part(CatalogSparsifier{}, "dgc", {{"sample", 0.01, 1e-6, 1, {}, ""}})};
  CatalogCollective gather;
  gather.sparse = true;
  CatalogCollective native;
  native.native = true;
  native.transports = {"mpi", "nccl"};
  CatalogCollective native_gather = native;
  native_gather.sparse = true;
  native_gather.transports = {"nccl"};
  catalog.collectives = {part(CatalogCollective{}, "ring-allreduce"),
                         part(native, "native-allreduce"), part(gather, "sparse-allgather"),
                         part(native_gather, "nccl-allgather")};
  CatalogWorkload workload;
  workload.unit = "images";
  workload.batch_per_worker = 32;
  workload.recipe = {{"learning_rate", 0.1, 0, 10, {}, ""}};
  workload.convergence = {100, 10, 0.97};
  CatalogWorkload synthetic = workload;
  synthetic.small = "digits-resnet";
  catalog.workloads = {part(workload, "digits-resnet"), part(workload, "text-gpt"),
                       part(synthetic, "resnet50-imagenet")};
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
