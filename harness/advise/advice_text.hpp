// Words an answer: tables for people, JSON, and the experiment file that would keep it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/advise/advice.hpp"

namespace sparfuse::harness {

// Markdown: a table for each ranking, below it the deciding inputs, then the points at which the
// order changes.
std::string AdviceText(const Advice& advice);

// Markdown: the rates that utilisations need, a row a method.
std::string RatesText(const Advice& advice, const std::vector<NeededRates>& rates);

// The output of --json. phase, rates: null if they were not asked for; trace: the facts that came
// from a trace, null without one.
std::string AdviceJson(const Advice& advice, const PhaseDiagram* phase,
                       const std::vector<NeededRates>* rates = nullptr,
                       const nlohmann::json& trace = nullptr);
// A diagram, or rates, alone, as they are drawn.
std::string PhaseJson(const Advice& advice, const PhaseDiagram& phase);
std::string RatesJson(const Advice& advice, const std::vector<NeededRates>& rates);

// An experiment whose cells are the ranked cells. `calibration`: the published bars that calibrate
// the cluster; a file must name them.
std::string AdviceToml(const Advice& advice, const DeclaredCluster* cluster);

// "of 0.98x [0.91, 1.05]".
std::string TimesText(const Interval& times);

}  // namespace sparfuse::harness
