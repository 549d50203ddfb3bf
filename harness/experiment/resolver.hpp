// Holds a cell while it is resolved: the keys that the file gives, and the keys found so far.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "harness/experiment/cells.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/record.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// Each step fills its keys of config_, and refuses values that do not fit the steps before it.
class Resolver {
 public:
  Resolver(const CellSource& source, const std::string& at, const GivenKeys& given)
      : source_(source), at_(at), given_(given) {}

  CellConfig Resolve();

 private:
  bool Has(const std::string& key) const { return given_.contains(key); }
  void Need(const std::string& key) const;
  // The file's value of a key. Its type is checked already.
  template <class Value>
  Value Given(const std::string& key, Value fallback) const {
    return Has(key) ? given_.at(key).value.get<Value>() : fallback;
  }
  const std::string& ModeName() const { return NameOf(config_.mode); }
  std::filesystem::path FolderOfFile() const;

  // Names the line of the first of `keys` that the file gives.
  [[noreturn]] void Fail(std::initializer_list<const char*> keys, const std::string& message) const;
  // Runs `check`, and adds the line to its errors.
  template <class Check>
  auto At(std::initializer_list<const char*> keys, Check check) const {
    try {
      return check();
    } catch (const Error& error) {
      const auto key = std::ranges::find_if(keys, [&](const char* each) { return Has(each); });
      Fail(keys, key == keys.end() ? error.what()
                                   : fmt::format("{} = {}: {}", *key, Shown(given_.at(*key).value),
                                                 error.what()));
    }
  }
  Options ResolveTable(const char* key, const std::string& owner,
                       std::span<const OptionSpec> specs) const;

  // resolve.cpp
  // Takes the keys whose value needs no further step, from the table of keys. The steps find the
  // values of the other keys.
  void TakeWhatIsGiven();
  void Workload();
  const workloads::WorkloadDescriptor* Table();
  void Data();
  void Weights();
  // Checks the id in the file against the id of the content, and takes the latter.
  void TakeId(const char* key, const std::string& place, const std::string& there,
              std::string& id) const;
  std::size_t TrainingSamples() const;  // of its data
  double StepsPerEpoch() const;
  void Size();
  void Place();
  void Length();

  // resolve_method.cpp
  void Method();
  harness::Method FindMethod();
  void GiveFolder(nlohmann::json& options) const;  // of a part from outside: any keys
  void CheckCollective() const;
  bool HasTransport(const CollectiveDescriptor& collective) const;
  const CollectiveDescriptor* BackendsOwn(const std::string& collective) const;
  const CollectiveDescriptor* NativeOver(PayloadKind payload) const;
  void Sparsity(const harness::Method& method);
  double UsualDensity() const;
  void FeedbackOf(const harness::Method& method);
  void ChosenSparsifier();
  void TensorsTreatedApart(const harness::Method& method);

  // resolve_cluster.cpp
  void Link();
  void EmulatedLink();
  void LinkOfCluster();
  void Cluster();
  void DeclaredClusterFits() const;
  void Inputs();
  void Buffers();
  bool HasDeclaredCluster() const;
  int DeclaredRanksPerNode(int workers) const;

  const CellSource& source_;
  const std::string& at_;
  const GivenKeys& given_;
  const workloads::WorkloadDescriptor* workload_ = nullptr;
  std::optional<workloads::ModelSize> model_;  // the workload's, as large as prepared data is
  std::size_t prepared_samples_ = 0;           // of prepared data that is there
  std::size_t prepared_tokens_ = 0;            // of a prepared text
  CellConfig config_;
};

}  // namespace sparfuse::harness
