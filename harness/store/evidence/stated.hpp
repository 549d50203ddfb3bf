// What a trial states, in the forms in which evidence is held to it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/records/trial.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// Whether two numbers are one: logarithms of other machines round otherwise.
bool AreEqual(double a, double b);

// Configurations are JSON here: a trial of an earlier bundle lacks keys, and a forged one has any.

// Of a configuration, or a table of it; 0 where it has no such number, "" where it has no such
// text.
double NumberOf(const nlohmann::json& config, const char* key);
std::string TextOf(const nlohmann::json& config, const char* key);

// Whether ranks ran: of a model nothing was measured.
bool IsLive(const Trial& trial);
bool IsProfile(const Trial& trial);

// Null for a workload that the catalogue does not have.
const workloads::WorkloadDescriptor* WorkloadOf(const nlohmann::json& config);

// "NAME: trial.json has A, its steps give B".
std::string SaidAndGiven(const std::string& name, const nlohmann::json& stored,
                         const nlohmann::json& given, const char* by = "its steps give");

}  // namespace sparfuse::harness
