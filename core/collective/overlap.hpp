// Models how much the selections of several ranks have in common.
//
// Which elements two ranks select is neither independent (they look at gradients of one model) nor
// the same. Each element is taken to be selected with a probability q of its own, by all ranks
// alike and independently given q, and q to be Beta distributed over the elements. Its mean is the
// density; one number more, theta, says how much q differs among elements: the correlation between
// two ranks' choices of an element. 0: independent ranks. 1: all ranks select the same elements.
#pragma once

#include <cstddef>

namespace sparfuse {

struct OverlapModel {
  double theta = 0;
  // Deviation of log(density of a region / mean density) over contiguous regions of the range: how
  // unevenly what is selected lies.
  double skew = 0;
  // Elements that are selected together (Sparsifier::block).
  std::size_t together = 1;
  // Regions finer than this many are no more uneven than these: as many parts of a tensor have each
  // a density of their own throughout, say the gates of a recurrent layer. 0: regions however fine.
  std::size_t grains = 0;

  // The part of the elements that at least one of `ranks` selects, each with this density:
  // 1 - prod_{i < ranks} (b + i) / (a + b + i). density in [0, 1], ranks >= 1. Cost: O(ranks).
  double Union(double density, std::size_t ranks) const;
  // gamma(p): Union(density, p) / density.
  double Densification(double density, std::size_t ranks) const {
    return density <= 0 ? 1.0 : Union(density, ranks) / density;
  }
  // The part of the blocks of `block` elements in which one of `ranks` selects something. What is
  // selected together is taken to lie in as few blocks as it can.
  double BlockUnion(double density, std::size_t block, std::size_t ranks) const;
  // max over `regions` equal regions of density / mean density of these, expected.
  double LargestRegion(std::size_t regions) const;
};

// The theta for which Union(density, ranks) is `measured`, between those of theta 1 and 0.
double FitTheta(double density, std::size_t ranks, double measured);

}  // namespace sparfuse
