// Lists the registries' entries and the experiments, as JSON and as text.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// What can be listed: "methods", "sparsifiers", ...
const std::vector<std::string>& Listings();

// An array of objects, each with name, summary and what else there is to say. Experiments are those
// beneath the folder of that name, as `load` reads them.
nlohmann::json Listing(const std::string& what, const Catalog& catalog,
                       const std::filesystem::path& experiments,
                       const std::function<Experiment(const std::filesystem::path&)>& load);

// The same as lines of text.
std::string ListText(const std::string& what, const nlohmann::json& entries);

}  // namespace sparfuse::harness
