// Compares the parts of two cells' steps, block by block: the statistics of `sparfuse explain`.
#pragma once

#include <nlohmann/json.hpp>

namespace sparfuse::harness {

// `of` and `over`: {block: {part: seconds}}, as sparfuse_report/explain.py finds them in the series
// of trials. Returns {paired, blocks: {of, over}, parts: {part: {of, over, difference}}}: the means
// over the blocks, and the interval of the paired difference. Unpaired, which are all blocks and no
// interval, where the modes differ or no block is in both.
nlohmann::json StepDifferences(const nlohmann::json& of, const nlohmann::json& over,
                               bool same_mode);

}  // namespace sparfuse::harness
