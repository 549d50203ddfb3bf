// Says how many elements the ranks of SparDL send, step by step, and work on between messages.
#pragma once

#include <cstdint>
#include <vector>

#include "baselines/spardl/spardl_sums.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// [ranks] what each rank notes (ExchangeBuffers::seen): the elements that it sends in each step of
// the reduce-scatter, in each step among teams, then those that are applied of its block. Exact for
// forms that do not note sizes, else as the overlap model expects them.
std::vector<std::vector<std::uint64_t>> SpardlSizes(const SpardlForm& form,
                                                    const OverlapModel& overlap,
                                                    const Topology& topology,
                                                    const ExchangeSizes& sizes);

// Adds to rounds what SpardlSums does with a block, as much as it may be: all indices differ.
// `arrived`: bundles that have come of the block.
class SpardlWork {
 public:
  SpardlWork(const SpardlForm& form, const SpardlBlocks& blocks);
  void Add(std::size_t arrived, Round& round) const;
  void Cut(std::size_t arrived, Round& round) const;
  void Return(std::size_t arrived, Round& round) const;
  // `lists` of other teams are added to the own one, and the largest kept.
  void Join(std::size_t lists, Round& round) const;

 private:
  std::uint64_t Sums(std::size_t bundles) const { return std::min(width_, bundles * kept_); }

  bool lazy_;
  std::uint64_t width_;
  std::uint64_t kept_;
};

}  // namespace sparfuse::baselines
