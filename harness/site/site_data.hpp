// Finds the systems that a store has trials of, and gathers the content of a site's pages, as the
// JSON file from which they are made.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/compare/side.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {

// A file of results/systems.
struct DescribedSystem {
  std::string name;
  nlohmann::json content;  // as the file has it, for its page
  std::vector<Node> nodes;
};

struct SiteSystem {
  // The head of a machine's hash, "cluster NAME" or "imported NAME (HASH)"; no two have the same.
  std::string key;
  // A cluster that somebody declared, all of it modelled, or numbers of others: compared with
  // nothing.
  bool declared = false;
  SystemSide side;                         // named by its description, else by its key
  std::vector<DescribedSystem> described;  // descriptions with such a node
};

// Whether each node of a trial's system has the processor, cores, memory and cards of one of the
// described nodes. A value that the description leaves unknown matches no machine.
bool IsDescribedBy(const System& system, const std::vector<Node>& described);

// Machines first, in the order of their hashes. Of modelled trials, the trials of a cell's newest
// profile. Profiles themselves are left out.
std::vector<SiteSystem> SystemsOf(const std::vector<TrialRow>& rows,
                                  const std::vector<DescribedSystem>& described,
                                  const std::filesystem::path& results);

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
