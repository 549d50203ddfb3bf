#include "core/feedback/residual_store.hpp"

#include <cassert>
#include <cmath>

#include "core/feedback/norm/norm.hpp"

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

std::vector<std::string> ResidualStore::names() const {
  std::vector<std::string> names;
  for (const auto& [name, buffer] : stores_) names.push_back(name);
  return names;
}

double ResidualStore::Norm() {
  const Stream stream{device_, nullptr};
  if (device_.kind != DeviceKind::kHost && norm_.size() == 0)
    norm_ = Buffer<double>(1, device_, "a norm");
  ThreadPool alone(1);
  double sum = 0;
  for (const auto& [name, buffer] : stores_) {
    if (device_.kind == DeviceKind::kHost) {
      sum += SumSquares(buffer.host(), alone);
      continue;
    }
    double squares = 0;
    SumSquaresOnDevice(stream, workspace_, {buffer.data(), buffer.size(), stream}, norm_.data());
    gpu::CopyAsync(stream, &squares, norm_.data(), sizeof(squares));
    gpu::Synchronize(stream);
    sum += squares;
  }
  return std::sqrt(sum);
}

}  // namespace sparfuse
