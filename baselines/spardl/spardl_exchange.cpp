#include "baselines/spardl/spardl_exchange.hpp"

#include <cstring>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse::baselines {

std::span<std::byte> RoomFor(std::size_t elements, std::vector<std::byte>& memory) {
  const std::size_t bytes = elements * kSparseElementBytes;
  if (memory.size() < bytes) memory.resize(bytes);
  return std::span(memory).first(bytes);
}

std::span<std::byte> Join(std::span<const SparsePayload> parts, std::span<std::byte> out) {
  std::size_t count = 0;
  for (const SparsePayload& part : parts) count += part.indices.size();
  std::byte* indices = out.data();
  std::byte* values = out.data() + count * sizeof(std::uint32_t);
  for (const SparsePayload& part : parts) {
    if (part.indices.empty()) continue;
    std::memcpy(indices, part.indices.data(), part.indices.size_bytes());
    std::memcpy(values, part.values.data(), part.values.size_bytes());
    indices += part.indices.size_bytes();
    values += part.values.size_bytes();
  }
  return out.first(count * kSparseElementBytes);
}

std::span<const std::byte> SpardlExchange::Pack(std::span<const SparsePayload> by_block,
                                                std::size_t first, std::size_t count) const {
  std::vector<SparsePayload> parts;
  blocks.ForEach(first, count, [&](std::size_t b) { parts.push_back(by_block[b]); });
  return Join(parts, RoomFor(blocks.KeptOf(first, count), state.out));
}

void SpardlExchange::Unpack(std::span<const std::byte> message, std::size_t first,
                            std::size_t count, std::span<SparsePayload> by_block) const {
  const SparsePayload all = ViewSparsePayload(message);
  std::size_t found = 0;
  blocks.ForEach(first, count, [&](std::size_t b) {
    by_block[b] = Slice(all, blocks.begin(b), blocks.end(b));
    found += by_block[b].indices.size();
  });
  if (message.size() == found * kSparseElementBytes) return;
  SPARFUSE_THROW(kComm, "spardl: a message of " + std::to_string(message.size()) + " bytes with " +
                            std::to_string(found) + " elements of the " + std::to_string(count) +
                            " blocks from block " + std::to_string(first) +
                            " on: expected 8 bytes an element and nothing else");
}

}  // namespace sparfuse::baselines
