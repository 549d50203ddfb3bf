#include "baselines/spardl/spardl_sizes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace sparfuse::baselines {
namespace {

class SpardlExpectation {
 public:
  SpardlExpectation(const SpardlForm& form, const OverlapModel& overlap, std::size_t ranks,
                    const ExchangeSizes& sizes)
      : form_(form),
        overlap_(overlap),
        blocks_(sizes.shape, ranks / form.teams),
        scatter_(SpardlScatterSteps(blocks_.count())) {
    const double sent = static_cast<double>(
        std::accumulate(sizes.payload_bytes.begin(), sizes.payload_bytes.end(), std::uint64_t{0}));
    const double most = static_cast<double>(ranks * sizes.shape.elements * kSparseElementBytes);
    density_ = most > 0 ? sent / most : 0;
    ExpectUnions();
  }

  const SpardlBlocks& blocks() const { return blocks_; }

  // Returns the sizes sent by the rank at this place of a team.
  std::vector<std::uint64_t> At(std::size_t place) const {
    std::vector<std::uint64_t> sent;
    for (const SpardlStep& step : scatter_) {
      const std::size_t first = (place + step.gap) % blocks_.count();
      sent.push_back(form_.lazy ? blocks_.KeptOf(first, step.blocks) : Sums(place, step));
    }
    std::size_t kept = Kept(place, unions_.front());
    if (form_.gathers_lists()) {
      const std::size_t list = std::min(kept, AdaptedCount(place));
      for (const SpardlStep& step : BruckSteps(form_.teams)) sent.push_back(step.blocks * list);
      kept = std::min(blocks_.kept(place), UnionOf(place, list, form_.teams));
    } else {
      for (const double doubled : doubled_) {
        sent.push_back(kept);
        kept = Kept(place, doubled);
      }
    }
    sent.push_back(kept);
    return sent;
  }

 private:
  // summed[o]: the number of ranks in the sums that a rank w cuts of block w + o. It receives sums
  // of this block that rank w - gap has cut. For that rank it is block w - gap + (o + gap).
  void ExpectUnions() {
    std::vector<std::size_t> summed(blocks_.count(), 1);
    for (const SpardlStep& step : scatter_) {
      for (std::size_t o = 0; o < step.blocks; ++o) summed[o] += summed[o + step.gap];
    }
    std::map<std::size_t, double> by_ranks;
    const auto expect = [&](std::size_t ranks) {
      const auto [entry, made] = by_ranks.try_emplace(ranks, 0);
      if (made) entry->second = overlap_.Union(density_, ranks);
      return entry->second;
    };
    for (const std::size_t ranks : summed) unions_.push_back(expect(ranks));
    for (std::size_t teams = 2; teams <= form_.teams; teams *= 2) {
      doubled_.push_back(expect(teams * blocks_.count()));
    }
  }

  std::size_t Sums(std::size_t place, const SpardlStep& step) const {
    std::size_t elements = 0;
    for (std::size_t o = step.gap; o < step.gap + step.blocks; ++o) {
      elements += Kept((place + o) % blocks_.count(), unions_[o]);
    }
    return elements;
  }

  // Returns the kept elements of a block, of which the fraction `part` is present.
  std::size_t Kept(std::size_t block, double part) const {
    const std::size_t most = blocks_.kept(block);
    if (form_.lazy) return most;
    const double there = static_cast<double>(blocks_.size(block)) * part;
    return std::min(most, static_cast<std::size_t>(std::llround(there)));
  }

  std::size_t UnionOf(std::size_t block, std::size_t list, std::size_t lists) const {
    const auto size = static_cast<double>(blocks_.size(block));
    if (size == 0) return 0;
    return static_cast<std::size_t>(
        std::llround(size * overlap_.Union(static_cast<double>(list) / size, lists)));
  }

  // Returns the h at which the count settles: the largest h for which lists of h elements have no
  // more than k_b distinct indices.
  std::size_t AdaptedCount(std::size_t block) const {
    const std::size_t kept = blocks_.kept(block);
    if (kept == 0) return 0;
    std::size_t low = std::max<std::size_t>(1, kept / form_.teams);
    std::size_t high = kept;
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      if (UnionOf(block, middle, form_.teams) <= kept) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  const SpardlForm& form_;
  const OverlapModel& overlap_;
  SpardlBlocks blocks_;
  std::vector<SpardlStep> scatter_;
  double density_ = 0;
  std::vector<double> unions_;   // by offset of a block: the fraction present at its cut
  std::vector<double> doubled_;  // by step among teams: the fraction present after it
};

}  // namespace

std::vector<std::vector<std::uint64_t>> SpardlSizes(const SpardlForm& form,
                                                    const OverlapModel& overlap,
                                                    const Topology& topology,
                                                    const ExchangeSizes& sizes) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const SpardlExpectation expected(form, overlap, ranks, sizes);
  std::vector<std::vector<std::uint64_t>> seen(ranks);
  const std::size_t places = expected.blocks().count();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    seen[rank] = rank < places ? expected.At(rank) : seen[rank - places];
  }
  return seen;
}

SpardlWork::SpardlWork(const SpardlForm& form, const SpardlBlocks& blocks)
    : lazy_(form.lazy), width_(blocks.size(0)), kept_(blocks.kept(0)) {}

void SpardlWork::Add(std::size_t arrived, Round& round) const {
  round[Work::kMerge] += Sums(lazy_ ? arrived : arrived + 1) + kept_;
}

void SpardlWork::Cut(std::size_t arrived, Round& round) const {
  if (!lazy_) {
    round[Work::kSelect] += Sums(arrived + 1);
    return;
  }
  // One pass over a dense block takes as long as adding to it, 0.25 ns an element. kSelect, the
  // examination of a list, takes 17 ns.
  round[Work::kAdd] += width_;
  if (arrived == 0) return;
  round[Work::kMerge] += Sums(arrived + 1) + Sums(arrived);
  round[Work::kSelect] += Sums(2 * arrived + 1);
}

void SpardlWork::Return(std::size_t arrived, Round& round) const {
  round[Work::kMerge] += 2 * kept_ + Sums(lazy_ ? arrived : arrived + 1);
}

void SpardlWork::Join(std::size_t lists, Round& round) const {
  round[Work::kMerge] += 2 * lists * kept_;
  round[Work::kSelect] += 2 * kept_;
}

}  // namespace sparfuse::baselines
