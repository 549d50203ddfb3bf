#include "harness/catalog/tables/table_workload.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/base/error.hpp"
#include "harness/catalog/tables/model_table_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "table:";
constexpr std::string_view kExtension = ".json";

// What follows the prefix: FILE.json in experiment files, NAME@HASH in cells.
std::string_view RestOf(std::string_view workload) { return workload.substr(kPrefix.size()); }

bool IsFile(std::string_view rest) { return rest.ends_with(kExtension); }

fs::path FindFile(const fs::path& file, const fs::path& folder) {
  std::vector<std::string> tried;
  for (const fs::path& from : {folder, fs::path()}) {
    const fs::path path = fs::absolute(from / file).lexically_normal();
    std::error_code failed;
    if (fs::is_regular_file(path, failed)) return path;
    if (tried.empty() || tried.front() != path.string()) tried.push_back(path.string());
  }
  SPARFUSE_THROW(kConfig, fmt::format("no file at {}: expected that of a model table",
                                      fmt::join(tried, " or ")));
}

}  // namespace

std::string TableWorkloadName(std::string_view given, const fs::path& folder) {
  const std::string_view rest = RestOf(given);
  if (!IsFile(rest)) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("expected \"{}FILE{}\"{}", kPrefix, kExtension,
                    rest.find('@') == std::string_view::npos ? "" : "; the hash is worked out"));
  }
  const fs::path path = FindFile(rest, folder);
  const std::string text = ReadFile(path);
  const std::string name = fmt::format("{}{}@{}", kPrefix, path.stem().string(), ShortHash(text));
  if (workloads::FindTable(name) == nullptr) {  // an experiment asks once a cell
    workloads::WorkloadDescriptor workload = ParseModelTable(path, text);
    workload.name = name;
    workloads::KnowTable(std::move(workload));
  }
  return name;
}

std::string WorkloadLabel(std::string_view workload) {
  if (!workloads::IsTable(workload)) return std::string(workload);
  const std::string_view rest = RestOf(workload);
  return IsFile(rest) ? fs::path(rest).stem().string()
                      : std::string(rest.substr(0, rest.rfind('@')));
}

bool MeansTable(std::string_view given, std::string_view resolved) {
  if (!workloads::IsTable(given) || !workloads::IsTable(resolved)) return false;
  return IsFile(RestOf(given)) && !IsFile(RestOf(resolved)) &&
         WorkloadLabel(given) == WorkloadLabel(resolved);
}

const workloads::WorkloadDescriptor& NeedTrainable(const Catalog& catalog,
                                                   const std::string& workload) {
  if (workloads::IsTable(workload)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("workload \"{}\": a table lists a model's tensors and cannot train "
                               "it, only experiments in mode modelled take it; expected one of "
                               "`sparfuse list workloads`",
                               workload));
  }
  return NeedEntry(catalog.workloads, "workload", workload);
}

}  // namespace sparfuse::harness
