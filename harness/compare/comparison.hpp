// Compares what machines say of the same experiments: ratios within each block of a machine first,
// then these between machines. Absolute values are shown and never judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/compare/differences.hpp"
#include "harness/compare/regime.hpp"
#include "harness/compare/side.hpp"
#include "harness/statistics/contrast.hpp"

namespace sparfuse::harness {

struct CompareRequest {
  std::vector<std::string> experiments;  // ids; empty: all that two sides have
  std::string metric;                    // "": throughput, and of convergence trials final_metric
  std::string reference = "dense";       // the method that ratios are to
  double within = kSameWithin;
  DisturbedTrials disturbed = DisturbedTrials::kApart;
};

// What one side says of a cell.
struct SideValue {
  std::vector<double> ratios;  // to the reference, by block
  std::optional<Interval> ratio, absolute;
  std::string lacks;  // "" or why there is no ratio
};

// A side against the first one.
struct SideVerdict {
  std::string why_not;  // "" or why they cannot be compared
  Contrast contrast;    // of the first's ratio over this side's, where they can
};

struct ComparedCell {
  CellKey key;
  nlohmann::json config;
  std::string unit;                   // of the metric
  std::size_t setting = 0;            // its position in ComparedPart::settings
  std::vector<SideValue> sides;       // as the sides
  std::vector<SideVerdict> verdicts;  // of all sides but the first
  std::string plans;                  // "" or how the sides' fusion plans differ
};

// Of cells that differ in their method alone.
struct ComparedSetting {
  nlohmann::json config;        // of its reference, or of another cell where it has none
  std::vector<Regime> regimes;  // by side
};

struct ComparedPart {
  std::string experiment, part;
  std::vector<ComparedCell> cells;  // without the reference's
  std::vector<ComparedSetting> settings;
};

struct SystemComparison {
  std::vector<ComparedPart> parts;
  std::vector<FactDifference> differences;  // of the trials that are compared
};

// Precondition: at least two sides.
SystemComparison CompareSystems(const std::vector<SystemSide>& sides,
                                const CompareRequest& request);

}  // namespace sparfuse::harness
