// Joins methods that an experiment file does not name to its method axes (--with-method).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/experiment/cells.hpp"

namespace sparfuse::harness {

// Where the axis at `pointer` lists methods: a row for each of `joined` that it lacks, which is
// also added to `axis`, the table as figures read it. Keys beside the method that belong to a
// method (its options, its sparsifier, feedback) are left to its defaults; of others the new method
// takes each combination that the axis has.
void JoinMethods(std::span<const std::string> joined, const std::string& pointer,
                 std::vector<GivenKeys>& rows, nlohmann::json& axis);

// Adds `joined` to the lists of methods by which a figure chooses its cells.
void JoinFigure(std::span<const std::string> joined, nlohmann::json& figure);

}  // namespace sparfuse::harness
