#include "core/feedback/residual_store.hpp"

#include <cassert>
#include <cmath>

#include "core/feedback/norm.hpp"

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
  const Stream stream{device_, nullptr};
  ThreadPool alone(1);
  DeviceWorkspace workspace(device_);
  double sum = 0;
  for (const auto& [name, buffer] : stores_) {
    if (device_.kind == DeviceKind::kHost) {
      sum += SumSquares(buffer.host(), alone);
      continue;
    }
    const Buffer<double> of_store(1, device_, "a norm");
    double squares = 0;
    SumSquaresOnDevice(stream, workspace, {buffer.data(), buffer.size(), stream}, of_store.data());
    gpu::CopyAsync(stream, &squares, of_store.data(), sizeof(squares));
    gpu::Synchronize(stream);
    sum += squares;
  }
  return std::sqrt(sum);
}

}  // namespace sparfuse
