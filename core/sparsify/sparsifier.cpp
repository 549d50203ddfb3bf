#include "core/sparsify/sparsifier.hpp"

#include <cassert>

namespace sparfuse {

std::span<std::byte> Workspace::Get(std::size_t which, std::size_t bytes) {
  assert(which < std::size(buffers_));
  Buffer<std::byte>& buffer = buffers_[which];
  if (buffer.size() < bytes) {
    buffer = Buffer<std::byte>();  // the old one is freed first: both need not fit
    buffer = Buffer<std::byte>(bytes);
  }
  return {buffer.data(), bytes};
}

std::unique_ptr<SparsifierState> Sparsifier::MakeState(std::size_t /*n*/) const { return nullptr; }

}  // namespace sparfuse
