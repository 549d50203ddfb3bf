// Finds the bars of figures of kinds "grouped_bars" and "normalised_bars": our numbers, and the
// papers' over them.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// A slot with our number, the paper's, or both.
struct GroupedBar {
  std::size_t place = 0;                 // in the panel's places
  std::string name = {};                 // of the series
  std::optional<std::size_t> cell = {};  // position in the part; nothing if only the paper has it
  std::optional<Interval> value = {};    // of ours, or of our ratio
  std::vector<double> dots = {};         // the value of each block
  std::string why = {};                  // the words if there is no value
  std::vector<std::pair<const PublishedRow*, double>> printed = {};  // and the height of each

  // The first that is stated in text, or that is drawn; null for none.
  const std::pair<const PublishedRow*, double>* Printed(bool stated) const;
};

struct GroupedPanel {
  Panel panel;
  std::vector<std::string> places;  // ticks, in the order of the axis
  std::vector<GroupedBar> bars;     // by place, then in the order of the experiment
};

struct GroupedBars {
  std::vector<GroupedPanel> panels;
  std::vector<const PublishedRow*> elsewhere;              // PublishedRows::Placed
  std::vector<std::pair<std::string, std::string>> names;  // of our series, and their words
};
// `published` must outlive it.
GroupedBars GroupedBarsOf(const nlohmann::json& figure, const PartResult& result,
                          const PublishedRows& published);

// Our numbers next to the paper's.
GroupedTable GroupedBarsTable(const nlohmann::json& figure, const PartResult& result,
                              const GroupedBars& bars, const PublishedRows& published,
                              const Catalog& catalog);

// {place, name, cell, value, low, high, dots, why, printed: [[row, height]]}; null for nothing.
nlohmann::json ToJson(const GroupedBar& bar);

// A table's words for the distance of our number from theirs; either may be absent.
std::string ApartText(const std::optional<double>& ours, const std::optional<double>& theirs,
                      bool calibrated);

}  // namespace sparfuse::harness
