#include "harness/python/result_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace sparfuse::python {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmall = 64 * 1024;  // bytes; malloc itself keeps smaller blocks
constexpr std::size_t kMostKept = std::size_t{128} << 20;
constexpr std::size_t kMostBlocks = 32;

// Precedes the returned memory, in its own cache line.
struct alignas(kAlignment) Block {
  std::size_t bytes = 0;
};

struct Kept {
  std::mutex mutex;
  std::vector<Block*> blocks;  // the last returned block is at the end
  std::size_t bytes = 0;
};

// Never destroyed, because arrays outlive the module.
Kept& KeptBlocks() {
  static Kept* const kept = [] {
    auto* const made = new Kept;
    made->blocks.reserve(kMostBlocks + 1);  // returning memory must not throw
    return made;
  }();
  return *kept;
}

}  // namespace

void* TakeMemory(std::size_t bytes) {
  // In a forked child, another thread of the parent may have held the lock for ever.
  Kept& kept = KeptBlocks();
  if (const std::unique_lock lock(kept.mutex, std::try_to_lock); lock && bytes > kSmall) {
    const auto fits = [&](const Block* block) {
      return block->bytes >= bytes && block->bytes / 2 <= bytes;
    };
    const auto found = std::find_if(kept.blocks.rbegin(), kept.blocks.rend(), fits);
    if (found != kept.blocks.rend()) {
      Block* const block = *found;
      kept.bytes -= block->bytes;
      kept.blocks.erase(std::next(found).base());
      return block + 1;
    }
  }
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, sizeof(Block) + rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) Block{rounded} + 1;
}

void ReturnMemory(void* memory) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  Kept& kept = KeptBlocks();
  if (block->bytes > kSmall && block->bytes <= kMostKept) {
    if (const std::unique_lock lock(kept.mutex, std::try_to_lock); lock) {
      kept.blocks.push_back(block);
      kept.bytes += block->bytes;
      while (kept.bytes > kMostKept || kept.blocks.size() > kMostBlocks) {
        Block* const oldest = kept.blocks.front();
        kept.blocks.erase(kept.blocks.begin());
        kept.bytes -= oldest->bytes;
        std::free(oldest);
      }
      return;
    }
  }
  std::free(block);
}

}  // namespace sparfuse::python
