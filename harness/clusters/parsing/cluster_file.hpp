// Reads the keys that the tables of a declared cluster's file share. All functions throw
// Error{kConfig} naming file, line, key, value and the expected one.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/files/range.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

inline constexpr Range kWorkersOfClusters{1, 65'536};
inline constexpr Range kMilliseconds{1e-6, 1e9};
inline constexpr Range kCosts{1e-9, 1e9};

// The factor by which a number of InputKinds() may be off either way; 1 for any other kind.
double SpreadOf(const std::string& kind);

class ClusterFile {
 public:
  explicit ClusterFile(const TomlFile& toml) : toml_(toml) {}

  const TomlFile* operator->() const { return &toml_; }
  bool Has(const std::string& pointer) const { return toml_.Find(pointer) != nullptr; }

  // Checks that the keys of the table at `at`, called `what` in errors, are in `known`.
  void Keys(const std::string& at, const char* what, const std::vector<std::string>& known) const {
    toml_.CheckKeys(at, what, known);
  }
  // Calls `read` with the pointer of each of the [[tables]], if there are any.
  template <std::invocable<const std::string&> Read>
  void ForEach(const std::string& tables, Read read) const {
    const auto* list = toml_.Find("/" + tables);
    if (list == nullptr) return;
    if (!list->is_array()) toml_.Fail("/" + tables, fmt::format("expected [[{}]] tables", tables));
    for (std::size_t i = 0; i < list->size(); ++i) read(fmt::format("/{}/{}", tables, i));
  }
  // Calls `check`, and adds the place `at` to its Error.
  template <std::invocable Check>
  auto At(const std::string& at, Check check) const {
    try {
      return check();
    } catch (const Error& error) {
      toml_.Fail(at, error.what());
    }
  }

  // Members of the table at `at` that must be there.
  int Count(const std::string& at, const char* key, Range range) const;
  double Needed(const std::string& at, const char* key, Range range) const;
  std::vector<double> Numbers(const std::string& at, const char* key, Range range) const;
  std::string Kind(const std::string& at) const;      // of InputKinds()
  std::string Workload(const std::string& at) const;  // tables named from the file's folder

  // Optional keys.
  double Spread(const std::string& at, const std::string& kind) const;
  std::vector<std::string> Families(const std::string& at, const std::string& workload) const;
  // The position of a string among `names`.
  std::size_t OneOf(const std::string& at, const char* key, std::span<const char* const> names,
                    const char* otherwise) const;

 private:
  const TomlFile& toml_;
};

// A [[compute]] table.
void ReadCompute(const ClusterFile& file, const std::string& at, DeclaredCluster& cluster);

// Throws if two [[compute]] tables state times of one workload and batch that differ by more than
// their spreads explain. `places`: of each table, all of which have been read.
void CheckComputeAlike(const ClusterFile& file, const DeclaredCluster& cluster,
                       const std::vector<std::string>& places);

// The [[reference]] tables: their forward and backward become compute times of the cluster, their
// other parts its references. Published bars and rows are read from results/published.
void ReadReferences(const ClusterFile& file, const ProfileFolders& profiles,
                    DeclaredCluster& cluster);

}  // namespace sparfuse::harness
