#include "harness/report/machines.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

std::map<std::string, std::string> MachinesOf(const std::vector<TrialRow>& rows) {
  std::map<std::string, std::string> machines;
  for (const TrialRow& row : rows) {
    const std::string machine = MachineOf(row);
    if (!machine.empty() && row.kind != "profile") machines[machine] = HardwareLine(row);
  }
  return machines;
}

std::string ShownMachine(const std::string& machine) {
  const std::size_t at = machine.find('@');
  return machine.substr(0, kShownMachineHash) + (at == std::string::npos ? "" : machine.substr(at));
}

std::string ListOf(const std::map<std::string, std::string>& machines) {
  std::string text;
  for (const auto& [hash, hardware] : machines)
    text += fmt::format(
        "\n  {}  {}{}", ShownMachine(hash), hardware,
        hash.find('@') != std::string::npos ? "; several hosts, of another results folder" : "");
  return text.empty() ? "\n  none" : text;
}

std::string NeedMachine(const std::map<std::string, std::string>& machines, const std::string& head,
                        const std::string& where) {
  const std::size_t at = head.find('@');
  const std::string origin = at == std::string::npos ? "" : head.substr(at);
  std::vector<std::string> found, own;
  for (const auto& [hash, hardware] : machines) {
    const std::size_t from = std::min(hash.find('@'), hash.size());
    if (!hash.starts_with(head.substr(0, at)) || !hash.substr(from).starts_with(origin)) continue;
    found.push_back(hash);
    if (from == hash.size()) own.push_back(hash);
  }
  if (found.size() == 1) return found.front();
  if (own.size() == 1 && !head.empty()) return own.front();
  if (machines.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}: expected trials that ran on a system, measured or emulated; it "
                               "has none",
                               where));
  }
  if (head.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} has several systems: expected the head of the hash of "
                                        "one of{}",
                                        where, ListOf(machines)));
  }
  SPARFUSE_THROW(
      kConfig, fmt::format("{} system of {} begins with \"{}\": expected one of{}",
                           found.empty() ? "no" : "more than one", where, head, ListOf(machines)));
}

}  // namespace sparfuse::harness
