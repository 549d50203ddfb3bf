#include "baselines/spardl/spardl_form.hpp"

#include <bit>

namespace sparfuse::baselines {
namespace {

constexpr double kMostTeams = 1 << 16;

}  // namespace

std::vector<OptionSpec> SpardlOptions() {
  return {
      {"teams",
       std::int64_t{1},
       1,
       kMostTeams,
       {},
       "teams of neighbouring ranks, each of which reduces the whole range before they compare "
       "their blocks; must divide the ranks"},
      {"cut",
       std::string("lazy"),
       0,
       0,
       {"lazy", "eager"},
       "what a block is cut from before it is sent: what the rank has accumulated of it and what "
       "has arrived, or what the sparsifier has selected of it and what has arrived"},
      {"sag",
       std::string("bruck"),
       0,
       0,
       {"bruck", "recursive-doubling"},
       "how teams compare their blocks: lists of an adapted number of elements are gathered, or "
       "lists of k_b elements are added pair by pair, for which teams must be a power of two"},
      {"serial_blocks",
       false,
       0,
       0,
       {},
       "blocks are exchanged one after another, as by the published code, instead of in one "
       "message a step"}};
}

SpardlForm FormOf(const Options& options) {
  return {.teams = static_cast<std::size_t>(IntOption(options, "teams")),
          .lazy = StringOption(options, "cut") == "lazy",
          .doubling = StringOption(options, "sag") == "recursive-doubling",
          .serial_blocks = BoolOption(options, "serial_blocks")};
}

std::string SpardlRefuses(const SpardlForm& form, const Topology& topology) {
  const std::string teams = std::to_string(form.teams);
  if (form.doubling && !std::has_single_bit(form.teams)) {
    return "doubles teams pair by pair, and teams = " + teams + " is no power of two";
  }
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  if (ranks % form.teams == 0) return "";
  std::string divisors;
  for (std::size_t d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) divisors += (d == 1 ? "" : ", ") + std::to_string(d);
  }
  return "takes teams of equal size, and teams = " + teams + " does not divide " +
         std::to_string(ranks) + " ranks; expected one of " + divisors;
}

}  // namespace sparfuse::baselines
