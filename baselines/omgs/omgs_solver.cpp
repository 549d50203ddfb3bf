#include "baselines/omgs/omgs_solver.hpp"

#include <algorithm>
#include <cmath>

namespace sparfuse::baselines {
namespace {

// The unit that is open. Seconds since backward began.
struct OpenUnit {
  std::size_t elements = 0;
  double begin = 0;             // when the lane begins its backward
  double backward_seconds = 0;  // of all its tensors
};

}  // namespace

std::vector<std::size_t> OmgsUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                   const SecondsOfElements& exchange, OmgsFirstPair first_pair) {
  CheckReadyTensors(tensors, "OMGS-SGD");
  std::vector<std::size_t> units = {1};
  OpenUnit open{tensors.elements[0], 0, tensors.backward_seconds[0]};
  double link_free = 0;
  for (std::size_t t = 1; t < tensors.elements.size(); ++t) {
    const std::size_t next = tensors.elements[t];
    const std::size_t both = open.elements + next;
    const double selected = open.begin + open.backward_seconds + select(open.elements);
    const double sent = std::max(link_free, selected);
    const double waits = tensors.backward_seconds[t] + select(both) - select(open.elements) -
                         select(next) - (sent - selected);
    const double saves = exchange(open.elements) + exchange(next) - exchange(both);
    if (waits < saves && !(t == 1 && first_pair == OmgsFirstPair::kMerged)) {
      ++units.back();
      open.elements = both;
      open.backward_seconds += tensors.backward_seconds[t];
    } else {
      units.push_back(1);
      link_free = sent + exchange(open.elements);
      open = {next, selected, tensors.backward_seconds[t]};
    }
  }
  if (first_pair == OmgsFirstPair::kMerged && units.size() > 1) {
    units[1] += units[0];
    units.erase(units.begin());
  }
  return units;
}

double OmgsSelectionSeconds(double topk_seconds, std::size_t elements) {
  const auto x = static_cast<double>(elements);
  return topk_seconds * x * std::log2(x);
}

double OmgsAllGathers::operator()(std::size_t elements) const {
  const double gathered_bytes = 4.0 * ranks * (density * static_cast<double>(elements));
  return 2 * (alpha_seconds + seconds_per_byte * gathered_bytes);
}

}  // namespace sparfuse::baselines
