// Holds what is asked of `sparfuse advise` and what it answers.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/advise/input_effects.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

struct AdviceRequest {
  std::string workload;  // of the catalog, or "table:FILE.json"
  std::string cluster;
  std::vector<int> workers;               // empty: a quarter, half and all of the cluster's devices
  std::vector<double> densities;          // empty: 0.01
  std::vector<std::string> methods;       // empty: all
  std::optional<std::string> sparsifier;  // in the place of the methods' own
  std::optional<int> batch;               // default: the workload's
  std::optional<LinkShape> link;          // in the place of the cluster's own
};

struct LeftOut {
  std::string method, reason;
  std::vector<int> workers;  // where
};

struct RankedMethod {
  CellConfig cell;
  double step_seconds = 0;
  Interval throughput;                 // units of the workload a second
  Interval over_best;                  // of throughputs; at most 1 as stated
  std::optional<Interval> over_dense;  // none where dense itself cannot be modelled
  // Of others than the best: its steps are as long in every draw; or else draws do not tell the two
  // apart: the band of over_best has 1 in it.
  bool equal = false, undecided = false;
};

struct Ranking {
  int workers = 0;
  double density = 0;
  std::vector<RankedMethod> methods;  // fastest first, at least one
  // Of the fastest and `second`, the next that is not equal to it; none where there is none, or
  // where the cluster is not declared.
  std::optional<InputEffects> deciding;
  std::string second;
  std::vector<std::pair<std::string, ExposedShare>> exposed;  // of the two, mostly not the links'
};

// Between two neighbouring points of a sweep the fastest method changes.
struct WinnerChange {
  std::string along;  // "inter_node_gbps", "workers", "density"
  double from = 0, to = 0;
  std::string before, after;
  int workers = 0;  // of the rest of the setting; 0 and below: what is swept
  double density = 0;
};

// The fastest method at each point of a sweep.
struct Sweep {
  std::string along;
  int workers = 0;
  double density = 0;
  std::vector<std::pair<double, std::string>> winners;
};

struct Advice {
  AdviceRequest request;  // defaults filled in
  std::string unit;       // of throughputs: "images"
  std::string label;      // of the workload; a table's name
  bool bands = false;
  bool declared = false;  // the cluster
  std::vector<LeftOut> left_out;
  std::vector<Ranking> rankings;  // workers within densities
  std::vector<Sweep> sweeps;
  std::vector<WinnerChange> changes;
  std::string fixed_bandwidth;  // why it is not swept, or ""
};

// A point of a phase diagram.
struct PhasePoint {
  double bandwidth = 1;  // factor on the declared one
  int workers = 0;
  std::string winner;
  std::vector<std::string> undecided;  // methods that draws do not tell from it
  double over_dense = 0;               // 0: dense cannot be modelled
};

// The fastest methods over bandwidths and numbers of workers.
struct PhaseDiagram {
  double inter_node_gbps = 0;  // declared
  std::vector<PhasePoint> points;
};

}  // namespace sparfuse::harness
