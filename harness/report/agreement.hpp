// Compares absolute predictions with a paper's measurements on the modelled machines, and sums up
// their errors in tables: the numbers of a figure of kind "agreement".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// The quantile, by straight lines between the sorted values. Precondition: values is not empty.
double QuantileOf(std::vector<double> values, double part);

// Whether two published numbers differ by so much that methods have an order.
bool HaveOrder(double one, double other);

// {"pairs": [{cell, theirs, error, unit, calibrated}], "median_error": "2.1 %" or null if no pair
// counts, "counted", "tables": [{columns, groups: [[heading, rows]], notes}]}. A pair is a cell of
// the figure, by its position, and its published number. `error` is ours / theirs - 1. Pairs to
// which a cluster was fitted (`calibration`, as in an experiment) are marked, and count only in the
// order of methods. It is JSON, because it is a part of the figure's entry.
nlohmann::json AgreementOf(const nlohmann::json& figure, const PartResult& result,
                           const std::vector<std::string>& calibration, const Catalog& catalog);

}  // namespace sparfuse::harness
