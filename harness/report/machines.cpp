#include "harness/report/machines.hpp"

#include <fmt/format.h>

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

std::string ListOf(const std::map<std::string, std::string>& machines) {
  std::string text;
  for (const auto& [hash, hardware] : machines)
    text += fmt::format("\n  {}  {}", hash.substr(0, kShownMachineHash), hardware);
  return text.empty() ? "\n  none" : text;
}

std::string NeedMachine(const std::map<std::string, std::string>& machines, const std::string& head,
                        const std::string& where) {
  std::vector<std::string> found;
  for (const auto& [hash, hardware] : machines) {
    if (hash.starts_with(head)) found.push_back(hash);
  }
  if (found.size() == 1) return found.front();
  SPARFUSE_THROW(
      kConfig, fmt::format("{} system of {} begins with \"{}\": expected one of{}",
                           found.empty() ? "no" : "more than one", where, head, ListOf(machines)));
}

}  // namespace sparfuse::harness
