// Completes the entries of figures with all drawn values and with finished tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// Adds to a figure's entry (JSON, because the kinds have different keys):
//
//   panels     of kinds with panels: [{cells, head, rest, heading}]. grouped_bars adds places
//              (ticks) and bars [{place, name, cell, value, low, high, dots, why, printed:
//              [[row, height]]}]; breakdown adds rows; ablation adds steps [{largest: [row,
//              percent], stated}] for each variant after the first; normalised_bars adds printed,
//              a row or null for each cell. Rows are positions in published.rows.
//   names      of grouped_bars: [[name, words]] of the series
//   variants   of an ablation
//   x          of kinds with an axis of a key, filled in if it is the usual one
//   reference  of sensitivity and normalised_bars: the method that the figure divides by
//   published  if it has some: source, artifacts, elsewhere, and of each row name, of, number,
//              from_text, calibrated, setting
//   tables     of an agreement or a time to target, or the kind's own: [{columns, groups:
//              [[heading, rows]], notes}], for a page and as CSV
//
// `calibration`: the experiment's.
void CompleteFigure(nlohmann::json& figure, const PartResult& result,
                    const std::vector<std::string>& calibration, const Catalog& catalog);

}  // namespace sparfuse::harness
