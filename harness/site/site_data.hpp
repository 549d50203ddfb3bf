// Gathers the content of a site's pages, as the JSON file from which they are made.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/site/site_systems.hpp"

namespace sparfuse::harness {

inline constexpr int kSiteSchema = 1;

// As `sparfuse list --json` has them.
struct SiteCatalog {
  nlohmann::json methods, workloads;
};

// The data.json of docs/reference/site-data.md. Equal trials give equal JSON, in whatever order
// they were merged. `compare.experiments` is ignored.
nlohmann::json SiteData(const std::vector<SiteSystem>& systems, const SiteCatalog& catalog,
                        const CompareRequest& compare);

}  // namespace sparfuse::harness
