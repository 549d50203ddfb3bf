// Completes the entries of figures with all that they show: what is drawn, and finished tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// Adds to a figure's entry (JSON, as kinds have unlike keys):
//   panels     of kinds that have some: [{cells, head, rest, heading}]; beside these
//              grouped_bars and normalised_bars: places (ticks) and bars [{place, name, cell,
//              value, low, high, dots, why, printed: [[row, height]]}]; breakdown: rows; ablation:
//              steps [{largest: [row, percent], stated}] for each variant but the first. Rows are
//              positions in published.rows.
//   names      of these bars: [[name, words]] of the series
//   variants   of an ablation
//   x          of kinds that have an axis of a key, the usual one filled in
//   reference  of sensitivity and normalised_bars: the method that the figure divides by; of
//              normalised_bars, which go on as grouped_bars, also as normalise, and y filled in
//   published  if it has some: source, artifacts, elsewhere, and of each row name, of, number,
//              from_text, calibrated, setting
//   tables     those of an agreement or a time to target, or the kind's own: [{columns, groups:
//   [[heading, rows]], notes}], for a page and as CSV
// `calibration` as the experiment has it.
void CompleteFigure(nlohmann::json& figure, const PartResult& result,
                    const std::vector<std::string>& calibration, const Catalog& catalog);

}  // namespace sparfuse::harness
