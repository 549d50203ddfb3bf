// Reads the published numbers of a figure's entry, and finds the cells and panels with which each
// is drawn.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/figures/panels.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

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
