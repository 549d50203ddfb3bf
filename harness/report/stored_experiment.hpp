// Makes an experiment from its trials in a store, if its file is gone or elsewhere.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// The parts and cells of the experiment `id` in `rows`, in the order of their first trials, with
// twins after their parts. No parts if there are no trials. A store does not have claims, figures,
// titles or other keys of the file. The reference of a part is dense if it has that method. Rows
// whose cell or parts this program cannot read are left out, with the reason in `problems`.
Experiment StoredExperiment(const std::string& id, const std::vector<TrialRow>& rows,
                            const Catalog& catalog, std::vector<std::string>& problems);

// Data and weights that are not on this machine have no id, and the length of their epochs is
// unknown. A cell that names them matches no stored trial. So it takes the configuration of the
// experiment's trials in `rows` that agree in all other keys, if these have one configuration.
// Results can then be shown without the data.
void FindStoredCells(Experiment& experiment, const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness
