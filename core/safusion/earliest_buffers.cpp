#include "core/safusion/earliest_buffers.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace sparfuse {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Holds the ends of the first i tensors and, for each aligned run of 2^k of them, the least
// difference between an end and its growth.seconds.
class Ends {
 public:
  Ends(std::size_t count, const ExchangeGrowth& growth)
      : grows_(growth.seconds),
        ends_(count, kNever),
        leaves_(std::bit_ceil(count)),
        least_(2 * leaves_, kNever) {}

  void Set(std::size_t i, double end) {
    ends_[i] = end;
    std::size_t node = leaves_ + i;
    least_[node] = end - grows_[i];
    for (node /= 2; node > 0; node /= 2) {
      least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
    }
  }
  double operator[](std::size_t i) const { return ends_[i]; }
  double Least(std::size_t node) const { return least_[node]; }
  std::size_t leaves() const { return leaves_; }

 private:
  std::span<const double> grows_;
  std::vector<double> ends_;
  std::size_t leaves_;  // a power of two
  std::vector<double> least_;
};

// The earliest end of an exchange that holds the tensors up to j, and its first tensor.
struct Best {
  double end = kNever;
  std::size_t begin = 0;
};

class Search {
 public:
  // Skips a run of i if its ends are no earlier than `margin` times the best so far.
  Search(std::span<const double> ready, const SecondsOfTensors& exchange,
         const ExchangeGrowth& growth, double margin)
      : ready_(ready), exchange_(exchange), growth_(growth), margin_(margin) {}

  // Returns the least max(ends[i], ready(j)) + exchange(i, j) of i < j, and the first i that
  // attains it. With a margin below 1, it returns an end no later than the least over the margin.
  //
  // In a run of i with the last element b, no exchange ends before
  //   exchange(b, j) - growth.fall + max(growth.seconds[b] + least, ready(j)),
  // with `least` the least ends[i] - growth.seconds[i]. Let the margin exceed 1 by more than the
  // rounding of these few terms. Then no i that attains the least is ever skipped. The result
  // equals that of a loop over all i, since every compared end is the same sum.
  Best Before(const Ends& ends, std::size_t j, std::size_t guess) const {
    Best best;
    const auto look = [&](std::size_t i) {
      const double end = EndOf(ends, i, j);
      if (end < best.end || (end == best.end && i < best.begin)) best = {end, i};
      return best.end;
    };
    if (guess < j) look(guess);
    Visit(ends, {1, 0, ends.leaves()}, j, best.end, look);
    return best;
  }

  // Marks every i < j whose exchange ends by `latest`.
  void MarkBefore(const Ends& ends, std::size_t j, double latest, std::vector<bool>& marks) const {
    Visit(ends, {1, 0, ends.leaves()}, j, latest, [&](std::size_t i) {
      if (EndOf(ends, i, j) <= latest) marks[i] = true;
      return latest;
    });
  }

 private:
  struct Run {
    std::size_t node, first, last;
  };

  double EndOf(const Ends& ends, std::size_t i, std::size_t j) const {
    return std::max(ends[i], ready_[j]) + exchange_(i, j);
  }

  double Bound(const Ends& ends, const Run& run, std::size_t j) const {
    const double least = run.first < j ? ends.Least(run.node) : kNever;
    if (least == kNever) return kNever;
    if (growth_.fall == kNever) return -kNever;
    const std::size_t b = std::min(run.last, j) - 1;
    return exchange_(b, j) - growth_.fall + std::max(growth_.seconds[b] + least, ready_[j]);
  }

  // Calls `look` for each i of the run that may end by `latest`, and updates `latest` by its
  // result. The half with the smaller bound comes first.
  template <class Look>
  double Visit(const Ends& ends, const Run& run, std::size_t j, double latest,
               const Look& look) const {
    if (run.last - run.first == 1) return look(run.first);
    const std::size_t middle = run.first + (run.last - run.first) / 2;
    const Run halves[] = {{2 * run.node, run.first, middle}, {2 * run.node + 1, middle, run.last}};
    const double bounds[] = {Bound(ends, halves[0], j), Bound(ends, halves[1], j)};
    const int sooner = bounds[1] < bounds[0] ? 1 : 0;
    for (const int half : {sooner, 1 - sooner}) {
      if (bounds[half] == kNever || bounds[half] > latest * margin_) continue;
      latest = Visit(ends, halves[half], j, latest, look);
    }
    return latest;
  }

  std::span<const double> ready_;
  const SecondsOfTensors& exchange_;
  const ExchangeGrowth& growth_;
  double margin_;
};

constexpr double kExact = 1 + 1e-14;
constexpr double kNear = 1 - 1e-13;
constexpr double kSame = 1 + 1e-9;  // above the rounding of sums in another order
// Up to so many tensors, equal ends are decided by their last bits, as in a table of all exchanges.
// Beyond, any of them is taken.
constexpr std::size_t kExactTensors = 20'000;

class Solver {
 public:
  Solver(std::span<const double> ready, const SecondsOfTensors& exchange,
         const ExchangeGrowth& growth)
      : near_(ready, exchange, growth, kNear),
        exact_(ready, exchange, growth, kExact),
        growth_(growth),
        row_(ready.size()) {}

  std::vector<std::size_t> Lengths() {
    FindLayers();
    const std::size_t tensors = row_ - 1;
    const std::vector<std::vector<std::uint32_t>> begins =
        tensors <= kExactTensors ? ExactBegins() : begins_;
    std::vector<std::size_t> lengths(begins.size());
    for (std::size_t u = begins.size(), last = tensors; u-- > 0; last = begins[u][last]) {
      lengths[u] = last - begins[u][last];
    }
    return lengths;
  }

 private:
  // Computes e(u, j) for all required u, at most a part in 1e13 too late for each exchange.
  void FindLayers() {
    Ends earliest(row_, growth_);  // e(u, j) minimised over u
    earliest.Set(0, 0);
    for (std::size_t j = 1, guess = 0; j < row_; ++j) {
      const Best best = near_.Before(earliest, j, guess);
      earliest.Set(j, best.end);
      guess = best.begin;
    }
    layers_.emplace_back(row_, growth_).Set(0, 0);
    while (layers_.back()[row_ - 1] > earliest[row_ - 1] * kSame) {
      Ends longer(row_, growth_);
      std::vector<std::uint32_t>& begin = begins_.emplace_back(row_, 0);
      for (std::size_t j = 1, guess = 0; j < row_; ++j) {
        const Best best = near_.Before(layers_.back(), j, guess);
        guess = best.begin;
        if (best.end == kNever) continue;
        longer.Set(j, best.end);
        begin[j] = static_cast<std::uint32_t>(best.begin);
      }
      layers_.push_back(std::move(longer));
    }
  }

  // Finds the first i among equal ones, for all j on a possible way to the end. Downwards, it marks
  // all i that end about as early as the best. Upwards, it runs the recurrence exactly among those
  // alone. All i that attain a least end are marked, since layers_ has their ends hardly too late.
  std::vector<std::vector<std::uint32_t>> ExactBegins() const {
    std::vector<std::vector<bool>> marks(layers_.size(), std::vector<bool>(row_));
    marks.back().back() = true;
    for (std::size_t u = layers_.size() - 1; u > 0; --u) {
      for (std::size_t j = 1; j < row_; ++j) {
        if (marks[u][j]) {
          near_.MarkBefore(layers_[u - 1], j, layers_[u][j] * kSame / kNear, marks[u - 1]);
        }
      }
    }
    std::vector<std::vector<std::uint32_t>> begins;
    Ends ends(row_, growth_);
    ends.Set(0, 0);
    for (std::size_t u = 1; u < layers_.size(); ++u) {
      Ends longer(row_, growth_);
      std::vector<std::uint32_t>& begin = begins.emplace_back(row_, 0);
      for (std::size_t j = 1; j < row_; ++j) {
        if (!marks[u][j]) continue;
        const Best best = exact_.Before(ends, j, begins_[u - 1][j]);
        longer.Set(j, best.end);
        begin[j] = static_cast<std::uint32_t>(best.begin);
      }
      ends = std::move(longer);
    }
    return begins;
  }

  Search near_;
  Search exact_;
  const ExchangeGrowth& growth_;
  std::size_t row_;                                 // tensors + 1
  std::vector<Ends> layers_;                        // e(u, j)
  std::vector<std::vector<std::uint32_t>> begins_;  // [u - 1][j] begin of the last exchange
};

}  // namespace

std::vector<std::size_t> EarliestBuffers(std::span<const double> ready,
                                         const SecondsOfTensors& exchange,
                                         const ExchangeGrowth& growth) {
  return Solver(ready, exchange, growth).Lengths();
}

}  // namespace sparfuse
