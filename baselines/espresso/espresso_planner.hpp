// Decides how Espresso sends each tensor: whole, in half precision, or compressed, and if so, where
// and in how many steps. Plans each tensor as a unit, by one of the runtime's options.
#pragma once

#include <cstdint>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

enum class EspressoCompressor : std::uint8_t { kRandomK, kDgc, kEfSignSgd, kOneBit };

struct EspressoSetting {
  int nodes = 1;
  int gpus_per_node = 1;
  EspressoCompressor compressor = EspressoCompressor::kDgc;
  double density = 0.01;   // of random-k and DGC
  bool nvlink = false;     // within nodes; else PCIe
  bool cpu = false;        // processors may compress
  bool two_level = false;  // may compress before the exchange within nodes, too
  // The published planner takes every gap between gradients modulo 1000 us, which shrinks VGG16's
  // backward from 85.3 to 12.3 ms. With this set, the planner reproduces the shipped plans.
  bool mod1000 = false;
};

// The options of the published runtime. The planner chooses 0, 1, 3 to 6, 9 and 10.
enum EspressoOption : int {
  kWhole = 0,             // all-reduce in fp32
  kHalves = 1,            // all-reduce in fp16
  kRootBetween = 2,       // reduce-scatter within nodes, compressed to a root and back between
  kAllToAllBetween = 3,   // reduce-scatter within nodes, compressed all-to-all and gather between
  kGatherBetween = 4,     // reduce-scatter within nodes, compressed gather between
  kOnProcessor = 5,       // reduced to the host in fp16, pushed to servers compressed, pulled
  kRootEncoded = 6,       // compressed within nodes, again to a root between, gathered compressed
  kAllToAllEncoded = 7,   // compressed within nodes, all-to-all and gather between
  kFirstOfNode = 8,       // compressed to one rank a node, gathered between, sent to the node
  kGatherSelected = 9,    // compressed within nodes, again between, gathered within
  kGatherAll = 10,        // compressed once, gathered by all
  kAllToAllOfAll = 11,    // compressed all-to-all and gather of all ranks
  kSelectedTwice = 12,    // as 9, and compressed again before the gather within
  kHalvesByServers = 13,  // pushed to servers and pulled in fp16
  kByServers = 14,        // the same in fp32
};
inline constexpr int kEspressoOptions = 15;
constexpr bool EspressoCompresses(int option) {
  return option >= kRootBetween && option <= kSelectedTwice;
}

// [tensors] the runtime's option of each tensor, in ready order.
//
// Times are the published constants, in microseconds: 150 a message, whole KB between and within
// nodes, compression by a table for each compressor. Gaps are seconds of backward rounded to whole
// microseconds; the first is 0. Encoding delays its gradient and all later ones, and counts again
// in the time that a tensor occupies the sending lane. A cast to halves delays, but does not count
// there.
//
//   1  All tensors are sent whole, first come first served. The tensors before the last one that
//      does not wait are never the bottleneck, and stay whole.
//   2  From there on, tensors of more than 2^17 elements are sent in halves. The tensors before the
//      last one that then does not wait are not compressed.
//   3  The others are tried largest first, and of equal ones the later produced first. Each is
//      compressed on cards if all sending then ends earlier.
//   4  With `cpu`: of each size of compressed tensors (below 2^25 elements), a number of the first
//      produced ones moves to the processor, on a lane of their own. The numbers are those with
//      which all ends earliest, now without delays. All combinations are tried: the size produced
//      first is counted up slowest, and the first of equal results is kept. Beyond 2^20
//      combinations one size after another is tried until nothing changes, which may miss the best.
//
// KB are the floor of the whole product, 2 (g - 1) / g times the bytes sent. Sums keep the
// published order because equal plans are frequent: VGG16's is the first of seven with real gaps.
//
// Source:      Wang et al., Espresso, EuroSys 2023; the published planner's constants.
// Deviations:  gaps are taken modulo 1000 us only with `mod1000`. The fourth step is bounded; in
//              the published code it takes hours for models of many sizes.
//
// Pure. Throws Error{kConfig} as CheckReadyTensors, and for a setting out of range.
std::vector<int> EspressoOptions(const ReadyTensors& tensors, const EspressoSetting& setting);

extern const PlannerDescriptor kEspressoPlanner;

}  // namespace sparfuse::baselines
