// Lists the names that experiment files may use, and the experiments, as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

// The kinds of things that can be listed: "methods", "sparsifiers", ...
const std::vector<std::string>& Listings();

struct ListRequest {
  std::string what;     // "methods", "sparsifiers", ...: Listings()
  bool rounds = false;  // of collectives: steps and bytes for some numbers of ranks
};

// An array of objects, each with a name, a summary and the keys of its kind of part. It is JSON,
// because --json prints it in this form. Throws Error{kConfig}.
nlohmann::json Listing(Program& program, const ListRequest& request);

// The same as text; figures, keys, inputs and the rounds of collectives as Markdown tables.
std::string ListText(const std::string& what, const nlohmann::json& entries);

int ListVerb(Program& program, const ListRequest& request);

}  // namespace sparfuse::harness
