// Finds the machines whose trials there are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

inline constexpr std::size_t kShownMachineHash = 12;

// As people see and type it: the head of the hash, and the origin where there is one.
std::string ShownMachine(const std::string& machine);

// By hash (MachineOf), with a line about the hardware; without those that were profiled alone.
std::map<std::string, std::string> MachinesOf(const std::vector<TrialRow>& rows);

// A line a machine, each after a line end; "none" where there is none.
std::string ListOf(const std::map<std::string, std::string>& machines);

// The hash of the one machine that has this head, "HASH" or "HASH@ORIGIN"; without an origin, one
// that has none goes before those that do. Throws Error{kConfig} naming `where` they are,
// the head, and the machines there are.
std::string NeedMachine(const std::map<std::string, std::string>& machines, const std::string& head,
                        const std::string& where);

}  // namespace sparfuse::harness
