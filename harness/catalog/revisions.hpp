// Lists the revisions of the parts that a trial uses, and tells what differs between two tables.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

// {"engine": 1, "method:wfbp": 1, "strategy:ahead": 1, ...} of a cell or a profile.
nlohmann::json RevisionsOf(const Catalog& catalog, const CellConfig& config);

// What differs between two tables of scalars or tables, as "density 0.01 -> 0.001, workers 2 -> 4";
// "" where nothing does.
std::string WhatDiffers(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace sparfuse::harness
