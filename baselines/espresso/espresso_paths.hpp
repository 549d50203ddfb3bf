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

// As UnitStrategy, but for what becomes of a unit, by Unit::path, the runtime's number of an
// option. On N nodes of g ranks, where local rank j owns the j-th g-th of a unit on its node, a
// shard:
//
//   option   within the node        between nodes, of the shard            back within the node
//    2       sums, dense            to a root, which sends to all          sums, dense
//    3       sums, dense            to owners of N-ths, gathered           sums, dense
//    4       sums, dense            gathered                               sums, dense
//    5       sums, dense, halves    as 3, selected on the host             sums, dense
//    6       selected, to owners    as 2                                   what came, as it came
//    7       selected, to owners    as 3                                   what came, as it came
//    8       selected, to rank 0    gathered                               what came, as it came
//    9       selected, to owners    gathered                               what came, as it came
//   10       all ranks gather what each selects of the unit
//   11       as 3, of the unit among all ranks
//   12       selected, to owners    gathered                               selected from the sum
//    0, 1    all-reduce of all ranks, of floats and of halves
//   13, 14   reduce-scatter and gather within nodes, and in between those of a shard between
//            nodes: servers on the workers; of halves and of floats
//
// Who owns something adds up what all have sent of it, selects from the sum, and sends that on.
// What is selected before the exchange within nodes leaves its rest in the residual "local", what
// is selected for the one between nodes in "node", what an owner selects from a sum in "server". In
// option 12 ranks of equal place on their nodes select the same from the same sum: the residual is
// the first node's. The root of local rank j is on node j mod N. Halves leave what rounding takes
// in the same residuals.
//
// On nodes of one rank there is no exchange within nodes: 4, 8, 9 and 12 are 10, 3 and 7 are 11,
// and 6 is 2. On one node 13 and 14 have none between nodes. An empty shard is not exchanged. A
// unit that is compressed without an option is sent by 10.
class EspressoPaths final : public UnitStrategy {
 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;
  Handle SendDense(Engine& engine, const Unit& unit, ExchangeRequest exchange) override;
};

extern const StrategyDescriptor kEspressoPaths;

}  // namespace sparfuse::baselines
