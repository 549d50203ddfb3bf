// Words an answer: tables for people, JSON, and the experiment file that would keep it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/advise/answer.hpp"

namespace sparfuse::harness {

// Markdown: a table a ranking, what decides beneath it, then where the order changes.
std::string AdviceText(const Advice& advice);

nlohmann::json AdviceJson(const Advice& advice);
nlohmann::json PhaseJson(const Advice& advice, const std::vector<PhasePoint>& phase,
                         double inter_node_gbps);

// An experiment whose cells are the ranked ones; `calibration`: the bars that the cluster is
// calibrated with, which a file must name.
std::string AdviceToml(const Advice& advice, const DeclaredCluster* cluster);

// "of 0.98x [0.91, 1.05]".
std::string TimesText(const Interval& times);

nlohmann::json EffectsJson(const InputEffects& effects);

}  // namespace sparfuse::harness
