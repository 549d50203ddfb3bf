// Finds the machines that have trials, and sums up where and with what sources trials ran.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"
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

// "9104e56f3b", "9104e56f3b with changes"; "" if the trial does not record its source.
std::string SourceOf(const TrialRow& trial);

// {trials, first_utc, last_utc, sources: [{source, trials}], systems: [{hash, hardware, trials,
// facts: {name: value}}], facts: {name: [values]}} over the trials that count, each once. Names of
// nested facts are joined by dots. Pages and sites list it in this form.
nlohmann::json ProvenanceOf(const std::vector<PartResult>& results);

}  // namespace sparfuse::harness
