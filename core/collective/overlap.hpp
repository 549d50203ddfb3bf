// Models how much the selections of several ranks have in common.
//
// The selections of two ranks are neither independent (both ranks hold gradients of one model) nor
// equal. The model gives each element its own selection probability q. All ranks select the element
// with probability q, independently of one another given q. Over the elements, q has a Beta
// distribution, whose mean is the density. A second parameter, theta, says how much q differs among
// elements: the correlation between two ranks' choices of an element. 0: independent ranks. 1: all
// ranks select the same elements.
#pragma once

#include <cstddef>

namespace sparfuse {

struct OverlapModel {
  double theta = 0;
  // Deviation of log(density of a region / mean density) over contiguous regions of the range: how
  // unevenly the selected elements lie.
  double skew = 0;
  // Elements that are selected together (Sparsifier::block).
  std::size_t together = 1;
  // The number of regions beyond which finer regions are no more uneven: so many parts of a tensor
  // have a uniform density each, as the gates of a recurrent layer. 0: no limit.
  std::size_t grains = 0;

  // The fraction of the elements that at least one of `ranks` selects, each with this density:
  // 1 - prod_{i < ranks} (b + i) / (a + b + i). density in [0, 1], ranks >= 1. Cost: O(ranks).
  double Union(double density, std::size_t ranks) const;
  // The fraction of the blocks of `block` elements in which at least one of `ranks` selects an
  // element. Elements that are selected together are assumed to lie in as few blocks as possible.
  double BlockUnion(double density, std::size_t block, std::size_t ranks) const;
  // The expected maximum of density / mean density over `regions` equal regions.
  double LargestRegion(std::size_t regions) const;
};

}  // namespace sparfuse
