// Summarises the origin of the trials that count: sources, systems, software, dates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// "9104e56f3b", "9104e56f3b with changes"; "" if the trial does not record its source.
std::string SourceOf(const TrialRow& trial);

// {trials, first_utc, last_utc, sources: [{source, trials}], systems: [{hash, hardware, trials,
// facts: {name: value}}], facts: {name: [values]}} over the trials that count, each once. Names of
// nested facts are joined by dots. Pages and sites list it in this form.
nlohmann::json ProvenanceOf(const std::vector<PartResult>& results);

}  // namespace sparfuse::harness
