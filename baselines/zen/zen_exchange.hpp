// Runs an exchange of Zen on one rank, and says what messages and work it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "baselines/zen/hash_bitmap.hpp"
#include "baselines/zen/hash_lists.hpp"
#include "baselines/zen/partition.hpp"
#include "baselines/zen/servers.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

struct ZenOptions {
  ZenBalance balance = ZenBalance::kHash;
  FormChoice form = FormChoice::kAuto;
  bool node_first = false;
  bool hierarchical = false;  // parts are found by hierarchical hashing (partition.hpp)
  double slots_per_element = 2;
  double serial_part = 0.1;
  int probes = 3;
};

// Of one range: the lists, and memory that is used again from step to step.
struct ZenState final : CollectiveState {
  ZenState(const ZenOptions& options, std::size_t ranks)
      : lists(options.balance == ZenBalance::kHash ? SharedHashLists::Of(ranks) : nullptr) {}

  std::shared_ptr<SharedHashLists> lists;  // null: contiguous ranges
  std::vector<std::uint32_t> part_of;
  std::vector<std::uint32_t> slots;
  Parts parts;
  SparseSums node_sum;
  SparseSums merged;
  RangeSums sums;
};

// As Collective::Run, on two ranks or more. All arguments outlive the task.
Task RunZen(const ZenOptions& options, Communicator& communicator, ExchangeBuffers& buffers,
            ZenState& state, int tag);

// As Collective::Rounds, for any number of ranks.
RoundPlan ZenRounds(const ZenOptions& options, const ExchangeSizes& sizes,
                    const Topology& topology);

}  // namespace sparfuse::baselines
