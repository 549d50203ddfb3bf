// Tables the effect of factors on a declared cluster's inputs: on ratios, and on the order of
// methods.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/figures/panels.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// The ratios to the reference at declared and at changed inputs, and the changes that turn the
// order of two methods round. Panels without a ratio at declared inputs are left out.
GroupedTable SensitivityTable(const nlohmann::json& figure, const PartResult& result,
                              const std::vector<Panel>& panels);

// The method that a figure divides by: its own reference, else the part's.
std::string ReferenceOf(const nlohmann::json& figure, const PartResult& result);

}  // namespace sparfuse::harness
