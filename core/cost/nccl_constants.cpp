#include "core/cost/nccl_constants.hpp"

#include <limits>

namespace sparfuse {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// A rate of each channel that is the same for all cards and numbers of nodes.
constexpr NcclByCards Everywhere(double rate) {
  const NcclByNodes row{rate, rate, rate};
  return {row, row, row};
}

constexpr NcclByCards kRingLl128Of2_20{
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}}};

}  // namespace

// That version reads the first row for cards later than A100.
constinit const NcclConstants kNccl2_8{
    .version = "2.8.3",
    .base_us = {{{4.4, 4.4, 0}, {3.6, 10.0, 8.4}}},
    .hop_us = {{{{{0.52, 1.25, 28}, {0.47, 1.9, 3.4}}},
                {{{1.0, 1.9, 28}, {1.0, 2.5, 5.7}}},
                {{{5.0, 8.5, 28}, {2.7, 4.0, 9.6}}}}},
    .ll_hop_factor = 1.8,
    .fewer_network_hops = 2,
    .plateau_bytes = 4096,
    .plateau_factor = {1.9, 1.9, 1.9},
    .ring_ll = 1.0 / 4,
    .ring_ll_gather = 1.0 / 3,
    .ring_ll128 = 0.92,
    .ring_ll128_lone = 0.7,
    .tree = 0.92,
    .tree_ll = 1 / 3.8,
    .tree_ll128 = 0.915,
    .tree_ll128_one_node = 7.0 / 9,
    .tree_by_size =
        {{{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
          {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .5, .6, .6, .7, .7, .8, .9, .9, .92, .92},
          {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
           .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}},
    .hop_rate = {kUnlimited, 235, kUnlimited},
    .ll_one_node_rate = {39.0, 87.7, 39.0},
    .ll_nodes_rate = {{{39.0, 20.4}, {22.5, 19.0}}},
    .tree_rate = {{{26.5, 18.5, 10.0}, {24.0, 22.5, 16.0}, {26.5, 18.5, 10.0}}},
    .tree_ll128_rate = Everywhere(16.9),
    .ring_ll128_rate = {{Everywhere(16.9), Everywhere(18.3)}}};

constinit const NcclConstants kNccl2_20{
    .version = "2.20.3",
    .base_us = {{{6.8, 14.0, 0}, {6.6, 14.0, 8.4}}},
    .hop_us = {{{{{0.6, 1.25, 28}, {0.6, 1.9, 3.4}}},
                {{{1.0, 1.9, 28}, {1.0, 2.5, 5.7}}},
                {{{5.0, 8.5, 28}, {2.7, 4.0, 14.0}}}}},
    .post_us = {1.0, 2.0},
    .plateau_bytes_per_channel = 64,
    .plateau_factor = {1.9, 1.4, 1.4},
    .ring_ll = 1.0 / 4,
    .ring_ll_gather = 1.0 / 3,
    .ring_ll128 = 0.92,
    .ring_ll128_lone = 0.7,
    .tree = 0.92,
    .tree_ll = 1 / 3.8,
    .tree_ll128 = 120.0 / 128,
    .tree_ll128_one_node = 7.0 / 9,
    .simple_tree_fraction = 0.85,
    .tree_by_size =
        {{{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
          {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
          {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
           .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}},
    .hop_rate = {kUnlimited, kUnlimited, kUnlimited},
    .ll_one_node_rate = {39.0, 87.7, 87.7},
    .ll_nodes_rate = {{{39.0, 20.4}, {22.5, 19.0}}},
    .tree_rate = {{{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}}},
    .tree_ll128_rate = {{{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}}},
    .ring_ll128_rate = {{kRingLl128Of2_20, kRingLl128Of2_20}}};

}  // namespace sparfuse
