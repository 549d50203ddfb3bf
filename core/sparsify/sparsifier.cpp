#include "core/sparsify/sparsifier.hpp"

#include <cstdint>

#include "core/base/error.hpp"

namespace sparfuse {

std::span<std::byte> Workspace::Get(WorkspaceUse use, std::size_t bytes) {
  Buffer<std::byte>& buffer = buffers_[use];
  if (buffer.size() < bytes) {
    buffer = Buffer<std::byte>();  // frees the old one first, as both may not fit
    buffer = Buffer<std::byte>(bytes);
  }
  return {buffer.data(), bytes};
}

std::size_t ElementsOf(std::span<const std::int64_t> shape) {
  std::size_t n = 1;
  for (const std::int64_t extent : shape) n *= static_cast<std::size_t>(extent);
  return n;
}

double KeptFraction(std::span<const std::int64_t> shape, double density) {
  const std::size_t n = ElementsOf(shape);
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

std::string Describe(const TensorInfo& info) {
  return Concat("tensor \"", info.name, "\" (id ", info.id, "), step ", info.step);
}

void CheckSelectArguments(std::string_view sparsifier, const SelectSource& source, double density,
                          const TensorInfo& info) {
  const std::string who = Concat(sparsifier, ": ", Describe(info), ": ");
  const std::size_t n = source.gradient.size;
  SPARFUSE_REQUIRE(n >= 1, who, "the gradient is empty; expected at least one element");
  SPARFUSE_REQUIRE(n < (std::uint64_t{1} << 32), who, n,
                   " elements; indices are 32 bits, expected below 2^32");
  SPARFUSE_REQUIRE(density > 0 && density <= 1, who, "density = ", density,
                   ": expected a number in (0, 1]");
  SPARFUSE_REQUIRE(source.residual.size == 0 || source.residual.size == n, who, "the residual has ",
                   source.residual.size, " elements; expected 0 or ", n);
  SPARFUSE_REQUIRE(source.updated.size == 0 || source.updated.size == source.residual.size, who,
                   "the updated residual has ", source.updated.size,
                   " elements; expected 0 or the residual's ", source.residual.size);
}

void RequireRoom(std::string_view sparsifier, const TensorInfo& info, std::size_t capacity,
                 std::size_t k) {
  SPARFUSE_REQUIRE(capacity >= k, sparsifier, ": ", Describe(info), ": the slot has room for ",
                   capacity, " elements; expected at least ", k);
}

}  // namespace sparfuse
