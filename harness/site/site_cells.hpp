// Lists every cell on every system: its ratio to the reference, its own value, and the trials that
// these are of.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/site/site_systems.hpp"

namespace sparfuse::harness {

// Each: system, experiment, part, config_hash, method, workload, workers, mode, kind, setting
// [[key, text]], metric, unit, is_reference, reference (config_hash or null), ratio and absolute
// ({value, low, high, n} or null), lacks (why there is no ratio), trials (ids), disturbed (how
// many of them were), apart (of these, whose values do not count), failed [{trial, why, message}].
// By experiment, part, setting, method and system.
nlohmann::json SiteCells(const std::vector<SiteSystem>& systems, const CompareRequest& request);

}  // namespace sparfuse::harness
