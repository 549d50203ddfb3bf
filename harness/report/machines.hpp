// Finds the machines that have trials.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

inline constexpr std::size_t kShownMachineHash = 12;

// In the form that people see and type: the head of the hash, and the origin if there is one.
std::string ShownMachine(const std::string& machine);

// By hash (MachineOf), with a line on the hardware; without machines that have profiles alone.
std::map<std::string, std::string> MachinesOf(const std::vector<TrialRow>& rows);

// A line for each machine, each after a line end; "none" if there is none.
std::string ListOf(const std::map<std::string, std::string>& machines);

// The hash of the one machine that begins with this head, "HASH" or "HASH@ORIGIN". Without an
// origin in the head, a machine without one is preferred. Throws Error{kConfig} naming `where` they
// are, the head, and the known machines.
std::string NeedMachine(const std::map<std::string, std::string>& machines, const std::string& head,
                        const std::string& where);

}  // namespace sparfuse::harness
