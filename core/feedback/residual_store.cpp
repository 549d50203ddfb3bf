#include "core/feedback/residual_store.hpp"

#include <cassert>
#include <cmath>

namespace sparfuse {

DeviceSpan<float> ResidualStore::Get(std::string_view name, Range range) {
  assert(range.begin <= range.end && range.end <= numel_);
  auto it = stores_.find(name);
  if (it == stores_.end()) {
    it = stores_.emplace(std::string(name), Buffer<float>(numel_, device_)).first;
  }
  DeviceSpan<float> all = it->second.view(Stream{device_, nullptr});
  return {all.data + range.begin, range.size(), all.stream};
}

double ResidualStore::Norm() const {
  double sum = 0;
  for (const auto& [name, buffer] : stores_) {
    for (const float value : buffer.host()) sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

}  // namespace sparfuse
