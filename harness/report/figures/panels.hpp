// Spreads the cells of a figure over its panels, puts the settings that distinguish panels into
// words, and finds the published numbers of the figure's entry that are drawn with each.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// Figures are JSON in this folder, as an experiment's file gives them: kinds have unlike keys. So
// are values of a key of cells that only the figure names.

struct Panel {
  std::vector<std::size_t> cells = {};  // positions in the part, in its order
  std::string head = {};                // workloads, or "" if they are on the axis
  std::string rest = {};                // the other settings: "8 workers, 1 Gbit/s, emulated"
  std::string heading = {};             // both, with links in full: of its group in a table
};
nlohmann::json ToJson(const Panel& panel);

// In the order of the experiment's workloads, then by the values in which they differ. Two cells of
// a panel never share a place. A dense cell, which has no density, is in each panel of its setting.
// Empty for a kind without panels, for example "prediction".
std::vector<Panel> PanelsOf(const nlohmann::json& figure, const PartResult& result);

// AxisOf: the key along the axis, with "link" for "link_gbps". MetricOf: the drawn metric. The key
// of the bars of a place is "label" for methods, unless the axis is a part of methods.
std::string AxisOf(const nlohmann::json& figure);
std::string MetricOf(const nlohmann::json& figure);
std::string SeriesKeyOf(const nlohmann::json& figure);
// "fusion degree": a key of cells, or a way into a table of one, as a heading.
std::string AxisWords(const std::string& key);

// The value of a cell for a key, for a path into a key's table, or for "label". Model tables give
// their names alone.
nlohmann::json ValueOf(const Cell& cell, const std::string& key);
// The same as a tick of an axis: "1 Gbit/s", "0.01".
std::string TickText(const std::string& key, const Cell& cell);

// The words for a cell's link, short and in full: "1 Gbit/s", "1 Gbit/s link, 200 µs per message".
std::string LinkText(const CellConfig& config);
std::string LinkInFull(const CellConfig& config);

// Sorts values: numbers, and links by speed; then text; then null.
bool Before(const nlohmann::json& one, const nlohmann::json& other);

// The cluster of a modelled cell with a link of its own; "" for the machine at hand, or one alike.
std::string DeclaredClusterOf(const CellConfig& config);
// Whether a cell sends every element, so that it has no density.
bool IsDense(const CellConfig& config);

// The setting that a source states for a number of others.
struct StatedSetting {
  std::optional<int> workers = {}, batch_per_worker = {};
  std::optional<double> density = {}, gbps = {};
  std::string sparsifier = {};  // in small letters, without origin and punctuation; "": not stated

  // Whether it is the cell's, `x` aside. What the source does not state fits any cell.
  bool Fits(const CellConfig& config, const std::string& x = "") const;
};

struct PublishedRow {
  std::size_t position = 0;  // in the entry
  std::string artifact, model, method, metric, printed, unit;
  std::string ours;             // our method; "" if the entry maps it to none
  std::string workload;         // our workload; "": any that the figure shows
  std::string hardware;         // hardware and network; "": not stated
  std::string cluster;          // our cluster for the network; "": any
  std::optional<double> value;  // absent for a range
  StatedSetting setting;        // batch_per_worker absent
  bool stated = false;          // a gain "A vs B" in percent
  bool from_text = false;       // not read from a picture
  bool apart = false;           // not to be compared with: it is at odds with its own labels
  bool calibrated = false;      // a cluster of the figure was fitted to it, so it proves nothing

  // Ours, or theirs of a method that we do not have.
  const std::string& name() const { return ours.empty() ? method : ours; }
  bool IsOf(const std::string& label) const { return workload.empty() || workload == label; }
  // Whether it may be drawn next to a cell of the workload.
  bool StandsBeside(const std::string& label) const { return IsOf(label) && !stated && !apart; }
  // The value on the axis `x` in the form of a cell's key. A link becomes its speed, and a
  // sparsifier becomes `sparsifier`. Null if the paper does not state it.
  nlohmann::json Place(const std::string& x) const;
};

// A stated gain of one method over another: "A vs B", 12 %.
struct StatedGain {
  std::string of, over;  // as the paper names them
  double ratio = 1;
};
std::optional<StatedGain> GainOf(const PublishedRow& row);

// The positions of part.imported whose method, workload and setting are the cell's.
std::vector<std::size_t> ImportedFor(const PartResult& part, const CellConfig& config);

// A sparsifier's name in small letters, without origin, remark and punctuation: "gaussiank".
std::string PlainName(const std::string& name);

class PublishedRows {
 public:
  // `calibration` as an experiment has it. Without rows if the figure has no published values.
  PublishedRows(const nlohmann::json& figure, const PartResult& result,
                const std::vector<std::string>& calibration);

  const std::vector<PublishedRow>& rows() const { return rows_; }
  // Our method for a published one; "" for none.
  std::string OursOf(const std::string& method) const;

  // Whether the setting that the paper states for the row, `x` aside, is the cell's.
  static bool Fits(const PublishedRow& row, const CellConfig& config, const std::string& x = "");

  // The rows of each panel. A row is drawn in the panels of its workload that have the paper's
  // setting. If no row of an artifact has one, all its rows are drawn in all panels of the
  // workload, and are `elsewhere`.
  struct Placed {
    std::vector<std::vector<const PublishedRow*>> of_panels;
    std::vector<const PublishedRow*> elsewhere;
  };
  Placed PlacedIn(const std::vector<Panel>& panels, const PartResult& result,
                  const std::string& x) const;

  // "Fig14a (ResNet-152), Fig14c (GPT2-large)"
  std::string Artifacts() const;
  // One line of provenance; "" without rows.
  std::string Source() const;

 private:
  std::string paper_;
  nlohmann::json methods_;  // our method: their names
  std::vector<PublishedRow> rows_;
  std::vector<std::string> obtained_;  // how the numbers were: "digitised"
};

// The paper's settings of the rows that are drawn with another setting of ours; "" without rows.
std::string SettingsThatDiffer(const std::vector<const PublishedRow*>& elsewhere);

// Adds to a figure's entry the form of its rows: each gets {name, number, from_text, calibrated,
// setting}, and the entry's `published` gets {source, artifacts, elsewhere}.
void DescribePublished(nlohmann::json& figure, const PublishedRows& published,
                       const std::vector<const PublishedRow*>& elsewhere);

// Whether the cell's own step calibrated its cluster, as the experiment's reader found.
bool IsCalibrating(const nlohmann::json& figure, std::size_t cell);

}  // namespace sparfuse::harness
