// Spreads the cells of a figure over its panels, and words the settings that tell panels apart.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// Figures are JSON in this folder, as an experiment's file gives them: kinds have unlike keys. So
// are values of a key of cells that only the figure names.

struct Panel {
  std::vector<std::size_t> cells = {};  // positions in the part, in its order
  std::string head = {};                // workloads, or "" if they stand on the axis
  std::string rest = {};     // other words that set it apart: "8 workers, 1 Gbit/s, emulated"
  std::string heading = {};  // both, with links in full: of its group in a table
};
nlohmann::json ToJson(const Panel& panel);

// In the order of the experiment's workloads, then by the values that set them apart. No two cells
// of a panel share a place. A dense cell, which has no density, stands in each panel of its
// setting. Empty for a kind without panels, such as "prediction".
std::vector<Panel> PanelsOf(const nlohmann::json& figure, const PartResult& result);

// The key along the axis, with "link" for "link_gbps"; the drawn metric; the key that tells the
// bars of a place apart: "label" for methods, unless the axis is a part of these.
std::string AxisOf(const nlohmann::json& figure);
std::string MetricOf(const nlohmann::json& figure);
std::string SeriesKeyOf(const nlohmann::json& figure);
// "fusion degree": a key of cells, or a way into a table of one, as a heading.
std::string AxisWords(const std::string& key);

// What a cell has of a key, of a way into a table of one, or of "label". Model tables give their
// names alone.
nlohmann::json ValueOf(const Cell& cell, const std::string& key);
// The same as a tick of an axis: "1 Gbit/s", "0.01".
std::string TickText(const std::string& key, const Cell& cell);

// The words for a cell's link, and those in full: "1 Gbit/s", "1 Gbit/s link, 200 µs per message".
std::string LinkText(const CellConfig& config);
std::string LinkInFull(const CellConfig& config);

// Sorts values: numbers, and links by speed; then text; then null.
bool Before(const nlohmann::json& one, const nlohmann::json& other);

// The cluster of a modelled cell with a link of its own; "" for the machine at hand, or one alike.
std::string DeclaredClusterOf(const CellConfig& config);
// Whether a cell sends every element, so that it has no density.
bool IsDense(const CellConfig& config);

}  // namespace sparfuse::harness
