// Chooses the two cells that `sparfuse explain` compares.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct ExplainRequest {
  std::string experiment;              // as typed, for the commands that errors offer
  std::string part;                    // "": any
  std::string of, over;                // "method=safusion,workers=2"; "" gives no key
  std::filesystem::path results = {};  // its trials' private.json has the reason of a failure
};

struct ExplainedCells {
  const CellResult* of = nullptr;
  const CellResult* over = nullptr;
};

// Finds the two cells that the request's keys leave. A key is a key of a configuration or a path
// into its tables (link.gbps=1). A value is JSON if it parses, else a string; "none" is null. The
// modelled twins of a part are searched if a side says mode=modelled or the request names their
// part. `parts` and `results` belong together; `rows` have the reason why a cell has no result.
//
// Throws Error{kConfig} for an unknown part, key or value (with the nearest known one); for keys
// that leave several cells (with the keys that distinguish them, and, if the sides agree in these,
// the completed command); for the same cell twice; and for a cell without a trial that counts (with
// the reason and the command that runs it).
ExplainedCells ChooseExplained(const std::vector<Part>& parts,
                               const std::vector<PartResult>& results,
                               const std::vector<TrialRow>& rows, const ExplainRequest& request);

}  // namespace sparfuse::harness
