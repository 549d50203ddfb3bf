#include "harness/run/live/submit/block_queue.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '|');) fields.push_back(field);
  return fields;
}

std::optional<int> Number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

Queue ParseQueue(const std::string& lines) {
  Queue queue;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const auto fields = Fields(line);
    if (fields.size() < 4) continue;
    const auto block = Number(fields[1]);
    if (!block) continue;
    std::string where = fields.size() > 4 ? fields[4] : "";
    if (where.starts_with('(') && where.ends_with(')')) where = where.substr(1, where.size() - 2);
    // What ends (COMPLETING) still holds its nodes.
    queue[fields[0]][*block] = {fields[2] != "PENDING", fields[3], where};
  }
  return queue;
}

std::map<int, std::string> ParseAccounting(const std::string& lines) {
  std::map<int, std::string> blocks;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const auto fields = Fields(line);
    const std::size_t underscore = fields.empty() ? std::string::npos : fields[0].find('_');
    if (fields.size() < 2 || underscore == std::string::npos) continue;
    const auto block = Number(std::string_view(fields[0]).substr(underscore + 1));
    if (block) blocks[*block] = fields[1];  // a later line is of a later job
  }
  return blocks;
}

Queue QueuedBlocks() {
  bool ok = false;
  const std::string lines = CommandOutput(
      "squeue --noheader --array --user=\"$(id -u)\" --format='%j|%K|%T|%F|%R' 2>&1", ok);
  if (!ok) {
    SPARFUSE_THROW(kConfig, fmt::format("squeue does not say what is queued: \"{}\"; expected "
                                        "Slurm, and its controller to answer",
                                        lines));
  }
  return ParseQueue(lines);
}

std::map<int, std::string> EndedBlocks(const std::string& name) {
  bool ok = false;
  const std::string lines =
      CommandOutput(fmt::format("sacct --noheader --allocations --parsable2 --starttime=now-60days "
                                "--name={} --format=JobID,State "
                                "2>/dev/null",
                                name),
                    ok);
  return ok ? ParseAccounting(lines) : std::map<int, std::string>();
}

}  // namespace sparfuse::harness
