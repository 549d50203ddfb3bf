// Summarises where the trials that count came from: sources, systems, software, dates.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// "9104e56f3b", "9104e56f3b with changes"; "" where the trial does not record its source.
std::string SourceOf(const TrialRow& trial);

// Texts as they stand in pages, which others may see: without folders, tokens and the names of this
// machine and of who is at it.
std::string Shareable(const std::string& text);
// What people said of a trial of the store in `results`, in its annotations: without the names that
// its private.json has, too.
std::vector<std::string> ShareableAnnotations(const TrialRow& trial,
                                              const std::filesystem::path& results);

// {trials, first_utc, last_utc, sources: [{source, trials}], systems: [{hash, hardware, trials,
// facts: {name: value}}], facts: {name: [values]}} over the trials that count, each once. Names of
// nested facts are joined by dots. It is written as it is: pages and sites list it.
nlohmann::json ProvenanceOf(const std::vector<PartResult>& results);

}  // namespace sparfuse::harness
