// Schedules Spar-Reduce-Scatter and Bruck's all-gather within a team.
//
// Sources: M. Zhao et al., SparDL, ICDE 2024, section III (Spar-Reduce-Scatter without recursion,
//          for any number of ranks); J. Bruck et al., Efficient Algorithms for All-to-All
//          Communications in Multiport Message-Passing Systems, TPDS 8(11), 1997 (all-gather).
#include "baselines/spardl/spardl_blocks.hpp"

#include <algorithm>
#include <bit>

namespace sparfuse::baselines {

SpardlBlocks::SpardlBlocks(const ExchangeShape& shape, std::size_t count)
    : elements_(shape.elements),
      count_(count),
      width_(std::max<std::size_t>(1, (shape.elements + count - 1) / count)),
      kept_(std::max<std::size_t>(
          1, width_ * shape.kept / std::max<std::size_t>(1, shape.elements))) {}

std::size_t SpardlBlocks::KeptBelow(std::size_t block) const {
  const std::size_t whole = std::min(block, elements_ / width_);
  const std::size_t rest = block > whole ? elements_ - whole * width_ : 0;
  return whole * kept_ + std::min(kept_, rest);
}

std::size_t SpardlBlocks::KeptOf(std::size_t first, std::size_t blocks) const {
  const std::size_t last = first + blocks;
  const std::size_t around = last > count_ ? KeptBelow(last - count_) : 0;
  return KeptBelow(std::min(last, count_)) - KeptBelow(first) + around;
}

std::vector<SpardlStep> SpardlScatterSteps(std::size_t ranks) {
  std::vector<SpardlStep> steps;
  if (ranks <= 1) return steps;
  // The first step folds what exceeds a power of two.
  std::size_t gap = std::bit_ceil(ranks) / 2;
  steps.push_back({gap, ranks - gap});
  while (gap > 1) {
    gap /= 2;
    steps.push_back({gap, gap});
  }
  return steps;
}

std::vector<SpardlStep> BruckSteps(std::size_t ranks) {
  std::vector<SpardlStep> steps;
  for (std::size_t gap = 1; gap < ranks; gap *= 2) {
    steps.push_back({gap, std::min(2 * gap, ranks) - gap});
  }
  return steps;
}

namespace {

std::int64_t LeastOf(std::size_t kept, std::size_t teams) {
  return static_cast<std::int64_t>(std::max<std::size_t>(1, kept / teams));
}

}  // namespace

std::size_t SpardlCount::Next(std::size_t kept, std::size_t teams) {
  if (kept == 0) return 0;
  const std::int64_t least = LeastOf(kept, teams);
  const auto most = static_cast<std::int64_t>(kept);
  if (count_ == 0) {
    count_ = least;
    step_ = std::max<std::int64_t>(1, (most - least) / 100);
  }
  return static_cast<std::size_t>(std::clamp(count_, least, most));
}

void SpardlCount::Learn(std::size_t merged, std::size_t kept, std::size_t teams) {
  if (kept == 0) return;
  const auto most = static_cast<std::int64_t>(kept);
  if ((merged > kept) != (step_ > 0)) {
    if (again_) step_ = std::clamp(2 * step_, -most, most);
    again_ = !again_;
  } else {
    step_ = step_ > 1 || step_ < -1 ? -step_ / 2 : -step_;
    again_ = false;
  }
  const auto used = static_cast<std::int64_t>(Next(kept, teams));
  count_ = std::clamp(used + step_, LeastOf(kept, teams), most);
}

namespace {

constexpr double kMostTeams = 1 << 16;

}  // namespace

std::vector<OptionSpec> SpardlOptions() {
  return {
      WholeOption("teams", 1, 1, kMostTeams,
                  "teams of neighbouring ranks, each of which reduces the whole range before they "
                  "compare their blocks; must divide the ranks"),
      ChoiceOption("cut", "lazy", {"lazy", "eager"},
                   "what a block is cut from before it is sent: what the rank has accumulated of "
                   "it and what has arrived, or what the sparsifier has selected of it and what "
                   "has arrived"),
      ChoiceOption(
          "sag", "bruck", {"bruck", "recursive-doubling"},
          "how teams compare their blocks: lists of an adapted number of elements are gathered, "
          "or lists of k_b elements are added pair by pair, for which teams must be a power of "
          "two"),
      FlagOption(
          "serial_blocks", false,
          "blocks are exchanged one after another, as by the published code, instead of in one "
          "message a step")};
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
