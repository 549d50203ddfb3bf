// Sends each unit by one of Espresso's ways to compress and exchange a gradient.
//
// Source:      Z. Wang et al., Hi-Speed DNN Training with Espresso: Unleashing the Full Potential
//              of Gradient Compression with Near-Optimal Usage Strategies, EuroSys 2023; the
//              options of the published runtime.
#pragma once

#include <string>
#include <vector>

#include "core/engine/unit_strategy.hpp"

namespace sparfuse::baselines {

// A UnitStrategy that sends a unit by the option of the runtime that Unit::path numbers. There are
// N nodes of g ranks; on each node, local rank j owns the j-th of g parts of a unit, a shard:
//
//   option   within the node        between nodes, of the shard            back within the node
//    2       sums, dense            to a root, which sends to all          sums, dense
//    3       sums, dense            to owners of N-ths, gathered           sums, dense
//    4       sums, dense            gathered                               sums, dense
//    5       sums, dense, halves    as 3, selected on the host             sums, dense
//    6       selected, to owners    as 2                                   results, forwarded
//    7       selected, to owners    as 3                                   results, forwarded
//    8       selected, to rank 0    gathered                               results, forwarded
//    9       selected, to owners    gathered                               results, forwarded
//   10       all ranks gather all ranks' selections from the unit
//   11       as 3, of the unit among all ranks
//   12       selected, to owners    gathered                               selected from the sum
//    0, 1    all-reduce of all ranks, of floats and of halves
//   13, 14   reduce-scatter and gather within nodes, and in between the same for each shard between
//            nodes: servers on the workers; of halves and of floats
//
// An owner sums the payloads of its part, selects from the sum, and sends the selection on. Unsent
// elements stay in a residual: "local" for the selection before the exchange within nodes, "node"
// for the selection for the exchange between nodes, "server" for an owner's selection from a sum.
// In option 12, ranks of equal place on their nodes make the same selection from the same sum: the
// residual counts on the first node only. The root of local rank j is on node j mod N. The rounding
// errors of halves go into the same residuals.
//
// On nodes of one rank there is no exchange within nodes: 4, 8, 9 and 12 are 10, 3 and 7 are 11,
// and 6 is 2. On one node 13 and 14 have no exchange between nodes. An empty shard is not
// exchanged. A compressed unit without an option is sent by option 10.
class EspressoPaths final : public UnitStrategy {
 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;
  Handle SendDense(Engine& engine, const Unit& unit, ExchangeRequest exchange) override;
};

extern const StrategyDescriptor kEspressoPaths;

}  // namespace sparfuse::baselines
