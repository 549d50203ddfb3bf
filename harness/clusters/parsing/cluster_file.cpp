#include "harness/clusters/parsing/cluster_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "harness/catalog/model_table.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {
constexpr Range kSpreads{1, 1000};
}  // namespace

double SpreadOf(const std::string& kind) {
  for (const InputKind& each : InputKinds()) {
    if (kind == each.name) return each.spread;
  }
  return 1;
}

int ClusterFile::Count(const std::string& at, const char* key, Range range) const {
  if (!Has(at + "/" + key)) {
    toml_.Fail(at,
               fmt::format("the key \"{}\" is missing: expected an integer of at least 1", key));
  }
  return static_cast<int>(toml_.Integer(at, key, 0, range));
}

double ClusterFile::Needed(const std::string& at, const char* key, Range range) const {
  if (!Has(at + "/" + key))
    toml_.Fail(at, fmt::format("{} is missing: expected a number from {}", key, Text(range)));
  return toml_.Number(at, key, 0, range);
}

std::vector<double> ClusterFile::Numbers(const std::string& at, const char* key,
                                         Range range) const {
  const json* list = toml_.Find(at + "/" + key);
  const bool good = list != nullptr && list->is_array() && list->size() >= 2 &&
                    std::ranges::all_of(*list, [&](const json& each) {
                      return WhatIsWrongWithNumber(each, range).empty();
                    });
  if (!good) {
    toml_.Fail(
        at, fmt::format("{}: expected a list of at least two numbers from {}", key, Text(range)));
  }
  return list->get<std::vector<double>>();
}

std::string ClusterFile::Kind(const std::string& at) const {
  std::vector<std::string> names;
  for (const InputKind& each : InputKinds()) names.emplace_back(each.name);
  if (!Has(at + "/kind")) {
    toml_.Fail(
        at, fmt::format("the key \"kind\" is missing: expected one of {}", fmt::join(names, ", ")));
  }
  const std::string kind = toml_.RequiredString(at, "kind");
  if (std::ranges::find(names, kind) == names.end()) {
    toml_.FailValue(at + "/kind", fmt::format("one of {}: a published result is no input, except "
                                              "for the steps that [[reference]] names",
                                              fmt::join(names, ", ")));
  }
  return kind;
}

std::string ClusterFile::Workload(const std::string& at) const {
  std::string workload = toml_.RequiredString(at, "workload");
  return At(at + "/workload", [&] {
    if (workloads::IsTable(workload)) {
      workload = TableWorkloadName(workload, std::filesystem::path(toml_.name()).parent_path());
    }
    workloads::FindWorkload(workload);
    return workload;
  });
}

double ClusterFile::Spread(const std::string& at, const std::string& kind) const {
  return toml_.Number(at, "spread", SpreadOf(kind), kSpreads);
}

std::vector<std::string> ClusterFile::Families(const std::string& at,
                                               const std::string& workload) const {
  const json* families = toml_.Find(at + "/families");
  if (families == nullptr) return {std::string(workloads::FindWorkload(workload).family())};
  const bool good = families->is_array() && !families->empty() &&
                    std::ranges::all_of(*families, [](const json& e) { return e.is_string(); });
  if (!good) toml_.FailValue(at + "/families", "a list of workload families");
  return families->get<std::vector<std::string>>();
}

std::size_t ClusterFile::OneOf(const std::string& at, const char* key,
                               std::span<const char* const> names, const char* otherwise) const {
  const std::string given = toml_.String(at, key, otherwise);
  const auto found = std::ranges::find(names, given);
  if (found == names.end())
    toml_.FailValue(at + "/" + key, fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace sparfuse::harness
