// Sends units by way of ranks that own a part of each: the owner sums what all have selected of it,
// selects from the sum, and sends that to all.
//
// Source:      Y. Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN
//              Training, SOSP 2021, section 3 (HiPress: CaSync with servers on the workers).
#pragma once

#include <string>
#include <vector>

#include "core/engine/unit_strategy.hpp"

namespace sparfuse {

// As UnitStrategy behind, but for what becomes of a unit in K partitions, of which rank j owns the
// j-th (shards.hpp); no more than there are ranks and elements.
//
//   Sparsify each part           residual "local"
//   reduce-scatter, sparse       the owner has all ranks' selections of its part
//   Merge, Sparsify the sum      residual "server", on the owner alone
//   exchange of all parts        averaged
//
// Without a residual of the owners, what they do not select of a sum is lost.
class OwnedParts final : public UnitStrategy {
 public:
  explicit OwnedParts(bool server_residual = true) : server_residual_(server_residual) {}

 private:
  Handle SendBehind(Engine& engine, const Unit& unit, Range range, std::vector<Handle> packed,
                    std::string label) override;

  bool server_residual_;
};

extern const StrategyDescriptor kOwnedParts;

}  // namespace sparfuse
