#include "baselines/spardl/spardl_count.hpp"

#include <algorithm>

namespace sparfuse::baselines {
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

}  // namespace sparfuse::baselines
