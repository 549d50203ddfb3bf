// Finds the inputs of a declared cluster that decide between two cells, and the measurements that
// would narrow them. For a cell on two clusters, finds the inputs that make its steps differ.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "harness/advise/modelled_cluster.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// What one input does to how many times as fast the one cell is as the other.
struct InputEffect {
  std::string input;  // "inter_node_us", "compute/WORKLOAD", "coder/NAME"
  double value = 0, low = 0, high = 0;
  double ratio_low = 1, ratio_high = 1;  // with the input at its ends, the others as declared
  double variance = 0;                   // of the ratio's logarithm where the input alone is drawn
  double share = 0;                      // of the sum of these
  bool turns = false;                    // the order is another one at an end
  std::string kind, source;
  std::string measure;  // a command
  bool operator==(const InputEffect&) const = default;
};

// {input, value and range, share, ratios at its ends, command}: a table's row.
std::vector<std::string> RowOf(const InputEffect& effect);

struct InputEffects {
  double ratio = 1;                  // over's step divided by of's, all inputs as declared
  std::vector<InputEffect> effects;  // the most deciding first; those without effect left out
  double variance_alone = 0;         // of all inputs, each drawn alone
  double variance_together = 0;      // of draws of all of them
};

// How many times as fast `of` is as `over`, and what that depends on, from one simulated step of
// each with every open input at either end. Draws are uniform on either side of the declared
// value's logarithm, and the ratio's logarithm is taken as straight between the ends: the variance
// of an input alone follows. Precondition: the cluster is declared, and PrepareEnds was called.
InputEffects EffectsOfInputs(const ModelledCluster& cluster, const CellConfig& of,
                             const CellConfig& over, ThreadPool& pool);

// The variance of log(ratio) of an input whose ends move it by `low` and `high`.
double VarianceBetweenEnds(double low, double high);

// How to measure an input of a cell's cluster: "nccl-tests: all_reduce_perf ... on 2 nodes".
std::string MeasureWith(const std::string& input, const CellConfig& cell);

// What the links alone would leave exposed of a cell's communication: with the host and the
// start-up of messages taking next to no time.
struct ExposedShare {
  double seconds = 0, links_alone_seconds = 0;
  std::string group;              // of inputs: that without which least is exposed
  bool mostly_not_links() const;  // many times what the links alone need
};
ExposedShare ExposedOf(const ModelledCluster& cluster, const CellConfig& cell);
// "5 ms of ... is exposed, and ...": a sentence.
std::string ExposedText(const std::string& name, const ExposedShare& exposed);

struct ExchangedInput {
  std::string what;      // "inter_node_gbps", "compute", "selections and codings", "collectives"
  std::string of, over;  // what the clusters state, "100 us"; "" where it is no one number
  double factor = 1;     // of's step over what it would be with this of the other cluster
};

// The step of `of` on its cluster, modelled again with one input at a time as `over` has it,
// planned anew; forward, backward and the update's rate are one input, and so are all that
// selections and codings take, and how collectives are done. What changes the step by less than 1 %
// is left out; the largest factor, either way, comes first. Inputs act on each other: factors do
// not multiply to the whole difference.
std::vector<ExchangedInput> ExchangedInputs(const DeclaredCluster& of, const DeclaredCluster& over,
                                            const CellConfig& of_cell, int over_ranks_per_node);

}  // namespace sparfuse::harness
