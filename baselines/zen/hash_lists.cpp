#include "baselines/zen/hash_lists.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace sparfuse::baselines {
namespace {

constexpr std::size_t kPerBlock = 16;  // entries of a list that lie in a block, about

}  // namespace

HashLists::HashLists(std::size_t elements, std::size_t servers)
    : elements_(elements),
      block_bits_(static_cast<unsigned>(std::bit_width(kPerBlock * servers - 1))),
      blocks_((elements >> block_bits_) + 1),
      indices_(elements),
      begins_(servers + 1, 0),
      directory_(servers * (blocks_ + 1)) {
  const auto count = static_cast<std::uint32_t>(servers);
  const std::size_t block = std::size_t{1} << block_bits_;
  std::vector<std::uint32_t> before(servers, 0);
  for (std::size_t b = 0; b <= blocks_; ++b) {
    for (std::size_t s = 0; s < servers; ++s) directory_[s * (blocks_ + 1) + b] = before[s];
    const std::size_t end = std::min(elements, (b + 1) * block);
    for (std::size_t i = b * block; i < end; ++i) {
      ++before[ServerOf(static_cast<std::uint32_t>(i), count)];
    }
  }
  for (std::size_t s = 0; s < servers; ++s) begins_[s + 1] = begins_[s] + before[s];
  std::vector<std::size_t> at(begins_.begin(), begins_.end() - 1);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto index = static_cast<std::uint32_t>(i);
    indices_[at[ServerOf(index, count)]++] = index;
  }
}

std::size_t HashLists::CountBelow(std::size_t server, std::size_t index) const {
  const std::size_t block = index >> block_bits_;
  const std::uint32_t* const entry = directory_.data() + server * (blocks_ + 1) + block;
  const std::uint32_t* const list = indices_.data() + begins_[server];
  std::size_t position = entry[0];
  while (position < entry[1] && list[position] < index) ++position;
  return position;
}

std::shared_ptr<SharedHashLists> SharedHashLists::Of(std::size_t servers) {
  static std::mutex mutex;
  static std::map<std::size_t, std::weak_ptr<SharedHashLists>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<SharedHashLists> found = all[servers].lock();
  if (found == nullptr) all[servers] = found = std::make_shared<SharedHashLists>(servers);
  return found;
}

std::shared_ptr<const HashLists> SharedHashLists::Covering(std::size_t elements) {
  const std::lock_guard lock(mutex_);
  if (lists_ == nullptr || lists_->elements() < elements) {
    lists_ = std::make_shared<const HashLists>(elements, servers_);
  }
  return lists_;
}

}  // namespace sparfuse::baselines
