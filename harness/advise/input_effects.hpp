// Finds the inputs of a declared cluster that decide between two cells, and the measurements that
// would narrow them. For a cell on two clusters, finds the inputs that make its steps differ.
#pragma once

#include <string>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "harness/advise/modelled_cluster.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// The effect of one input on the ratio of the two cells' speeds.
struct InputEffect {
  std::string input;  // "inter_node_us", "compute/WORKLOAD", "coder/NAME"
  double value = 0, low = 0, high = 0;
  double ratio_low = 1, ratio_high = 1;  // with the input at its ends, the others as declared
  double variance = 0;                   // of the ratio's logarithm if the input alone is drawn
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
  std::vector<InputEffect> effects;  // the most deciding first, without inputs that have no effect
  double variance_alone = 0;         // of all inputs, each drawn alone
  double variance_together = 0;      // of draws of all of them
};

// The ratio of the speeds of `of` and `over`, and the inputs on which it depends, from one
// simulated step of each with every open input at either end. Draws are uniform in the logarithm on
// either side of the declared value. The ratio's logarithm is taken as linear between the ends,
// from which the variance of each input follows. Precondition: the cluster is declared, and
// PrepareEnds was called.
InputEffects EffectsOfInputs(const ModelledCluster& cluster, const CellConfig& of,
                             const CellConfig& over, ThreadPool& pool);

// The variance of log(ratio) that an input causes if its ends move the logarithm by `low` and
// `high`.
double VarianceBetweenEnds(double low, double high);

// How to measure an input of a cell's cluster: "nccl-tests: all_reduce_perf ... on 2 nodes".
std::string MeasureWith(const std::string& input, const CellConfig& cell);

// The exposed communication of a cell, and the part of it that the links alone would expose if the
// host and the start-up of messages took almost no time.
struct ExposedShare {
  double seconds = 0, links_alone_seconds = 0;
  std::string group;              // of inputs: that without which least is exposed
  bool mostly_not_links() const;  // many times the need of the links alone
};
ExposedShare ExposedOf(const ModelledCluster& cluster, const CellConfig& cell);
// "5 ms of ... is exposed, and ...": a sentence.
std::string ExposedText(const std::string& name, const ExposedShare& exposed);

struct ExchangedInput {
  std::string what;      // "inter_node_gbps", "compute", "selections and codings", "collectives"
  std::string of, over;  // the values that the clusters state, "100 us"; "" if it is not one number
  double factor = 1;     // the step of `of`, over its step with this input of the other cluster
};

// Models the step of `of` on its cluster again and again, each time with one input taken from
// `over`, and plans anew. Forward, backward and the rate of the update are one input. All times of
// selections and codings are one, and so is the way in which collectives work. Inputs that change
// the step by less than 1 % are left out. The largest factor, either way, comes first. Inputs act
// on each other, so factors do not multiply to the whole difference.
std::vector<ExchangedInput> ExchangedInputs(const DeclaredCluster& of, const DeclaredCluster& over,
                                            const CellConfig& of_cell, int over_ranks_per_node);

}  // namespace sparfuse::harness
