#include "core/sparsify/sparsifier.hpp"

#include <cassert>

namespace sparfuse {

std::span<std::byte> Workspace::Get(WorkspaceUse use, std::size_t bytes) {
  Buffer<std::byte>& buffer = buffers_[use];
  if (buffer.size() < bytes) {
    buffer = Buffer<std::byte>();  // the old one is freed first: both need not fit
    buffer = Buffer<std::byte>(bytes);
  }
  return {buffer.data(), bytes};
}

double KeptFraction(std::span<const std::int64_t> shape, double density) {
  std::size_t n = 1;
  for (const std::int64_t extent : shape) n *= static_cast<std::size_t>(extent);
  return static_cast<double>(KeptCount(n, density)) / static_cast<double>(n);
}

std::unique_ptr<SparsifierState> Sparsifier::MakeState(std::size_t /*n*/) const { return nullptr; }

std::size_t Sparsifier::Count(std::size_t n, std::span<const std::int64_t> /*shape*/,
                              double density) const {
  return KeptCount(n, density);
}

void Sparsifier::SelectOnDevice(const DeviceContext& context, const SelectSource& source,
                                double density, const TensorInfo& info, SparsifierState* state,
                                DeviceSlot& slot) const {
  SelectStaged(*this, context, source, density, info, state, slot);
}

std::unique_ptr<SparsifierState> Sparsifier::MakeDeviceState(std::size_t n,
                                                             Device /*device*/) const {
  return MakeState(n);
}

}  // namespace sparfuse
