// Computes the gain of each variant of an ablation over the one before it, and finds the gains
// that a paper prints.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/figures/panels.hpp"
#include "harness/report/figures/published_rows.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// The variants: the figure's `methods`, else the methods of its cells in the experiment's order.
std::vector<std::string> VariantsOf(const nlohmann::json& figure, const PartResult& result);

// A gain that a paper's figure has, or that its text states ("up to 12 %").
struct PrintedGain {
  const PublishedRow* row = nullptr;
  double ratio = 1;
};

// The step from a variant of a panel to the next.
struct AblationStep {
  std::string variant, before;
  std::vector<std::pair<nlohmann::json, PrintedGain>> printed;  // by place of published rows
  const PublishedRow* stated = nullptr;
};
// A step for each variant after the first. `rows` are the panel's.
std::vector<AblationStep> AblationSteps(const std::vector<std::string>& variants,
                                        const Panel& panel, const PartResult& result,
                                        const PublishedRows& published,
                                        const std::vector<const PublishedRow*>& rows,
                                        const std::string& x);

// The rows of a panel in the table of gains.
std::vector<std::vector<std::string>> AblationRows(const nlohmann::json& figure, const Panel& panel,
                                                   const PartResult& result,
                                                   const std::vector<AblationStep>& steps);
inline constexpr const char* kGainNote =
    "Gain: ours / the variant before − 1, paired over blocks, with its 95 % t interval.";

// {largest: [row, percent] of the largest printed gain or null, stated: row or null}
nlohmann::json ToJson(const AblationStep& step);

}  // namespace sparfuse::harness
