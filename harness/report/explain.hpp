// Chooses the two cells that `sparfuse explain` compares.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct ExplainRequest {
  std::string experiment;              // as it was typed, for the commands that errors offer
  std::string part;                    // "": any
  std::string of, over;                // "method=safusion,workers=2"; "" gives no key
  std::filesystem::path results = {};  // whose trials' private.json says how one failed
};

struct ExplainedCells {
  const CellResult* of = nullptr;
  const CellResult* over = nullptr;
};

// The two cells that the request's keys leave. A key is one of a configuration or a path into its
// tables (link.gbps=1), a value is JSON where it parses and a string elsewhere; "none" is null. The
// modelled twins of a part are looked at where a side says mode=modelled or the request names their
// part. `parts` and `results` belong together; `rows` say how a cell without a result failed.
//
// Throws Error{kConfig}: an unknown part, key or value (with the nearest known), keys that leave
// several cells (with the keys that tell them apart and, where the sides agree in these, the
// command completed), the same cell twice, a cell of which no trial counts (with what happened and
// the command that runs it).
ExplainedCells ChooseExplained(const std::vector<Part>& parts,
                               const std::vector<PartResult>& results,
                               const std::vector<TrialRow>& rows, const ExplainRequest& request);

}  // namespace sparfuse::harness
