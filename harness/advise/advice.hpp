// Answers which method trains a workload faster on a cluster. Ranks methods by modelled throughput,
// with bands. Finds the points at which the order changes, and the inputs that decide it. Stores
// nothing. Words the answer: tables for people, JSON, and the experiment file that would keep it.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "harness/advise/input_effects.hpp"
#include "harness/advise/modelled_cluster.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/statistics/statistics.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {

struct CardMemory {
  double card_gbytes = 0;    // of the card, 10^9 bytes
  double filled_gbytes = 0;  // of it by a step of this batch
  int larger_batch = 0;  // a power of two that fills at most half of the card; 0: none is larger

  bool mostly_empty() const;
};

// An estimate. It counts weights, gradients, momentum and residuals at 4 bytes an element each. For
// each sample it counts the results of kernels and matrices twice, because the operations that
// follow a layer keep as much again. It leaves out the memory of frameworks and selections.
CardMemory MemoryOf(const workloads::LayerTable& layers, double card_gbytes, int batch);

// A sentence for a user whose batch leaves most of the card empty; else "".
std::string NoteOn(const CardMemory& memory, int batch);

struct AdviceRequest {
  std::string workload;  // of the catalog, or "table:FILE.json"
  std::string cluster;
  std::vector<int> workers = {};          // empty: a quarter, half and all of the cluster's devices
  std::vector<double> densities = {};     // empty: 0.01
  std::vector<std::string> methods = {};  // empty: all
  std::optional<std::string> sparsifier = {};  // in the place of the methods' own
  std::optional<int> batch = {};               // default: the workload's
  std::optional<LinkShape> link = {};          // in the place of the cluster's own
};

struct LeftOut {
  std::string method, reason;
  std::vector<int> workers;  // where
};

struct RankedMethod {
  CellConfig cell;
  double step_seconds = 0;
  Formulas formulas;                   // of the step, without the model
  Interval throughput;                 // units of the workload a second
  Interval over_best;                  // of throughputs; at most 1 as stated
  std::optional<Interval> over_dense;  // none if dense itself cannot be modelled
  // Of a method other than the best. equal: its steps are as long as the best's in every draw.
  // undecided: the draws do not decide between the two, because the band of over_best contains 1.
  bool equal = false, undecided = false;
};

struct Ranking {
  int workers = 0;
  double density = 0;
  std::vector<RankedMethod> methods;  // fastest first, at least one
  // Compares the fastest method with `second`, the next that is not equal to it. None if there is
  // no such method, or if the cluster is not declared.
  std::optional<InputEffects> deciding;
  std::string second;
  std::vector<std::pair<std::string, ExposedShare>> exposed;  // of the two, mostly not the links'
  double broadcast_seconds = 0;  // of buffers, before each forward pass
};

// Between two neighbouring points of a sweep the fastest method changes.
struct WinnerChange {
  std::string along;  // "inter_node_gbps", "workers", "density"
  double from = 0, to = 0;
  std::string before, after;
  int workers = 0;  // of the rest of the setting; 0 and below: the swept key
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
  CardMemory memory;            // of a declared cluster's card; else of no card
  // Of the workload's table. buffers: how the declared cluster broadcasts them ("local": not at
  // all).
  std::int64_t buffer_bytes = 0;
  std::string buffers;
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

// The shares of a step, or of a window's mean step, that computation shall take.
inline constexpr double kUtilisations[] = {0.5, 0.75, 0.9, 0.95, 0.99};

// For each of these shares, the least rate of network cards at which a method reaches it.
struct NeededRates {
  std::string method;
  int window_steps = 1;
  std::vector<std::optional<double>> gbps;  // [kUtilisations]; none if no rate suffices
  std::vector<double> naive_gbps;           // [kUtilisations], of SentInWindows
};

// What a method sends in a window of steps, in exchanges of equal size.
struct SentInWindows {
  double bytes = 0;            // of a rank in a window
  double compute_seconds = 0;  // of a step
  int steps = 1;               // of a window
  int exchanges = 1;           // in a window
  int delay = 0;               // steps beside which an exchange goes on
};
// The rate in Gbit/s at which a rank computes for this share of its time if bytes alone take time,
// and if what the delay does not hide is waited for. utilisation: between 0 and 1.
double RateOfBytes(const SentInWindows& sent, double utilisation);

// done of total modelled cells.
using AdviceProgress =
    std::function<void(const std::string& doing, std::size_t done, std::size_t total)>;

class Adviser {
 public:
  // Throws Error{kConfig}: an unknown workload, cluster or method with the nearest names, more
  // workers than devices, a value out of its range. `measured`: as ModelledCluster's.
  Adviser(const Catalog& catalog, const ProfileFolders& profiles, AdviceRequest request,
          ProfileOutcomes measured, AdviceProgress progress);

  // Cost: 33 simulated steps for each method, number of workers and density, on all processors.
  Advice Answer();

  // The winners for each pair of `bandwidths` and `workers`, at the first density. Bands are of
  // methods at most twice as slow as the winner. Throws Error{kConfig} if bandwidths cannot change.
  std::vector<PhasePoint> Phase(const std::vector<double>& bandwidths,
                                const std::vector<int>& workers);

  // The rates for the methods that can be modelled, with the most workers and the first density. To
  // 1 %, by bisection. Throws Error{kConfig} if bandwidths cannot change.
  std::vector<NeededRates> Rates();

  const AdviceRequest& request() const noexcept { return request_; }
  // The cell of a method. Throws Error{kConfig} saying why there is none.
  CellConfig CellOf(const std::string& method, int workers, double density) const;

 private:
  struct Point {
    int workers;
    double density;
    double bandwidth = 1;
    auto operator<=>(const Point&) const = default;
  };
  // The modelled values of a cell, by its hash and the bandwidth.
  struct Modelled {
    CellConfig cell;
    double bandwidth = 1;
    StepModel step;
    std::vector<double> draws;  // of the first step
    bool has_draws = false;
    std::string failure;
  };
  using Key = std::pair<std::string, double>;

  std::vector<int> DefaultWorkers() const;
  // Models the points that are not modelled yet, and their draws if `draws`. Returns the methods
  // for which that fails.
  std::vector<LeftOut> Model(const std::vector<Point>& points, bool draws, const std::string& doing,
                             const std::vector<std::string>* of = nullptr);
  const Modelled* Find(const std::string& method, const Point& point) const;
  std::vector<const Modelled*> Ordered(const Point& point) const;  // fastest first
  Ranking Rank(const Point& point) const;
  void AddSweeps(Advice& advice);
  void AddDeciding(Advice& advice);
  void AddBuffers(Advice& advice) const;

  const Catalog& catalog_;
  const ProfileFolders& profiles_;
  AdviceRequest request_;
  AdviceProgress progress_;
  ModelledCluster cluster_;
  ThreadPool pool_;
  std::vector<std::string> asked_, with_dense_;
  std::map<Key, Modelled> modelled_;
  std::map<std::pair<std::string, Point>, Key> keys_;
};

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
