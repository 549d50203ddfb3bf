// Reads what nccl-tests writes with -J (version 2 of the form, src/util.cu).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.hpp"
#include "harness/clusters/imported/log_lines.hpp"
#include "harness/clusters/imported/nccl_tests_rows.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

class NcclJson {
 public:
  NcclJson(const json& root, const std::string& file) : root_(root), file_(file) {}

  const json& Need(const std::string& key, const char* expected) const {
    const json::json_pointer at(key);
    if (!root_.contains(at)) Fail(key, fmt::format("is missing: expected {}", expected));
    return root_.at(at);
  }
  double Number(const std::string& key) const {
    const json& value = Need(key, "a number");
    if (!value.is_number() || value.get<double>() < 0) Fail(key, "expected a number");
    return value.get<double>();
  }
  std::string String(const std::string& key) const {
    const json& value = Need(key, "a string");
    if (!value.is_string()) Fail(key, "expected a string");
    return value.get<std::string>();
  }
  std::size_t Length(const std::string& key) const {
    const json& list = Need(key, "a list");
    if (!list.is_array() || list.empty()) Fail(key, "expected a list that is not empty");
    return list.size();
  }
  [[noreturn]] void Fail(const std::string& key, const std::string& message) const {
    FailAt(file_, 0, key + ": " + message);
  }

 private:
  const json& root_;
  const std::string& file_;
};

json Parsed(std::string_view text, const std::string& file) {
  try {
    return ParseJson(text, file);
  } catch (const Error& error) {  // of a file that was cut off, say
    SPARFUSE_THROW(kConfig, error.what());
  }
}

}  // namespace

LinkLog ReadNcclTestsJson(std::string_view text, const std::string& file, const AskedOfLog& asked) {
  const json root = Parsed(text, file);
  const NcclJson in(root, file);
  LinkLog log;
  log.file = file;
  log.sha256 = Sha256Hex(text);
  in.Length("/args");
  SetOperation(file, in.String("/args/0"), asked, log);
  // One entry a process, which may have several threads with several cards each.
  const std::size_t processes = in.Length("/config/devices");
  const double each = in.Number("/config/nthreads") * in.Number("/config/ngpus");
  constexpr double kMostRanks = 1 << 20;
  const double ranks = static_cast<double>(processes) * each;
  if (!(ranks >= 1 && ranks <= kMostRanks)) in.Fail("/config/ngpus", "expected at least 1");
  std::set<std::string> hosts;
  for (std::size_t d = 0; d < processes; ++d) {
    const std::string device = fmt::format("/config/devices/{}", d);
    hosts.insert(in.String(device + "/hostname"));
    if (in.Number(device + "/group") != 0) in.Fail(device + "/group", "expected one group, 0");
  }
  log.ranks = SaidOrAsked(file, log, "ranks", static_cast<int>(ranks), asked.ranks);
  log.nodes = SaidOrAsked(file, log, "nodes", static_cast<int>(hosts.size()), asked.nodes);
  const std::size_t rows = in.Length("/results");
  for (std::size_t r = 0; r < rows; ++r) {
    const std::string row = fmt::format("/results/{}", r);
    const std::string times = row + "/out_of_place";
    if (root.contains(json::json_pointer(times + "/cpu_time"))) {
      in.Fail(times + "/cpu_time",
              "the run had -C 1 and timed the processor; expected the key time");
    }
    NcclTestsRow read{in.Number(row + "/size"),
                      1e-6 * in.Number(times + "/time"),
                      in.Number(times + "/alg_bw"),
                      in.Number(times + "/bus_bw"),
                      {}};
    if (!in.Need(times + "/nwrong", "a number or null").is_null())
      read.wrong = in.Number(times + "/nwrong");
    AddRow(file, 0, row, read, log);
  }
  if (in.Number("/out_of_bounds/count") != 0)
    in.Fail("/out_of_bounds/count", "the results are wrong; expected 0");
  if (log.samples.empty()) in.Fail("/results", "expected rows of more than 0 bytes");
  return log;
}

}  // namespace sparfuse::harness
