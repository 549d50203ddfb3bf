// Writes the exchanges of a trace as a log of links.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "harness/traces/trace_model.hpp"

namespace sparfuse::harness {

std::string StepsText(const TraceFacts& facts) {
  const auto& steps = facts.steps_used;
  return steps.size() == 1 ? "step " + steps.front()
                           : fmt::format("steps {} to {}", steps.front(), steps.back());
}

std::vector<LinkLog> LinkLogsOf(const std::vector<TraceFacts>& ranks, int ranks_per_node) {
  const TraceFacts& first = ranks.front();
  const TransferFacts transfers = TransfersOf(ranks);
  std::map<double, double> least;  // us, by bytes
  int of = 0;
  for (const TracedTransfer& each : transfers.exchanges) {
    if (each.bytes <= 0 || each.transfer_us.low <= 0 || each.group_ranks < 2) continue;
    of = static_cast<int>(each.group_ranks);
    // With one rank, the shortest time over its steps has the least waiting.
    const double us = ranks.size() > 1 ? each.transfer_us.median : each.transfer_us.low;
    const auto [there, is_new] = least.try_emplace(each.bytes, us);
    if (!is_new) there->second = std::min(there->second, us);
  }
  if (least.empty()) return {};
  if (of > ranks_per_node && (of % ranks_per_node != 0 || of != first.world)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}: a group of {} of {} ranks, and a node has {}: expected one "
                               "within a node, or of all ranks of whole nodes",
                               first.file, of, first.world, ranks_per_node));
  }
  LinkLog log;
  log.file = first.file;
  log.sha256 = first.sha256;
  log.program = fmt::format("torch.profiler, {}", StepsText(first));
  log.operation = LinkOperation::kAllReduce;
  log.ranks = of;
  log.nodes = std::max(1, of / ranks_per_node);
  log.verified = true;
  log.kind = kTraceKind;
  for (const auto& [bytes, us] : least) log.samples.push_back({bytes, us * 1e-6});
  // The times of a [[curve]] must not fall.
  for (std::size_t i = log.samples.size() - 1; i-- > 0;)
    log.samples[i].seconds = std::min(log.samples[i].seconds, log.samples[i + 1].seconds);
  return {std::move(log)};
}

}  // namespace sparfuse::harness
