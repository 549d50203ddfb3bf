// Makes an experiment of the trials that a store has of it, where its file is gone or elsewhere.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// The parts and cells that `rows` have of the experiment `id`, in the order of their first trials,
// twins behind their parts; no parts where there are none. Claims, figures, titles and what a file
// says beside its cells are not in a store; of each part the reference is dense where it has that.
// Rows that this program cannot read a cell or parts of are left out, with the reason in
// `problems`.
Experiment StoredExperiment(const std::string& id, const std::vector<TrialRow>& rows,
                            const Catalog& catalog, std::vector<std::string>& problems);

// Data and weights that are not on this machine have no id, and nobody knows how long an epoch of
// them is: a cell that names them is no stored trial's. Such a cell becomes that of the
// experiment's trials in `rows` that have all else of it, where these are of one configuration:
// results are shown without the data.
void FindStoredCells(Experiment& experiment, const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness
