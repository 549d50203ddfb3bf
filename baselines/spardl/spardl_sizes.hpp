// Computes how many elements the ranks of SparDL send in each step, and process between messages.
#pragma once

#include <cstdint>
#include <vector>

#include "baselines/spardl/spardl_sums.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// [ranks] the numbers that each rank notes (ExchangeBuffers::seen): elements that it sends in each
// step of the reduce-scatter and in each step among teams, then applied elements of its block. They
// are exact for forms that do not note sizes, and expected by the overlap model for the others.
std::vector<std::vector<std::uint64_t>> SpardlSizes(const SpardlForm& form,
                                                    const OverlapModel& overlap,
                                                    const Topology& topology,
                                                    const ExchangeSizes& sizes);

// Adds the work of SpardlSums on a block to rounds. The work is an upper bound: all indices differ.
// `arrived`: number of arrived bundles with the block.
class SpardlWork {
 public:
  SpardlWork(const SpardlForm& form, const SpardlBlocks& blocks);
  void Add(std::size_t arrived, Round& round) const;
  void Cut(std::size_t arrived, Round& round) const;
  void Return(std::size_t arrived, Round& round) const;
  // `lists` lists of other teams are added to the own list, and the largest elements are kept.
  void Join(std::size_t lists, Round& round) const;

 private:
  std::uint64_t Sums(std::size_t bundles) const { return std::min(width_, bundles * kept_); }

  bool lazy_;
  std::uint64_t width_;
  std::uint64_t kept_;
};

}  // namespace sparfuse::baselines
