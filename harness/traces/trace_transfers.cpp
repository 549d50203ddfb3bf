// Finds the transfers of exchanges from the files of several ranks of one training.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/traces/traced_exchanges.hpp"

namespace sparfuse::harness {

namespace {

[[noreturn]] void FailOf(const TraceFacts& first, const TraceFacts& other,
                         const std::string& what) {
  SPARFUSE_THROW(kConfig, fmt::format("{} and {}: {}", first.file, other.file, what));
}

void CheckExchanges(const TraceFacts& first, const TraceFacts& other) {
  for (std::size_t i = 0; i < other.exchanges.size(); ++i) {
    const TracedExchange &here = other.exchanges[i], &there = first.exchanges[i];
    const auto differs = [&](const char* what, const auto& of_first, const auto& of_other) {
      FailOf(first, other,
             fmt::format("exchange {} has {} and {} {}: expected the same exchanges in the "
                         "same order",
                         i, of_first, of_other, what));
    };
    if (here.elements != there.elements)
      differs("elements", there.elements.value_or(0), here.elements.value_or(0));
    if (here.collective != there.collective)
      differs("as collectives", Shown(there.collective), Shown(here.collective));
    if (here.group != there.group) {
      differs("as process groups", Shown(there.group.value_or("")), Shown(here.group.value_or("")));
    }
    if (here.sequence != there.sequence)
      differs("as numbers (Seq)", there.sequence.value_or(0), here.sequence.value_or(0));
  }
}

// Whether `other` is of the training of `first`.
void CheckTraining(const TraceFacts& first, const TraceFacts& other) {
  if (other.world != first.world) {
    FailOf(first, other,
           fmt::format("worlds of {} and {} ranks: expected files of one training", first.world,
                       other.world));
  }
  if (other.steps_used != first.steps_used) {
    FailOf(first, other,
           fmt::format("steps {} and {}: expected the same", fmt::join(first.steps_used, ", "),
                       fmt::join(other.steps_used, ", ")));
  }
  if (other.exchanges.size() != first.exchanges.size()) {
    FailOf(first, other,
           fmt::format("{} and {} exchanges: expected the same number in each file",
                       first.exchanges.size(), other.exchanges.size()));
  }
  CheckExchanges(first, other);
}

}  // namespace

std::vector<TraceFacts> ReadTraceFacts(const std::vector<std::string>& files,
                                       const TraceOptions& options) {
  std::vector<TraceFacts> ranks;
  for (const std::string& file : files) ranks.push_back(ReadTraceFacts(file, options));
  if (static_cast<int>(ranks.size()) == ranks.front().world) {
    for (TraceFacts& each : ranks) std::erase(each.notes, kWaitingNote);
  }
  return ranks;
}

TransferFacts TransfersOf(const std::vector<TraceFacts>& ranks) {
  TransferFacts made;
  const TraceFacts& first = ranks.front();
  std::map<int, const TraceFacts*> by_rank;
  for (const TraceFacts& each : ranks) {
    const auto [there, is_new] = by_rank.try_emplace(each.rank, &each);
    if (!is_new) {
      SPARFUSE_THROW(kConfig, fmt::format("{} and {} are both of rank {}: expected a file a rank",
                                          there->second->file, each.file, each.rank));
    }
    CheckTraining(first, each);
  }
  for (const auto& [rank, facts] : by_rank) made.ranks.push_back(rank);
  for (std::size_t i = 0; i < first.exchanges.size(); ++i) {
    const TracedExchange& exchange = first.exchanges[i];
    std::vector<double> shortest = exchange.us_by_step;
    for (const TraceFacts& each : ranks) {
      for (std::size_t s = 0; s < shortest.size(); ++s)
        shortest[s] = std::min(shortest[s], each.exchanges[i].us_by_step[s]);
    }
    made.exchanges.push_back({exchange.collective, exchange.elements.value_or(0),
                              exchange.bytes.value_or(0), *SpreadOf(shortest),
                              exchange.ranks.value_or(first.world)});
  }
  return made;
}

}  // namespace sparfuse::harness
